package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// heraldFields are fields and sections that KubeletConfiguration does not have.
var heraldFields = []string{
	"nodeName", "kubeconfig", "allowInsecureAPI", "dataDir", "rootDir", "listen", "kubectlListen", "podsAPI", "runtime",
	"allowAPIPods",
	"allowProbesToNodeAddresses", "nodeIP", "nodeLabels", "history", "alerting", "authentication.tokenFile", "authorization.rules",
	"staticPodURLCAFile", "staticPodURLCertFile", "staticPodURLKeyFile",
}

// Configz returns the configuration as the JSON of a KubeletConfiguration, including defaults and without secrets. Fields that Herald
// does not have are left out.
func (c *Config) Configz() ([]byte, error) {
	shown := c.withoutSecrets()
	top := map[string]any{"apiVersion": kubeletType.apiVersion, "kind": kubeletType.kind}
	for l := range leaves(reflect.ValueOf(&shown).Elem(), "") {
		isOurs := func(name string) bool { return l.path == name || strings.HasPrefix(l.path, name+".") }
		if slices.ContainsFunc(heraldFields, isOurs) {
			continue
		}
		parent := top
		names := strings.Split(l.path, ".")
		for _, name := range names[:len(names)-1] {
			child, _ := parent[name].(map[string]any)
			if child == nil {
				child = map[string]any{}
				parent[name] = child
			}
			parent = child
		}
		if value := jsonValue(l.value); value != nil {
			parent[names[len(names)-1]] = value
		}
	}
	return json.Marshal(top)
}

// jsonValue returns a value of a field in the form of KubeletConfiguration, or nil for one that is not set.
func jsonValue(value reflect.Value) any {
	switch v := value.Interface().(type) {
	case time.Duration:
		return v.String()
	case []Taint:
		var taints []map[string]any
		for _, taint := range v {
			taints = append(taints, map[string]any{"key": taint.Key, "value": taint.Value, "effect": taint.Effect})
		}
		if taints == nil {
			return nil
		}
		return taints
	}
	switch value.Kind() {
	case reflect.Bool, reflect.Int:
		return value.Interface()
	default:
		if value.IsZero() {
			return nil
		}
		return value.Interface()
	}
}

package config

import (
	"bytes"
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// hidden stands where a secret would be shown.
const hidden = "HIDDEN"

// Show is the configuration as a file would say it, with what holds where nothing was said, and without its secrets.
func (c *Config) Show() (string, error) {
	shown := *c
	shown.Listen = c.ListenAddress()
	shown.StaticPodURL = withoutSecrets(c.StaticPodURL)
	shown.StaticPodURLHeader = nil
	for name := range c.StaticPodURLHeader {
		if shown.StaticPodURLHeader == nil {
			shown.StaticPodURLHeader = map[string][]string{}
		}
		shown.StaticPodURLHeader[name] = []string{hidden}
	}
	return shown.encode(func(at leaf) bool {
		switch at.Type.Kind() {
		case reflect.Bool, reflect.Int:
			return true
		default:
			return !at.value.IsZero()
		}
	})
}

// withoutSecrets is a URL as it may be shown.
func withoutSecrets(text string) string {
	at, err := url.Parse(text)
	if err != nil {
		return hidden
	}
	if at.User != nil {
		at.User = url.User(hidden)
	}
	if at.RawQuery != "" {
		at.RawQuery = hidden
	}
	at.Fragment, at.RawFragment = "", "" // which is not sent
	return at.String()
}

// encode writes down those fields that are wanted.
func (c *Config) encode(wanted func(leaf) bool) (string, error) {
	top := &yaml.Node{Kind: yaml.MappingNode}
	put(top, "apiVersion", &yaml.Node{Kind: yaml.ScalarNode, Value: APIVersion})
	put(top, "kind", &yaml.Node{Kind: yaml.ScalarNode, Value: Kind})
	for at := range leaves(reflect.ValueOf(c).Elem(), "") {
		if !wanted(at) {
			continue
		}
		value := &yaml.Node{}
		if err := value.Encode(at.value.Interface()); err != nil {
			return "", fmt.Errorf("write down %s: %w", at.path, err)
		}
		names := strings.Split(at.path, ".")
		into := top
		for _, name := range names[:len(names)-1] {
			into = under(into, name)
		}
		put(into, names[len(names)-1], value)
	}
	var text bytes.Buffer
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	if err := out.Encode(top); err != nil {
		return "", fmt.Errorf("write down the configuration: %w", err)
	}
	return text.String(), nil
}

func put(into *yaml.Node, name string, value *yaml.Node) {
	into.Content = append(into.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
}

// under is the mapping of that name, which is made if it is not the last one already.
func under(of *yaml.Node, name string) *yaml.Node {
	if n := len(of.Content); of.Content[n-2].Value != name {
		put(of, name, &yaml.Node{Kind: yaml.MappingNode})
	}
	return of.Content[len(of.Content)-1]
}

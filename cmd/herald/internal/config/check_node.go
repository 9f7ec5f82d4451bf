package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

func (c *Config) checkNode(k *checker) {
	problems := validation.IsDNS1123Subdomain(c.NodeName)
	k.refuse(len(problems) > 0, "nodeName", "%q is no name of a node: %s", c.NodeName, strings.Join(problems, "; "))
	k.refuse(c.DataDir == "", "dataDir", "name a folder")
	k.refuse(c.NodeIP.IsUnspecified() || c.NodeIP.IsMulticast() || c.NodeIP.Zone() != "", "nodeIP",
		"is %v: want an address by which this machine is reached", c.NodeIP)
	k.refuse(c.MaxPods <= 0, "maxPods", "is %d: want more than 0", c.MaxPods)
	for _, key := range slices.Sorted(maps.Keys(c.NodeLabels)) {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(c.NodeLabels[key])...)
		k.refuse(len(problems) > 0, "nodeLabels", "%s=%s is no label: %s", key, c.NodeLabels[key], strings.Join(problems, "; "))
	}
	for i, taint := range c.RegisterWithTaints {
		path := fmt.Sprintf("registerWithTaints[%d]", i)
		problems := append(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)...)
		k.refuse(len(problems) > 0, path, "%s=%s is no taint: %s", taint.Key, taint.Value, strings.Join(problems, "; "))
		effects := []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}
		k.refuse(slices.ContainsFunc(c.RegisterWithTaints[:i], func(t Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }),
			path, "%s is there twice with the effect %s, which the API server refuses", taint.Key, taint.Effect)
		k.refuse(!slices.Contains(effects, taint.Effect), path+".effect", "is %q: want NoSchedule, PreferNoSchedule or NoExecute", taint.Effect)
	}
}

func (c *Config) checkNodeStatus(k *checker) {
	k.positive("nodeStatusUpdateFrequency", c.NodeStatusUpdateFrequency)
	k.positive("nodeStatusReportFrequency", c.NodeStatusReportFrequency)
	k.refuse(c.NodeLeaseDurationSeconds < 4, "nodeLeaseDurationSeconds", "is %d: want at least 4", c.NodeLeaseDurationSeconds)
	checkReserved(k, "kubeReserved", c.KubeReserved)
	checkReserved(k, "systemReserved", c.SystemReserved)
}

func checkReserved(k *checker, path string, list map[string]string) {
	kinds := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := path + "." + name
		k.refuse(!slices.Contains(kinds, v1.ResourceName(name)), at, "nothing is kept back of that: want cpu, memory or ephemeral-storage")
		quantity, err := resource.ParseQuantity(list[name])
		k.refuse(err != nil || quantity.Sign() < 0, at, "is %q: want a quantity, like 500m or 1Gi", list[name])
	}
}

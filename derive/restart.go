package derive

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// canRestartAll reports whether some exit of some container restarts the whole pod in place.
func canRestartAll(spec *v1.PodSpec) bool {
	hasRule := func(c v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(rule v1.ContainerRestartRule) bool {
			return rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(spec.InitContainers, hasRule) || slices.ContainsFunc(spec.Containers, hasRule)
}

// statusOf finds a container's status by name, or nil.
func statusOf(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// initAt is the spec of the init container whose status stands at that place. The lists go together by place and name
// (SM-45); nil when they do not.
func initAt(spec *v1.PodSpec, statuses []v1.ContainerStatus, place int) *v1.Container {
	if place >= len(spec.InitContainers) || spec.InitContainers[place].Name != statuses[place].Name {
		return nil
	}
	return &spec.InitContainers[place]
}

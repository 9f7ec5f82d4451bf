package derive

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ShouldRestart reports whether a container that ended with this code is to be started again by its own or the pod's
// policy (SM-43). The container's rules and policy come first, and override the pod's in both directions.
func ShouldRestart(spec *v1.PodSpec, container *v1.Container, exitCode int32) bool {
	if container.RestartPolicy != nil {
		switch ruleFor(container, exitCode) {
		case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
			return true
		}
		switch *container.RestartPolicy {
		case v1.ContainerRestartPolicyAlways:
			return true
		case v1.ContainerRestartPolicyOnFailure:
			return exitCode != 0
		case v1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch spec.RestartPolicy {
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	case v1.RestartPolicyNever:
		return false
	default:
		return true
	}
}

// ruleFor is the action of the first rule that matches the exit code, or "". A rule without exit codes matches nothing.
func ruleFor(container *v1.Container, exitCode int32) v1.ContainerRestartRuleAction {
	for i := range container.RestartPolicyRules {
		rule := &container.RestartPolicyRules[i]
		if rule.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(rule.ExitCodes.Values, exitCode)
		switch rule.ExitCodes.Operator {
		case v1.ContainerRestartRuleOnExitCodesOpIn:
			if listed {
				return rule.Action
			}
		case v1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !listed {
				return rule.Action
			}
		}
	}
	return ""
}

// canRestartAll reports whether some exit of some container restarts the whole pod in place.
func canRestartAll(spec *v1.PodSpec) bool {
	hasRule := func(c v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(rule v1.ContainerRestartRule) bool {
			return rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(spec.InitContainers, hasRule) || slices.ContainsFunc(spec.Containers, hasRule)
}

// isSidecar reports whether an init container keeps running beside the regular ones.
func isSidecar(initContainer *v1.Container) bool {
	return initContainer.RestartPolicy != nil && *initContainer.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// isTerminal reports whether a pod in this phase has ended for good.
func isTerminal(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
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

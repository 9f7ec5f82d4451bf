package restart

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// After reports whether a container that ended with this code is started again (SM-43). The container's rules and policy come
// first, and override the pod's in both directions.
func ShouldRestart(spec *v1.PodSpec, container *v1.Container, exitCode int32) bool {
	switch RuleAction(container, exitCode) {
	case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
		return true
	}
	switch policyOf(spec, container) {
	case v1.ContainerRestartPolicyNever:
		return false
	case v1.ContainerRestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// WhenKilled reports whether a container that is killed, or was lost, is started again. Rules are not asked: there is no exit
// code of its own that they could judge (PRB-41).
func ShouldRestartKilled(spec *v1.PodSpec, container *v1.Container) bool {
	return policyOf(spec, container) != v1.ContainerRestartPolicyNever
}

// IsSidecar reports whether an init container keeps running beside the regular ones.
func IsSidecar(initContainer *v1.Container) bool {
	return initContainer.RestartPolicy != nil && *initContainer.RestartPolicy == v1.ContainerRestartPolicyAlways
}

func policyOf(spec *v1.PodSpec, container *v1.Container) v1.ContainerRestartPolicy {
	if own := container.RestartPolicy; own != nil && isKnown(*own) {
		return *own
	}
	return v1.ContainerRestartPolicy(spec.RestartPolicy)
}

func isKnown(policy v1.ContainerRestartPolicy) bool {
	switch policy {
	case v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever:
		return true
	default:
		return false
	}
}

// Rule is the action of the container's first rule that matches the exit code, or "". A rule without exit codes matches
// nothing, and rules without a policy of the container's own are not asked.
func RuleAction(container *v1.Container, exitCode int32) v1.ContainerRestartRuleAction {
	if container.RestartPolicy == nil {
		return ""
	}
	for i := range container.RestartPolicyRules {
		if rule := &container.RestartPolicyRules[i]; matches(rule.ExitCodes, exitCode) {
			return rule.Action
		}
	}
	return ""
}

func matches(on *v1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	if on == nil {
		return false
	}
	listed := slices.Contains(on.Values, exitCode)
	switch on.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return listed
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !listed
	default:
		return false
	}
}

// LastOfAll is when a container last ended with a code for which its rule restarts the whole pod in place; zero if none did.
func LastRestartAll(spec *v1.PodSpec, seen *observed.Pod) time.Time {
	var last time.Time
	for i := range seen.Containers {
		instance := &seen.Containers[i]
		if instance.State != observed.Exited || instance.Exit == nil || !instance.Exit.FinishedAt.After(last) {
			continue
		}
		container := find(spec, instance.Name)
		if container != nil && RuleAction(container, int32(instance.Exit.Code)) == v1.ContainerRestartRuleActionRestartAllContainers {
			last = instance.Exit.FinishedAt
		}
	}
	return last
}

func find(spec *v1.PodSpec, name string) *v1.Container {
	for _, containers := range [...][]v1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

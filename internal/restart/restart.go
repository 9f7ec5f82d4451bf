// Package restart decides whether an exited container restarts, from its own restart rules and policy and from its pod's
// policy.
package restart

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// ExitCodeKilled is the exit code of a container whose exit was not observed. It is never a success.
const ExitCodeKilled = 137

// ReasonOOMKilled is the termination reason of a container that was killed for lack of memory.
const ReasonOOMKilled = "OOMKilled"

const restartAll = v1.ContainerRestartRuleActionRestartAllContainers

// ShouldRestart reports whether a container that exited with this code restarts (SM-43). The container's rules and policy
// take precedence over the pod's policy, in both directions.
func ShouldRestart(spec *v1.PodSpec, container *v1.Container, exitCode int32) bool {
	switch RuleAction(container, exitCode) {
	case v1.ContainerRestartRuleActionRestart, restartAll:
		return true
	}
	switch effectivePolicy(spec, container) {
	case v1.ContainerRestartPolicyNever:
		return false
	case v1.ContainerRestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// ShouldRestartKilled reports whether a container that is killed or lost restarts. Rules do not apply: there is no exit code
// of its own to match (PRB-41).
func ShouldRestartKilled(spec *v1.PodSpec, container *v1.Container) bool {
	return effectivePolicy(spec, container) != v1.ContainerRestartPolicyNever
}

// ShouldRestartInit reports whether an init container that exited like this runs again. One that was killed for lack of
// memory counts as killed, even if its exit code is 0 (PH-16).
func ShouldRestartInit(spec *v1.PodSpec, container *v1.Container, exitCode int32, reason string) bool {
	return !InitSucceeded(exitCode, reason) && ShouldRestart(spec, container, cmp.Or(exitCode, ExitCodeKilled))
}

// InitSucceeded reports whether an init container completed. The exit code alone does not prove it: if only a child was
// killed for lack of memory, the code may be 0 (PH-16).
func InitSucceeded(exitCode int32, reason string) bool {
	return exitCode == 0 && reason != ReasonOOMKilled
}

// IsSidecar reports whether an init container keeps running next to the regular containers.
func IsSidecar(initContainer *v1.Container) bool {
	return initContainer.RestartPolicy != nil && *initContainer.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// effectivePolicy returns the container's policy if it has a valid one, else the pod's.
func effectivePolicy(spec *v1.PodSpec, container *v1.Container) v1.ContainerRestartPolicy {
	if policy := container.RestartPolicy; policy != nil && isValidPolicy(*policy) {
		return *policy
	}
	return v1.ContainerRestartPolicy(spec.RestartPolicy)
}

func isValidPolicy(policy v1.ContainerRestartPolicy) bool {
	switch policy {
	case v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever:
		return true
	default:
		return false
	}
}

// RuleAction returns the action of the container's first rule that matches the exit code, or "". A rule without exit codes
// matches nothing. Rules apply only if the container has a policy of its own.
func RuleAction(container *v1.Container, exitCode int32) v1.ContainerRestartRuleAction {
	if container.RestartPolicy == nil {
		return ""
	}
	for i := range container.RestartPolicyRules {
		if rule := &container.RestartPolicyRules[i]; matchesExitCode(rule.ExitCodes, exitCode) {
			return rule.Action
		}
	}
	return ""
}

func matchesExitCode(exitCodes *v1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	if exitCodes == nil {
		return false
	}
	listed := slices.Contains(exitCodes.Values, exitCode)
	switch exitCodes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return listed
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !listed
	default:
		return false
	}
}

// RestartsAll reports whether an exit with this code restarts all containers of the pod in place.
func RestartsAll(container *v1.Container, exitCode int32) bool {
	return RuleAction(container, exitCode) == restartAll
}

// CanRestartAll reports whether any container has a rule that restarts all containers of the pod in place.
func CanRestartAll(spec *v1.PodSpec) bool {
	hasRule := func(container v1.Container) bool {
		return slices.ContainsFunc(container.RestartPolicyRules, func(rule v1.ContainerRestartRule) bool {
			return rule.Action == restartAll
		})
	}
	return slices.ContainsFunc(spec.InitContainers, hasRule) || slices.ContainsFunc(spec.Containers, hasRule)
}

// LastRestartAll returns when a container last exited with a code that restarts all containers of the pod in place. It
// returns the zero time if none did.
func LastRestartAll(spec *v1.PodSpec, runtimePod *observed.Pod) time.Time {
	var last time.Time
	for i := range runtimePod.Containers {
		instance := &runtimePod.Containers[i]
		if instance.State != observed.Exited || instance.Exit == nil || !instance.Exit.FinishedAt.After(last) {
			continue
		}
		container := findContainer(spec, instance.Name)
		if container != nil && RestartsAll(container, int32(instance.Exit.Code)) {
			last = instance.Exit.FinishedAt
		}
	}
	return last
}

func findContainer(spec *v1.PodSpec, name string) *v1.Container {
	for _, containers := range [...][]v1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

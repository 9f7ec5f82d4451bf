package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

const (
	reasonOOMKilled     = "OOMKilled"
	reasonStatusUnknown = "ContainerStatusUnknown"
	exitCodeKilled      = 137
)

// stateOf is the instance's state. One that exited nobody knows how is unknown.
func stateOf(c *observed.Container) observed.State {
	if c.State == observed.Exited && c.Exit == nil {
		return observed.Unknown
	}
	return c.State
}

// isAlive reports whether the instance runs, or may run for all that is known.
func isAlive(c *observed.Container) bool {
	state := stateOf(c)
	return state == observed.Running || state == observed.Unknown
}

// succeeded reports whether an init container has done its work. Killed for want of memory it has not, even if its exit
// code is 0 because only a child was hit (PH-16).
func succeeded(exit *observed.Exit) bool {
	return exit.Code == 0 && exit.Reason != reasonOOMKilled
}

// restartsAfter reports whether a container that ended like this is started again (SM-43). The container's rules and
// policy come first, and override the pod's in both directions.
func restartsAfter(spec *v1.PodSpec, c *v1.Container, exitCode int) bool {
	switch ruleFor(c, exitCode) {
	case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
		return true
	}
	switch policyOf(spec, c) {
	case v1.ContainerRestartPolicyNever:
		return false
	case v1.ContainerRestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// restartsWhenKilled reports whether a container that is killed, or was lost, is started again. Rules are not asked:
// there is no exit code of its own that they could judge (PRB-41).
func restartsWhenKilled(spec *v1.PodSpec, c *v1.Container) bool {
	return policyOf(spec, c) != v1.ContainerRestartPolicyNever
}

// RunsOnce reports whether a container that was begun and lost must not be started again: nobody knows whether it has done its
// work, and its pod's policy allows no second time (BUG-41).
func RunsOnce(pod *v1.Pod, start Start) bool {
	return start.Kind == Regular && !restartsWhenKilled(&pod.Spec, start.Container)
}

func policyOf(spec *v1.PodSpec, c *v1.Container) v1.ContainerRestartPolicy {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy
	}
	return v1.ContainerRestartPolicy(spec.RestartPolicy)
}

// ruleFor is the action of the container's first rule that matches the exit code, or "". A rule without exit codes
// matches nothing, and rules without a policy of the container's own are not asked.
func ruleFor(c *v1.Container, exitCode int) v1.ContainerRestartRuleAction {
	if c.RestartPolicy == nil {
		return ""
	}
	for i := range c.RestartPolicyRules {
		if rule := &c.RestartPolicyRules[i]; matches(rule.ExitCodes, exitCode) {
			return rule.Action
		}
	}
	return ""
}

func matches(on *v1.ContainerRestartRuleOnExitCodes, exitCode int) bool {
	if on == nil {
		return false
	}
	listed := slices.Contains(on.Values, int32(exitCode))
	switch on.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return listed
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !listed
	default:
		return false
	}
}

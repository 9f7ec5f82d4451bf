package heraldtest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// refuseResurrections forbids that a container leaves its terminated state if nothing may restart it.
func refuseResurrections(updated, old *v1.Pod) field.ErrorList {
	if anyRestartsAll(&old.Spec) {
		return nil
	}
	status := field.NewPath("status")
	regular := func(was v1.ContainerStatus) bool { return mayRestart(&old.Spec, old.Spec.Containers, was) }
	initial := func(was v1.ContainerStatus) bool { return mayRestart(&old.Spec, old.Spec.InitContainers, was) }
	never := func(v1.ContainerStatus) bool { return false }
	return slices.Concat(
		resurrected(status.Child("containerStatuses"),
			updated.Status.ContainerStatuses, old.Status.ContainerStatuses, regular),
		resurrected(status.Child("initContainerStatuses"),
			updated.Status.InitContainerStatuses, old.Status.InitContainerStatuses, initial),
		resurrected(status.Child("ephemeralContainerStatuses"),
			updated.Status.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, never),
	)
}

func resurrected(
	path *field.Path, updated, old []v1.ContainerStatus, allowed func(was v1.ContainerStatus) bool,
) field.ErrorList {
	var errs field.ErrorList
	for i, was := range old {
		if was.State.Terminated == nil {
			continue
		}
		alive := slices.ContainsFunc(updated, func(is v1.ContainerStatus) bool {
			return is.Name == was.Name && is.State.Terminated == nil
		})
		if alive && !allowed(was) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

// mayRestart asks the container's rules, then its own policy, then the pod's. A container that the spec does not have
// may not.
func mayRestart(spec *v1.PodSpec, containers []v1.Container, was v1.ContainerStatus) bool {
	at := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == was.Name })
	if at < 0 {
		return false
	}
	exitCode := was.State.Terminated.ExitCode
	policy := spec.RestartPolicy
	if own := containers[at].RestartPolicy; own != nil {
		if slices.ContainsFunc(containers[at].RestartPolicyRules, func(rule v1.ContainerRestartRule) bool {
			return rule.Action == v1.ContainerRestartRuleActionRestart && exitCodeMatches(rule.ExitCodes, exitCode)
		}) {
			return true
		}
		policy = v1.RestartPolicy(*own)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

func exitCodeMatches(rule *v1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	if rule == nil {
		return false
	}
	listed := slices.Contains(rule.Values, exitCode)
	return listed == (rule.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// anyRestartsAll reports whether some container's exit may restart the whole pod: then no state is final.
func anyRestartsAll(spec *v1.PodSpec) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(rule v1.ContainerRestartRule) bool {
			return rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

package derive

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// SandboxProblem says why the pod needs a new sandbox before containers can be started, or "" when it has one that will
// do. It is the predicate behind PodReadyToStartContainers, and in the kubelet also behind the runtime's own decision
// (GEN-29).
func NewSandboxReason(pod *v1.Pod, seen *observed.Pod) string {
	if seen == nil {
		seen = &observed.Pod{}
	}
	newest, ok := seen.NewestSandbox()
	switch {
	case !ok:
		return "no pod sandbox exists" // GEN-24
	case seen.ReadySandboxes() > 1:
		return "multiple pod sandboxes are ready and need to be reconciled" // GEN-25
	case !newest.Ready:
		return "pod sandbox is not ready" // GEN-26
	case newest.HostNetwork != pod.Spec.HostNetwork:
		return "network namespace mode changed and sandbox needs to be recreated" // GEN-27
	case !pod.Spec.HostNetwork && newest.Network != nil && len(newest.Network.IPs) == 0:
		return "pod sandbox has no IP address" // GEN-28
	default:
		return ""
	}
}

// ReadyToStartContainers describes the sandbox as it is now; it turns False again when the sandbox is gone (GEN-31).
// The condition carries no reason, as in v1.36; [SandboxProblem] has it.
func ReadyToStartContainersCondition(pod *v1.Pod, seen *observed.Pod) v1.PodCondition {
	if NewSandboxReason(pod, seen) != "" {
		return newCondition(pod, v1.PodReadyToStartContainers, v1.ConditionFalse)
	}
	return newCondition(pod, v1.PodReadyToStartContainers, v1.ConditionTrue)
}

// WithSandboxReady is the status of a pod whose sandbox was made just now: minutes of image pulling must not hide it
// (GEN-30). All else is left as it was.
func WithSandboxReady(pod *v1.Pod, status v1.PodStatus) v1.PodStatus {
	status.Conditions = replaced(status.Conditions, newCondition(pod, v1.PodReadyToStartContainers, v1.ConditionTrue))
	return status
}

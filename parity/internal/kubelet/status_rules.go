package kubelet

import (
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// What is linked below is there only if somebody uses its package.
var (
	_ = kubelet.NewReasonCache
	_ = status.NewManager
)

//go:linkname getPhase k8s.io/kubernetes/pkg/kubelet.getPhase
func getPhase(logger klog.Logger, pod *v1.Pod, statuses []v1.ContainerStatus, terminal, initialized bool) v1.PodPhase

//go:linkname normalizeStatus k8s.io/kubernetes/pkg/kubelet/status.normalizeStatus
func normalizeStatus(pod *v1.Pod, status *v1.PodStatus) *v1.PodStatus

//go:linkname mergePodStatus k8s.io/kubernetes/pkg/kubelet/status.mergePodStatus
func mergePodStatus(pod *v1.Pod, api, ours v1.PodStatus, couldRun bool) v1.PodStatus

//go:linkname isPodStatusByKubeletEqual k8s.io/kubernetes/pkg/kubelet/status.isPodStatusByKubeletEqual
func isPodStatusByKubeletEqual(old, next *v1.PodStatus) bool

//go:linkname checkContainerStateTransition k8s.io/kubernetes/pkg/kubelet/status.checkContainerStateTransition
func checkContainerStateTransition(old, next *v1.PodStatus, spec *v1.PodSpec) error

// Phase is the kubelet's phase for these statuses of init and regular containers.
func Phase(pod *v1.Pod, statuses []v1.ContainerStatus, terminating, initialized bool) v1.PodPhase {
	return getPhase(klog.Logger{}, pod, statuses, terminating, initialized)
}

// NormalizeStatus is the status as the kubelet caches it. The argument stays as it is.
func NormalizeStatus(pod *v1.Pod, status *v1.PodStatus) v1.PodStatus {
	return *normalizeStatus(pod, status.DeepCopy())
}

// MergeStatus is what the kubelet sends, given what the API server has. The arguments stay as they are.
func MergeStatus(pod *v1.Pod, api, ours *v1.PodStatus, couldRun bool) v1.PodStatus {
	return mergePodStatus(pod, *api.DeepCopy(), *ours.DeepCopy(), couldRun)
}

// EqualStatus reports whether the kubelet has nothing to send.
func EqualStatus(old, next *v1.PodStatus) bool { return isPodStatusByKubeletEqual(old, next) }

// CheckTransition is the kubelet's check of what containers may not do.
func CheckTransition(pod *v1.Pod, old, next *v1.PodStatus) error {
	return checkContainerStateTransition(old, next, &pod.Spec)
}

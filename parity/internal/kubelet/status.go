package kubelet

import (
	"context"
	"runtime"
	"sync/atomic"
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
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

// StatusManager is the kubelet's own, silent, and with an end: the original sends until its process ends, so that it could
// neither live in a bubble of testing/synctest nor be started twice in a test.
type StatusManager struct {
	status.Manager
	pods   *mortalPods
	cancel context.CancelFunc
}

// NewStatusManager makes one on the kubelet's own address book. A nil client is a kubelet without an API server.
func NewStatusManager(client kubernetes.Interface, pods pod.Manager, deletion status.PodDeletionSafetyProvider) *StatusManager {
	mortal := &mortalPods{Manager: pods, ended: make(chan struct{})}
	return &StatusManager{Manager: status.NewManager(client, mortal, deletion, unmeasured{}), pods: mortal, cancel: func() {}}
}

// Start lets it send.
func (m *StatusManager) Start(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	m.Manager.Start(ctx)
}

// Stop ends a manager that was started and waits for its goroutine. What was not sent is lost, as when a kubelet ends.
func (m *StatusManager) Stop() {
	m.cancel()
	m.pods.ending.Store(true)
	m.Manager.SetPodStatus(klog.Logger{}, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "wakes the loop"}}, v1.PodStatus{})
	<-m.pods.ended
}

// SetPodStatus is the original's.
func (m *StatusManager) SetPodStatus(pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	return m.Manager.SetPodStatus(klog.Logger{}, pod, status)
}

// TerminatePod is the original's.
func (m *StatusManager) TerminatePod(pod *v1.Pod) { m.Manager.TerminatePod(klog.Logger{}, pod) }

// SetContainerReadiness is the original's; the container is written as in the API.
func (m *StatusManager) SetContainerReadiness(uid types.UID, id string, ready bool) {
	m.Manager.SetContainerReadiness(klog.Logger{}, uid, container.ParseContainerID(id), ready)
}

// SetContainerStartup is the original's; the container is written as in the API.
func (m *StatusManager) SetContainerStartup(uid types.UID, id string, started bool) {
	m.Manager.SetContainerStartup(klog.Logger{}, uid, container.ParseContainerID(id), started)
}

// RemoveOrphanedStatuses is the original's.
func (m *StatusManager) RemoveOrphanedStatuses(keep map[types.UID]bool) {
	m.Manager.RemoveOrphanedStatuses(klog.Logger{}, keep)
}

// mortalPods ends the manager's goroutine, the only one that asks for the translations, when it should end.
type mortalPods struct {
	pod.Manager
	ending atomic.Bool
	ended  chan struct{}
}

func (p *mortalPods) GetUIDTranslations() (
	map[kubetypes.ResolvedPodUID]kubetypes.MirrorPodUID, map[kubetypes.MirrorPodUID]kubetypes.ResolvedPodUID,
) {
	if p.ending.Load() {
		close(p.ended)
		runtime.Goexit()
	}
	return p.Manager.GetUIDTranslations()
}

// unmeasured is a node on which nobody measures how long pods take to start.
type unmeasured struct{}

func (unmeasured) RecordStatusUpdated(*v1.Pod)     {}
func (unmeasured) DeletePodStartupState(types.UID) {}

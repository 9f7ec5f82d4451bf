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

// The linker keeps the functions below only if their packages are used.
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

// Phase returns the kubelet's phase for the statuses of init and regular containers.
func Phase(pod *v1.Pod, statuses []v1.ContainerStatus, terminating, initialized bool) v1.PodPhase {
	return getPhase(klog.Logger{}, pod, statuses, terminating, initialized)
}

// NormalizeStatus returns the status as the kubelet caches it. It does not modify its argument.
func NormalizeStatus(pod *v1.Pod, status *v1.PodStatus) v1.PodStatus {
	return *normalizeStatus(pod, status.DeepCopy())
}

// MergeStatus returns what the kubelet sends when the API server has api. It does not modify its arguments.
func MergeStatus(pod *v1.Pod, api, ours *v1.PodStatus, couldRun bool) v1.PodStatus {
	return mergePodStatus(pod, *api.DeepCopy(), *ours.DeepCopy(), couldRun)
}

// StatusEqual reports whether the kubelet has nothing to send.
func StatusEqual(old, next *v1.PodStatus) bool { return isPodStatusByKubeletEqual(old, next) }

// CheckTransition is the kubelet's check for illegal container state transitions.
func CheckTransition(pod *v1.Pod, old, next *v1.PodStatus) error {
	return checkContainerStateTransition(old, next, &pod.Spec)
}

// StatusManager is the kubelet's status manager without logs and with a Stop method. The original sends until its
// process exits, so it could neither run in a testing/synctest bubble nor be started twice in a test.
type StatusManager struct {
	status.Manager
	pods   *stoppablePods
	cancel context.CancelFunc
}

// NewStatusManager returns a manager that uses the kubelet's own pod manager. A nil client means no API server.
func NewStatusManager(client kubernetes.Interface, pods pod.Manager, deletion status.PodDeletionSafetyProvider) *StatusManager {
	stoppable := &stoppablePods{Manager: pods, stopped: make(chan struct{})}
	return &StatusManager{Manager: status.NewManager(client, stoppable, deletion, noopStartupLatency{}), pods: stoppable, cancel: func() {}}
}

// Start starts sending.
func (m *StatusManager) Start(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	m.Manager.Start(ctx)
}

// Stop stops a started manager and waits for its goroutine. Unsent statuses are lost, as when a kubelet exits.
func (m *StatusManager) Stop() {
	m.cancel()
	m.pods.stopping.Store(true)
	m.Manager.SetPodStatus(klog.Logger{}, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "wakes the loop"}}, v1.PodStatus{})
	<-m.pods.stopped
}

// SetPodStatus calls the kubelet's method.
func (m *StatusManager) SetPodStatus(pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	return m.Manager.SetPodStatus(klog.Logger{}, pod, status)
}

// TerminatePod calls the kubelet's method.
func (m *StatusManager) TerminatePod(pod *v1.Pod) { m.Manager.TerminatePod(klog.Logger{}, pod) }

// SetContainerReadiness calls the kubelet's method. The container ID has the API's form.
func (m *StatusManager) SetContainerReadiness(uid types.UID, id string, ready bool) {
	m.Manager.SetContainerReadiness(klog.Logger{}, uid, container.ParseContainerID(id), ready)
}

// SetContainerStartup calls the kubelet's method. The container ID has the API's form.
func (m *StatusManager) SetContainerStartup(uid types.UID, id string, started bool) {
	m.Manager.SetContainerStartup(klog.Logger{}, uid, container.ParseContainerID(id), started)
}

// RemoveOrphanedStatuses calls the kubelet's method.
func (m *StatusManager) RemoveOrphanedStatuses(keep map[types.UID]bool) {
	m.Manager.RemoveOrphanedStatuses(klog.Logger{}, keep)
}

// stoppablePods ends the manager's goroutine, the only caller of GetUIDTranslations, after Stop.
type stoppablePods struct {
	pod.Manager
	stopping atomic.Bool
	stopped  chan struct{}
}

func (p *stoppablePods) GetUIDTranslations() (
	map[kubetypes.ResolvedPodUID]kubetypes.MirrorPodUID, map[kubetypes.MirrorPodUID]kubetypes.ResolvedPodUID,
) {
	if p.stopping.Load() {
		close(p.stopped)
		runtime.Goexit()
	}
	return p.Manager.GetUIDTranslations()
}

// noopStartupLatency discards pod startup measurements.
type noopStartupLatency struct{}

func (noopStartupLatency) RecordStatusUpdated(*v1.Pod)     {}
func (noopStartupLatency) DeletePodStartupState(types.UID) {}

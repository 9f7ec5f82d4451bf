package diff_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubeletallocation "k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/preemption"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/heraldnode/herald/admission"
	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// resizeRequest asks for other requests of a pod, or removes it.
type resizeRequest struct {
	Pod         int
	CPU, Memory int64 // milli, Mi
	Remove      bool
}

type resizeHistory struct{ Requests []resizeRequest }

const resizePods = 4

// sizedPod returns a pod of the history. Pods have different priorities: the kubelet's order of equal ones is not defined.
func sizedPod(index int, cpu, memory, generation int64) *v1.Pod {
	list := v1.ResourceList{
		v1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(memory<<20, resource.BinarySI),
	}
	name := fmt.Sprint("pod-", index)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Generation: generation},
		Spec: v1.PodSpec{
			NodeName: "n1", Priority: new(int32(index)),
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list}}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable},
	}
}

func resizeNode() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourcePods: resource.MustParse("10"), v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1000Mi"),
	}}}
}

// resizeSide is an allocation manager with its pods.
type resizeSide struct {
	pods   map[types.UID]*v1.Pod
	events []string
	// retry tries pending resizes until nothing changes.
	retry      func()
	add        func(*v1.Pod)
	update     func(before, after *v1.Pod)
	remove     func(types.UID)
	allocated  func(*v1.Pod) *v1.Pod
	conditions func(types.UID) []v1.PodCondition
}

func (s *resizeSide) all() (pods []*v1.Pod) {
	for _, pod := range s.pods {
		pods = append(pods, pod)
	}
	return pods
}

// Event records events. A deferred resize has the reason of the admission in the kubelet's text (RSZ-11).
func (s *resizeSide) Event(object runtime.Object, _, reason, message string) {
	message = strings.NewReplacer("resize OutOfcpu", "resize Deferred", "resize OutOfmemory", "resize Deferred").Replace(message)
	s.events = append(s.events, fmt.Sprint(object.(*v1.Pod).Name, " ", reason, " ", message))
}

// kubeletEvents implements the kubelet's recorder.
type kubeletEvents struct {
	record.EventRecorderLogger
	side *resizeSide
}

func (e kubeletEvents) WithLogger(klog.Logger) record.EventRecorderLogger { return e }

func (e kubeletEvents) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	e.side.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

func newKubeletSide() *resizeSide {
	s := &resizeSide{pods: map[types.UID]*v1.Pod{}}
	hidden := types.UID("")
	statuses := kubelet.NewStatusManager(nil, kubeletpod.NewBasicPodManager(), nil)
	manager := kubeletallocation.NewInMemoryManager(
		statuses.Manager, func(*v1.Pod) {}, s.all, func(uid types.UID) (*v1.Pod, bool) { pod, found := s.pods[uid]; return pod, found && uid != hidden },
		config.NewSourcesReady(func(sets.Set[string]) bool { return true }), kubeletEvents{side: s},
	)
	getNode := func(context.Context, bool) (*v1.Node, error) { return resizeNode(), nil }
	preempting := preemption.NewCriticalPodAdmissionHandler(func() []*v1.Pod { return nil }, nil, record.NewFakeRecorder(1))
	noPlugins := func(*schedulerframework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil }
	manager.AddPodAdmitHandlers(lifecycle.PodAdmitHandlers{lifecycle.NewPredicateAdmitHandler(getNode, preempting, noPlugins)})
	s.retry = func() {
		for range resizePods {
			manager.RetryPendingResizes(kubeletallocation.TriggerReasonPodUpdated)
		}
	}
	s.add = func(pod *v1.Pod) { manager.AddPod(s.all(), pod) }
	s.update = func(_, after *v1.Pod) {
		// The kubelet leaves a pod that is queued already where it is, also if it asks for less now. It is taken out first.
		hidden = after.UID
		manager.RetryPendingResizes(kubeletallocation.TriggerReasonPodUpdated)
		hidden = ""
		if _, differs := manager.UpdatePodFromAllocation(after); differs {
			manager.PushPendingResize(after.UID)
		} else {
			statuses.ClearPodResizePendingCondition(after.UID)
		}
	}
	s.remove = manager.RemovePod
	s.allocated = func(pod *v1.Pod) *v1.Pod { allocated, _ := manager.UpdatePodFromAllocation(pod); return allocated }
	s.conditions = func(uid types.UID) (conditions []v1.PodCondition) {
		for _, condition := range statuses.GetPodResizeConditions(uid) {
			conditions = append(conditions, *condition)
		}
		return conditions
	}
	return s
}

func newHeraldSide() *resizeSide {
	s := &resizeSide{pods: map[types.UID]*v1.Pod{}}
	var manager *allocation.Manager
	manager, err := allocation.New(allocation.Config{
		Events: s,
		Pod:    func(uid podid.UID) (*v1.Pod, bool) { pod, found := s.pods[types.UID(uid)]; return pod, found },
		Decide: func(pod *v1.Pod) *resize.Verdict {
			var others []*v1.Pod
			for uid, other := range s.pods {
				if uid != pod.UID {
					others = append(others, s.allocated(other))
				}
			}
			node := resizeNode()
			if rejection := admission.Check(pod, admission.Node{Object: node, Allocatable: node.Status.Allocatable}, others); rejection != nil {
				return resize.Deferred(rejection.Message)
			}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	s.retry = func() {
		for range 2 { // a message may name what others used before they were resized in the same pass
			manager.RetryPendingResizes(allocation.TriggerPodUpdated)
		}
	}
	s.add = manager.AdmitPod
	s.update = func(before, after *v1.Pod) { manager.RequestResize(before, after) }
	s.remove = func(uid types.UID) { manager.RemovePod(podid.UID(uid)) }
	s.allocated = func(pod *v1.Pod) *v1.Pod { allocated, _ := manager.AllocatedPod(pod); return allocated }
	s.conditions = func(uid types.UID) []v1.PodCondition { return manager.ResizeState(podid.UID(uid)).Conditions() }
	return s
}

// play returns what the side says after each request.
func (s *resizeSide) play(history resizeHistory) (lines []string) {
	for i := range resizePods {
		pod := sizedPod(i, 200, 200, 1)
		s.add(pod)
		s.pods[pod.UID] = pod
	}
	for i, request := range history.Requests {
		after := sizedPod(request.Pod, request.CPU, request.Memory, int64(i+2))
		before, found := s.pods[after.UID]
		switch {
		case !found:
			continue
		case request.Remove:
			delete(s.pods, after.UID)
			s.remove(after.UID)
		default:
			s.pods[after.UID] = after
			s.update(before, after)
		}
		s.retry()
		lines = append(lines, s.describe(i)...)
	}
	return lines
}

func (s *resizeSide) describe(step int) (lines []string) {
	slices.Sort(s.events)
	for _, event := range s.events {
		lines = append(lines, fmt.Sprintf("%d: event %s", step, event))
	}
	s.events = nil
	for i := range resizePods {
		pod, found := s.pods[types.UID(fmt.Sprint("pod-", i))]
		if !found {
			continue
		}
		requests := s.allocated(pod).Spec.Containers[0].Resources.Requests
		lines = append(lines, fmt.Sprintf("%d: %s has %s %s", step, pod.Name, requests.Cpu(), requests.Memory()))
		for _, condition := range s.conditions(pod.UID) {
			lines = append(lines, fmt.Sprintf("%d: %s %s %s %q %d", step, pod.Name, condition.Type, condition.Reason, condition.Message, condition.ObservedGeneration))
		}
	}
	return lines
}

func generateResizes(g *generator) resizeHistory {
	var history resizeHistory
	for range 1 + g.IntN(8) {
		history.Requests = append(history.Requests, resizeRequest{
			Pod: g.IntN(resizePods), CPU: 200 + 50*int64(g.IntN(8)), Memory: 200 + 50*int64(g.IntN(8)), Remove: g.chance(10),
		})
	}
	return history
}

// Random resizes of pods that compete for a node: who gets what, conditions and events are the kubelet's.
func TestRSZ7_SameResizes(t *testing.T) {
	klog.SetLogger(logr.Discard()) // the kubelet logs each refusal
	defer klog.ClearLogger()
	newComparison(generateResizes, func(history resizeHistory) string {
		if diff := cmp.Diff(newKubeletSide().play(history), newHeraldSide().play(history)); diff != "" {
			return "kubelet (-), Herald (+):\n" + diff
		}
		return ""
	}).run(t)
}

package status_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

func TestMain(m *testing.M) {
	// client-go's error handlers remember the time of the last error for the whole process. The clocks of two bubbles
	// differ, and a Reflector would sleep for years.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

const nodeName = "n1"

// harness is a running Manager with a real client on an in-memory API server. A watch feeds its Pod Manager.
type harness struct {
	*status.Manager
	t           *testing.T
	server      *heraldtest.APIServer
	faults      *fault.Injector
	pods        *pod.Manager
	deletion    *fakeDeletionSafety
	allocations *allocation.Manager
	client      *kubeapi.Client
	transport   switchableTransport
	// wantRunError is set by a test that broke what Run needs at its end.
	wantRunError  bool
	skipReconcile atomic.Bool // update the Pod Manager without a call of Reconcile
	stop          func()      // stops Run and waits for it
}

// withHarness runs the test in a bubble with a running harness.
func withHarness(t *testing.T, configure func(*status.Config), test func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, heraldtest.NewAPIServer(), configure)
		defer h.stop()
		test(t, h)
	})
}

// newHarness starts a manager and a watch on the server. It must be called in a bubble.
func newHarness(t *testing.T, server *heraldtest.APIServer, configure func(*status.Config)) *harness {
	t.Helper()
	h := &harness{t: t, server: server, faults: fault.NewInjector(), pods: pod.NewManager(), deletion: newFakeDeletionSafety()}
	rest := server.Config()
	h.transport.Store(server)
	rest.Transport = h.faults.Wrap(&h.transport)
	var err error
	if h.client, err = kubeapi.New(rest); err != nil {
		t.Fatal(err)
	}
	if h.allocations, err = allocation.New(allocation.Config{}); err != nil {
		t.Fatal(err)
	}
	config := status.Config{API: h.client, Pods: h.pods, Deletion: h.deletion, Allocations: h.allocations}
	if configure != nil {
		configure(&config)
	}
	if h.Manager, err = status.New(config); err != nil {
		t.Fatal(err)
	}
	h.run()
	return h
}

// switchableTransport sends requests to an API server that a test may replace.
type switchableTransport struct {
	atomic.Pointer[heraldtest.APIServer]
}

func (s *switchableTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return s.Load().Transport().RoundTrip(r)
}

// restart stops the manager and starts another one that knows only what the API server has.
func (h *harness) restart(configure func(*status.Config)) *harness {
	h.t.Helper()
	h.stop()
	return newHarness(h.t, h.server, configure)
}

func (h *harness) run() {
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	watch := cache.NewReflectorWithOptions(h.client.PodsOnNode(nodeName), &v1.Pod{}, &podStore{h}, cache.ReflectorOptions{})
	running.Go(func() { watch.RunWithContext(ctx) })
	running.Go(func() {
		if err := h.Run(ctx); (err != nil) != h.wantRunError {
			h.t.Errorf("Run: got error %v, want one: %v", err, h.wantRunError)
		}
	})
	h.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	synctest.Wait()
}

// podStore passes what the watch delivers to the Pod Manager and to Reconcile, as the agent does.
type podStore struct{ h *harness }

func (s *podStore) Add(object any) error {
	p := object.(*v1.Pod)
	s.h.pods.AddPod(p)
	if !s.h.skipReconcile.Load() {
		s.h.Reconcile(p)
	}
	return nil
}

func (s *podStore) Update(object any) error { return s.Add(object) }

func (s *podStore) Delete(object any) error {
	s.h.pods.RemovePod(object.(*v1.Pod))
	return nil
}

func (s *podStore) Replace(objects []any, _ string) error {
	pods, mirrors, _ := s.h.pods.GetPodsAndMirrorPods()
	for _, p := range append(pods, mirrors...) {
		if !podid.IsStatic(p) {
			s.h.pods.RemovePod(p)
		}
	}
	for _, object := range objects {
		_ = s.Add(object)
	}
	return nil
}

func (s *podStore) Resync() error { return nil }

// fakeDeletionSafety implements status.DeletionSafety. Pods hold nothing on the node unless a test says so.
type fakeDeletionSafety struct {
	mu       sync.Mutex // guards all below
	couldRun map[podid.UID]bool
	holds    map[podid.UID]bool
}

func newFakeDeletionSafety() *fakeDeletionSafety {
	return &fakeDeletionSafety{couldRun: map[podid.UID]bool{}, holds: map[podid.UID]bool{}}
}

func (f *fakeDeletionSafety) PodCouldHaveRunningContainers(uid podid.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.couldRun[uid]
}

func (f *fakeDeletionSafety) PodResourcesAreReclaimed(pod *v1.Pod, _ *v1.PodStatus) bool {
	return !f.holdsResources(pod.UID)
}

func (f *fakeDeletionSafety) holdsResources(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holds[podid.UID(uid)]
}

func (f *fakeDeletionSafety) setCouldRun(uid types.UID, couldRun bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.couldRun[podid.UID(uid)] = couldRun
}

func (f *fakeDeletionSafety) setHoldsResources(uid types.UID, holds bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds[podid.UID(uid)] = holds
}

// withLog collects the log in the builder.
func withLog(log *strings.Builder) func(*status.Config) {
	return func(c *status.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) }
}

// withMetrics registers the metrics with the registry.
func withMetrics(registry *prometheus.Registry) func(*status.Config) {
	return func(c *status.Config) { c.Metrics = registry }
}

// withState stores the checkpoint in dir, for one manager.
func withState(t *testing.T, dir string, configure ...func(*status.Config)) func(*status.Config) {
	t.Helper()
	state, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *status.Config) {
		c.State = state
		for _, change := range configure {
			change(c)
		}
		t.Cleanup(func() { state.Close() })
	}
}

func withOneWorker(c *status.Config) { c.Workers = 1 }

func withoutAPI(c *status.Config) { c.API, c.Deletion = nil, nil }

// addPod creates a pod on this node and waits until the Pod Manager has it.
func (h *harness) addPod(name string, mutate ...func(*v1.Pod)) *v1.Pod {
	h.t.Helper()
	created := h.server.AddPod(heraldtest.NewPod(name, append([]func(*v1.Pod){inShop}, mutate...)...))
	synctest.Wait()
	return h.watchedPod(created)
}

// inShop makes the pod one of this node, in namespace shop and with one container named web. The API server sets its UID.
func inShop(p *v1.Pod) {
	p.Namespace, p.UID, p.Spec.NodeName = "shop", "", nodeName
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "web"}}
}

func withReadinessProbe(p *v1.Pod) { p.Spec.Containers[0].ReadinessProbe = &v1.Probe{} }

func withRestartPolicyNever(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }

// addPods creates that many pods on this node.
func (h *harness) addPods(count int) []*v1.Pod {
	h.t.Helper()
	var pods []*v1.Pod
	for i := range count {
		pods = append(pods, h.addPod(fmt.Sprintf("web-%03d", i)))
	}
	return pods
}

// addDeletedPod creates a running pod and requests its deletion.
func (h *harness) addDeletedPod(name string) *v1.Pod {
	h.t.Helper()
	p := h.addPod(name)
	h.SetPodStatus(p, runningStatus())
	synctest.Wait()
	h.server.DeletePod(podid.FullNameOf(p), 30)
	synctest.Wait()
	return h.watchedPod(p)
}

// addStaticPod adds a static pod to the Pod Manager and its mirror pod to the API server.
func (h *harness) addStaticPod(name string) (static, mirror *v1.Pod) {
	h.t.Helper()
	static = newStaticPod(name)
	h.pods.AddPod(static)
	return static, h.addMirror(static)
}

func newStaticPod(name string) *v1.Pod {
	return heraldtest.NewPod(name, inShop, func(p *v1.Pod) {
		p.UID, p.Spec.NodeName, p.Spec.Containers[0].Image = types.UID("static-"+name), "", ""
		p.Annotations = map[string]string{podid.SourceAnnotation: string(podid.File), podid.HashAnnotation: "h"}
	})
}

// addMirror creates a mirror pod of the static pod in the API server.
func (h *harness) addMirror(static *v1.Pod) *v1.Pod {
	h.t.Helper()
	created := h.server.AddPod(newMirrorPod(static))
	synctest.Wait()
	return created
}

// newMirrorPod returns the mirror pod that the mirror client creates for a static pod.
func newMirrorPod(static *v1.Pod) *v1.Pod {
	mirror := static.DeepCopy()
	mirror.UID, mirror.Spec.NodeName = "", nodeName
	mirror.Annotations = map[string]string{podid.MirrorAnnotation: static.Annotations[podid.HashAnnotation]}
	return mirror
}

// recreated returns a new pod with the name and spec of another.
func recreated(p *v1.Pod) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Spec: *p.Spec.DeepCopy()}
}

// watchedPod returns the Pod Manager's copy of the pod.
func (h *harness) watchedPod(p *v1.Pod) *v1.Pod {
	h.t.Helper()
	watched, found := h.pods.GetPodByUID(podid.UID(p.UID))
	if !found {
		h.t.Fatalf("pod %s is not in the Pod Manager", p.Name)
	}
	return watched
}

// apiStatus returns the pod's status in the API server once the bubble is idle.
func (h *harness) apiStatus(p *v1.Pod) v1.PodStatus {
	h.t.Helper()
	synctest.Wait()
	object := h.server.Pod(podid.FullNameOf(p))
	if object == nil {
		h.t.Fatalf("pod %s is not in the API server", p.Name)
	}
	return object.Status
}

// isDeleted reports whether the pod is gone from the API server once the bubble is idle.
func (h *harness) isDeleted(p *v1.Pod) bool {
	synctest.Wait()
	object := h.server.Pod(podid.FullNameOf(p))
	return object == nil || object.UID != p.UID
}

// countRequests returns the number of requests of a verb since the last h.faults.Forget.
func (h *harness) countRequests(verb string) int {
	synctest.Wait()
	return len(h.faults.Requests().Filter(verb, "/pods"))
}

// patchedNames returns the names of the pods that were patched since the last h.faults.Forget, in order.
func (h *harness) patchedNames() []string {
	synctest.Wait()
	var names []string
	for _, request := range h.faults.Requests().Filter("PATCH", "/pods/") {
		names = append(names, path.Base(path.Dir(request.Path)))
	}
	return names
}

// collectChanges subscribes to changes. The returned function returns those that came so far.
func collectChanges(t *testing.T, h *harness) func() []status.Change {
	t.Helper()
	var mu sync.Mutex
	var collected []status.Change
	changes := h.Changes(t.Context())
	go func() {
		for change := range changes {
			mu.Lock()
			collected = append(collected, change)
			mu.Unlock()
		}
	}()
	return func() []status.Change {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return append([]status.Change(nil), collected...)
	}
}

// runningStatus returns the status of a pod whose one container is running and ready.
func runningStatus() v1.PodStatus {
	since := metav1.NewTime(time.Now().Truncate(time.Second))
	return v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.0.0.7", PodIPs: []v1.PodIP{{IP: "10.0.0.7"}},
		Conditions: []v1.PodCondition{
			{Type: v1.PodInitialized, Status: v1.ConditionTrue},
			{Type: v1.PodReady, Status: v1.ConditionTrue},
			{Type: v1.ContainersReady, Status: v1.ConditionTrue},
			{Type: v1.PodScheduled, Status: v1.ConditionTrue},
		},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "web", Image: "web", ContainerID: "test://1", Ready: true, Started: new(true),
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: since}},
		}},
	}
}

// runningWithReason returns a running status with a reason that tells one change from another.
func runningWithReason(format string, args ...any) v1.PodStatus {
	running := runningStatus()
	running.Reason = fmt.Sprintf(format, args...)
	return running
}

// runningWithMessage returns a running status with a message.
func runningWithMessage(message string) v1.PodStatus {
	running := runningStatus()
	running.Message = message
	return running
}

// unreadyStatus returns the status of a pod whose one container is running and not ready.
func unreadyStatus() v1.PodStatus {
	unready := runningStatus()
	unready.ContainerStatuses[0].Ready = false
	setReadyConditions(&unready, "ContainersNotReady")
	return unready
}

// succeededStatus returns the status of a pod whose one container completed.
func succeededStatus() v1.PodStatus {
	succeeded := runningStatus()
	succeeded.Phase = v1.PodSucceeded
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	succeeded.ContainerStatuses[0].Ready = false
	succeeded.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: "test://1",
	}}
	setReadyConditions(&succeeded, "PodCompleted")
	return succeeded
}

// setReadyConditions sets Ready and ContainersReady to False.
func setReadyConditions(podStatus *v1.PodStatus, reason string) {
	for i := range podStatus.Conditions {
		condition := &podStatus.Conditions[i]
		if condition.Type == v1.PodReady || condition.Type == v1.ContainersReady {
			condition.Status, condition.Reason = v1.ConditionFalse, reason
		}
	}
}

func conditionOf(podStatus v1.PodStatus, conditionType v1.PodConditionType) v1.PodCondition {
	for _, condition := range podStatus.Conditions {
		if condition.Type == conditionType {
			return condition
		}
	}
	return v1.PodCondition{}
}

func containerID(id string) observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: id}
}

// wantPhase fails the test unless the pod has the phase in the API server.
func (h *harness) wantPhase(p *v1.Pod, want v1.PodPhase) {
	h.t.Helper()
	if got := h.apiStatus(p).Phase; got != want {
		h.t.Fatalf("%s: got phase %s, want %s", p.Name, got, want)
	}
}

// wantReason fails the test unless the pod has the reason in the API server.
func (h *harness) wantReason(p *v1.Pod, want string) {
	h.t.Helper()
	if got := h.apiStatus(p).Reason; got != want {
		h.t.Fatalf("%s: got reason %q, want %q", p.Name, got, want)
	}
}

// wantRequests fails the test unless there were that many requests of the verb since the last h.faults.Forget.
func (h *harness) wantRequests(verb string, want int) {
	h.t.Helper()
	if got := h.countRequests(verb); got != want {
		h.t.Fatalf("got %d %s requests, want %d", got, verb, want)
	}
}

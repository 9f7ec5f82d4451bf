package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

// statusHarness runs the API source, the Pod Manager and the Status Manager with the permissions of a node, and records what they
// do. The test decides what runs on the node.
type statusHarness struct {
	*recorder.Recorder
	*status.Manager
	t        *testing.T
	pods     *pod.Manager
	faults   *fault.Injector // between the node and the API server
	requests *fault.Injector // without faults: the requests as the node sees them
	proxy    *controlplane.Proxy
}

// nothingRuns implements status.DeletionSafety for a node without containers.
type nothingRuns struct{}

func (nothingRuns) PodCouldHaveRunningContainers(podid.UID) bool             { return false }
func (nothingRuns) PodResourcesAreReclaimed(_ *v1.Pod, _ *v1.PodStatus) bool { return true }

// newStatusHarness starts a harness that injects faults in the node's transport.
func newStatusHarness(t *testing.T, nodeName string) *statusHarness {
	t.Helper()
	h := createStatusHarness(t, cluster, nodeName)
	config := cluster.NodeConfig(nodeName)
	config.Wrap(h.faults.Wrap)
	h.start(config, status.Config{})
	return h
}

// newProxyHarness starts a harness that injects faults in a proxy between the node and the API server. Pod names must be unique
// within the test: they identify requests.
func newProxyHarness(t *testing.T, on *recorder.Cluster, nodeName string, config status.Config) *statusHarness {
	t.Helper()
	h := createStatusHarness(t, on, nodeName)
	var err error
	if h.proxy, err = on.NewProxy(h.faults); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.proxy.Close()
		h.checkConcurrency()
	})
	h.start(h.proxy.NodeConfig(nodeName), config)
	return h
}

func createStatusHarness(t *testing.T, on *recorder.Cluster, nodeName string) *statusHarness {
	t.Helper()
	if _, err := on.CreateNode(t.Context(), nodeName); err != nil {
		t.Fatal(err)
	}
	return &statusHarness{
		Recorder: recorder.Record(t, on, nodeName, ""), t: t, pods: pod.NewManager(),
		faults: fault.NewInjector(), requests: fault.NewInjector(),
	}
}

// start runs the components until the test ends.
func (h *statusHarness) start(clientConfig *rest.Config, config status.Config) {
	h.t.Helper()
	clientConfig.Wrap(h.requests.Wrap)
	client, err := kubeapi.New(clientConfig)
	if err != nil {
		h.t.Fatal(err)
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: client.PodsOnNode(h.NodeName), NodeName: h.NodeName})
	if err != nil {
		h.t.Fatal(err)
	}
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{api}})
	if err != nil {
		h.t.Fatal(err)
	}
	config.API, config.Pods, config.Deletion = client, h.pods, nothingRuns{}
	if h.Manager, err = status.New(config); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = mux.Run(ctx) })
	running.Go(func() { _ = h.Run(ctx) })
	running.Go(func() { h.consume(mux) })
	h.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (h *statusHarness) consume(mux *source.Mux) {
	for update := range mux.Updates() {
		for _, p := range update.Pods {
			if update.Op == source.OpRemove {
				h.pods.RemovePod(p)
				continue
			}
			h.pods.UpdatePod(p)
			h.Reconcile(p)
		}
		update.Ack()
	}
}

// maxInFlight is the default number of concurrent requests of a Status Manager.
const maxInFlight = 16

// checkConcurrency fails the test if requests for one pod overlapped (I8), or if too many requests were in flight.
func (h *statusHarness) checkConcurrency() {
	trace := h.requests.Requests().Filter("*", "/pods/.+")
	if got := trace.MaxInFlight(); got > maxInFlight {
		h.t.Errorf("got %d requests in flight, want at most %d", got, maxInFlight)
	}
	for path, requests := range byPod(trace) {
		if got := requests.MaxInFlight(); got > 1 {
			h.t.Errorf("I8: %s: got %d requests in flight, want at most one", path, got)
		}
	}
}

// byPod groups requests by the path of the pod.
func byPod(trace fault.Trace) map[string]fault.Trace {
	pods := map[string]fault.Trace{}
	for _, request := range trace {
		path := strings.TrimSuffix(request.Path, "/status")
		pods[path] = append(pods[path], request)
	}
	return pods
}

// addPod creates a pod that is bound to this node, and waits until the node knows it.
func (h *statusHarness) addPod(name string, mutate ...func(*v1.Pod)) *v1.Pod {
	h.t.Helper()
	return h.awaitKnown(createPod(h.t, h.Admin, newPod(name, h.NodeName, mutate...)).UID)
}

// addPods adds n pods with the node's name and a number.
func (h *statusHarness) addPods(n int) (pods []*v1.Pod) {
	h.t.Helper()
	for i := range n {
		pods = append(pods, h.addPod(fmt.Sprintf("%s-%d", h.NodeName, i)))
	}
	return pods
}

// awaitKnown waits until the Pod Manager knows the pod, and returns it.
func (h *statusHarness) awaitKnown(uid types.UID) *v1.Pod {
	h.t.Helper()
	var found *v1.Pod
	heraldtest.Eventually(h.t, func() error {
		var known bool
		if found, known = h.pods.GetPodByUID(podid.UID(uid)); !known {
			return fmt.Errorf("pod with UID %s is not known", uid)
		}
		return nil
	})
	return found
}

// patchForeignStatus patches the pod's status as another writer. The number identifies the write.
func (h *statusHarness) patchForeignStatus(name string, number int, status string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}},"status":%s}`, recorder.ForeignWriteAnnotation, number, status)
	return h.patchForeign(name, patch, "status")
}

// patchForeignLabel sets a label of the pod as another writer. The number identifies the write.
func (h *statusHarness) patchForeignLabel(name string, number int, key, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"},"labels":{%q:%q}}}`, recorder.ForeignWriteAnnotation, number, key, value)
	return h.patchForeign(name, patch)
}

func (h *statusHarness) patchForeign(name, patch string, subresources ...string) error {
	_, err := h.Admin.CoreV1().Pods("default").Patch(
		h.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// runningStatus returns the status of a pod with a running container.
func runningStatus(ready v1.ConditionStatus) v1.PodStatus {
	started := true
	return v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.9.0.7", PodIPs: []v1.PodIP{{IP: "10.9.0.7"}},
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}, {Type: v1.ContainersReady, Status: ready}},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", Image: "web", ImageID: "web", ContainerID: "test://1", Started: &started, Ready: ready == v1.ConditionTrue,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Truncate(time.Second))}},
		}},
	}
}

// restartedStatus returns the status of a pod whose container was restarted n times.
func restartedStatus(p *v1.Pod, n int) v1.PodStatus {
	status := runningStatus(map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[n%2 == 0])
	status.Message = recorder.NumberedMessage(n, p.UID)
	status.ContainerStatuses[0].RestartCount = int32(n)
	return status
}

// hasRestarted reports whether the pod shows the result of restartedStatus.
func hasRestarted(n int) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		return p.Status.Message == recorder.NumberedMessage(n, p.UID) && len(p.Status.ContainerStatuses) == 1 &&
			int(p.Status.ContainerStatuses[0].RestartCount) == n
	}
}

func isRunning(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning }

func isReady(p *v1.Pod) bool {
	return recorder.PodCondition(&p.Status, v1.PodReady).Status == v1.ConditionTrue
}

// Each change takes one request.
func TestBUG2_OneRequestPerChange(t *testing.T) {
	h := newStatusHarness(t, "web")
	p := h.addPod("web")
	h.faults.ClearRequests()
	h.SetPodStatus(p, runningStatus(v1.ConditionFalse))
	h.Await("web", "running", func(p *v1.Pod) bool { return isRunning(p) && !isReady(p) })
	h.SetPodStatus(p, runningStatus(v1.ConditionTrue))
	h.Await("web", "ready", isReady)
	if got := kubectl(t, "get", "pod", "web", "--no-headers"); !strings.HasPrefix(got, "web   1/1   Running") {
		t.Fatalf("kubectl get pod: got %q", got)
	}
	kubectl(t, "delete", "pod", "web", "--wait=false")
	heraldtest.Eventually(t, func() error {
		if h.awaitKnown(p.UID).DeletionTimestamp == nil {
			return errors.New("the node does not know the deletion")
		}
		return nil
	})
	h.TerminatePod(h.awaitKnown(p.UID))
	h.AwaitDeleted("web")
	trace := h.faults.Requests()
	patches, gets := len(trace.Filter("PATCH", "/pods/web/status")), len(trace.Filter("get", "/pods/web"))
	if patches != 3 || gets != 0 {
		t.Fatalf("got %d patches and %d gets for three changes, want 3 and 0", patches, gets)
	}
}

func TestI7_ForeignFieldsSurvive(t *testing.T) {
	h := newStatusHarness(t, "foreign")
	p := h.addPod("foreign", withGate)
	if err := h.patchForeignStatus("foreign", 1, `{"conditions":[{"type":"example.com/gate","status":"True","reason":"Theirs"}]}`); err != nil {
		t.Fatal(err)
	}
	if err := h.patchForeignLabel("foreign", 2, "team", "shop"); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		h.SetPodStatus(p, restartedStatus(p, i))
	}
	got := h.Await("foreign", "with its last status", hasRestarted(1999))
	condition := recorder.PodCondition(&got.Status, gate)
	if got.Labels["team"] != "shop" || condition.Status != v1.ConditionTrue || condition.Reason != "Theirs" {
		t.Fatalf("got labels %v, gate %+v; want the foreign ones", got.Labels, condition)
	}
}

func TestF31_ForeignPhaseCorrected(t *testing.T) {
	h := newStatusHarness(t, "drift")
	p := h.addPod("drift")
	h.SetPodStatus(p, runningStatus(v1.ConditionTrue))
	h.Await("drift", "ready", isReady)
	if err := h.patchForeignStatus("drift", 1, `{"phase":"Pending"}`); err != nil {
		t.Fatal(err)
	}
	h.Await("drift", "with the foreign write", func(p *v1.Pod) bool { return p.Annotations[recorder.ForeignWriteAnnotation] == "1" })
	h.Await("drift", "running again", isRunning)
}

// A recreated pod never shows the status of its predecessor: I9.
func TestF13_PodRecreated(t *testing.T) {
	h := newStatusHarness(t, "recreated")
	for range 20 {
		p := h.addPod("recreated")
		h.SetPodStatus(p, restartedStatus(p, 1)) // may still be in flight when the pod is deleted
		if err := h.Admin.CoreV1().Pods("default").Delete(t.Context(), "recreated", forceDelete()); err != nil {
			t.Fatal(err)
		}
	}
}

// After an outage of the API server, every pod shows its newest status.
func TestF1_APIServerKilled(t *testing.T) {
	h := newStatusHarness(t, "after")
	pods := h.addPods(20)
	for _, p := range pods {
		h.SetPodStatus(p, restartedStatus(p, 0))
	}
	h.faults.ClearRequests()
	start := time.Now()
	if err := cluster.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		for _, p := range pods {
			h.SetPodStatus(p, restartedStatus(p, 1+round))
		}
	}
	if err := cluster.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		h.Await(p.Name, "with its newest status", hasRestarted(5))
	}
	const extra = 3 // one in flight at the kill, one woken by the end of the outage, one that succeeded
	for path, requests := range h.faults.Requests().Filter("PATCH", "/pods/").ByPath() {
		if limit := extra + backoffAttempts(time.Since(start)); len(requests) > limit {
			t.Errorf("%s: got %d requests, want at most %d", path, len(requests), limit)
		}
	}
}

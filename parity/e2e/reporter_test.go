package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

// reporter is the status half of an agent: a watch that feeds the address book, and the Status Manager, with a node's own
// rights, and the recorder that watches it. What runs on the node is what the test says.
type reporter struct {
	*recorder.Recorder
	*status.Manager
	t      *testing.T
	book   *pod.Manager
	faults *fault.Injector // between the node and the API server
	asked  *fault.Injector // without faults: what the node asked for and was told
	proxy  *controlplane.Proxy
}

// released is a node on which nothing ever runs or is held.
type released struct{}

func (released) PodCouldHaveRunningContainers(podid.UID) bool             { return false }
func (released) PodResourcesAreReclaimed(_ *v1.Pod, _ *v1.PodStatus) bool { return true }

// openReporter starts a reporter whose faults are in its own transport.
func openReporter(t *testing.T, node string) *reporter {
	t.Helper()
	r := newReporter(t, cluster, node)
	config := cluster.NodeConfig(node)
	config.Wrap(r.faults.Wrap)
	r.start(config, status.Config{})
	return r
}

// openBehindProxy starts a reporter with a proxy between it and the API server, which has the faults. No two pods of the
// test's have one name: requests are known by it.
func openBehindProxy(t *testing.T, on *recorder.Cluster, node string, settings status.Config) *reporter {
	t.Helper()
	r := newReporter(t, on, node)
	var err error
	if r.proxy, err = on.NewProxy(r.faults); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.proxy.Close()
		r.mustHaveKeptOrder()
	})
	r.start(r.proxy.NodeConfig(node), settings)
	return r
}

func newReporter(t *testing.T, on *recorder.Cluster, node string) *reporter {
	t.Helper()
	if _, err := on.CreateNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return &reporter{
		Recorder: recorder.Record(t, on, node, ""), t: t, book: pod.NewManager(), faults: fault.NewInjector(), asked: fault.NewInjector(),
	}
}

// start runs the reporter until the test ends, with what the settings say and defaults for the rest.
func (r *reporter) start(config *rest.Config, settings status.Config) {
	r.t.Helper()
	config.Wrap(r.asked.Wrap)
	client, err := kubeapi.New(config)
	if err != nil {
		r.t.Fatal(err)
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: client.PodsOnNode(r.NodeName), NodeName: r.NodeName})
	if err != nil {
		r.t.Fatal(err)
	}
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{api}})
	if err != nil {
		r.t.Fatal(err)
	}
	settings.API, settings.Pods, settings.Deletion = client, r.book, released{}
	if r.Manager, err = status.New(settings); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = mux.Run(ctx) })
	all.Go(func() { _ = r.Run(ctx) })
	all.Go(func() { r.consume(mux) })
	r.t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// workers is how many requests a Status Manager has in flight by default.
const workers = 16

// mustHaveKeptOrder fails the test if requests for one pod overlapped (I8), or too many for all.
func (r *reporter) mustHaveKeptOrder() {
	trace := r.asked.Requests().Filter("*", "/pods/.+")
	if most := trace.MaxInFlight(); most > workers {
		r.t.Errorf("%d requests were in flight at once", most)
	}
	for name, requests := range byPod(trace) {
		if most := requests.MaxInFlight(); most > 1 {
			r.t.Errorf("I8: %d requests for %s were in flight at once", most, name)
		}
	}
}

// byPod sorts requests by the pod's path.
func byPod(trace fault.Trace) map[string]fault.Trace {
	pods := map[string]fault.Trace{}
	for _, request := range trace {
		name := strings.TrimSuffix(request.Path, "/status")
		pods[name] = append(pods[name], request)
	}
	return pods
}

func (r *reporter) consume(mux *source.Mux) {
	for update := range mux.Updates() {
		for _, p := range update.Pods {
			if update.Op == source.OpRemove {
				r.book.RemovePod(p)
				continue
			}
			r.book.UpdatePod(p)
			r.Reconcile(p)
		}
		update.Ack()
	}
}

// bind creates a pod that is bound to this node, as a scheduler would, and waits until the node knows it.
func (r *reporter) bind(name string, gates ...v1.PodReadinessGate) *v1.Pod {
	r.t.Helper()
	return r.known(createPod(r.t, r.Admin, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{NodeName: r.NodeName, ReadinessGates: gates, Containers: []v1.Container{{Name: "main", Image: "web"}}},
	}).UID)
}

// bindMany binds n pods with names of the node's.
func (r *reporter) bindMany(n int) (pods []*v1.Pod) {
	r.t.Helper()
	for i := range n {
		pods = append(pods, r.bind(fmt.Sprintf("%s-%d", r.NodeName, i)))
	}
	return pods
}

// createPod creates a pod as the administrator, and removes it when the test ends.
func createPod(t *testing.T, as kubernetes.Interface, wanted *v1.Pod) *v1.Pod {
	t.Helper()
	created, err := as.CoreV1().Pods("default").Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		options := atOnce()
		options.Preconditions = &metav1.Preconditions{UID: &created.UID}
		_ = as.CoreV1().Pods("default").Delete(context.WithoutCancel(t.Context()), created.Name, options) // it may be gone
	})
	return created
}

// atOnce deletes by force.
func atOnce() metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: new(int64)} }

func (r *reporter) known(uid types.UID) *v1.Pod {
	r.t.Helper()
	var found *v1.Pod
	recorder.Eventually(r.t, "the pod on its node", func() (string, bool) {
		var is bool
		found, is = r.book.GetPodByUID(podid.UID(uid))
		return "unknown", is
	})
	return found
}

// foreignStatus is somebody else's write to the pod's status, a strategic merge patch. It is marked with its number.
func (r *reporter) foreignStatus(name string, number int, status string) error {
	return r.foreignWrite(name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}},"status":%s}`, recorder.ForeignWriteAnnotation, number, status), "status")
}

// foreignLabel is somebody else's label on the pod. It is marked with its number.
func (r *reporter) foreignLabel(name string, number int, key, value string) error {
	return r.foreignWrite(name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"},"labels":{%q:%q}}}`, recorder.ForeignWriteAnnotation, number, key, value))
}

func (r *reporter) foreignWrite(name, patch string, subresources ...string) error {
	_, err := r.Admin.CoreV1().Pods("default").Patch(
		r.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

func running(ready v1.ConditionStatus) v1.PodStatus {
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

// restarted is the status of a pod whose container runs for the n-th time.
func restarted(p *v1.Pod, n int) v1.PodStatus {
	s := running(map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[n%2 == 0])
	s.Message = recorder.NumberedMessage(n, p.UID)
	s.ContainerStatuses[0].RestartCount = int32(n)
	return s
}

func isReady(p *v1.Pod) bool {
	return recorder.PodCondition(&p.Status, v1.PodReady).Status == v1.ConditionTrue
}

// hasRestarted tells whether the pod shows the status that restarted made.
func hasRestarted(n int) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		return p.Status.Message == recorder.NumberedMessage(n, p.UID) && len(p.Status.ContainerStatuses) == 1 && int(p.Status.ContainerStatuses[0].RestartCount) == n
	}
}

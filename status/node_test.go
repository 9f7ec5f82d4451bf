package status_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

func TestMain(m *testing.M) {
	// client-go's handlers remember the time of the last error for the whole process; the clocks of two bubbles differ, and
	// a Reflector would sleep for years.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

const nodeName = "n1"

// node is a manager at work: a real client on an API server in memory, with the watch feeding the address book.
type node struct {
	*status.Manager
	t           *testing.T
	server      *heraldtest.APIServer
	faults      *fault.Script
	book        *pod.Manager
	cleanup     *cleanup
	allocations *allocation.Manager
	client      *kubeapi.Client
	line        line
	// failsToStop is for a test that broke what Run needs at its end.
	failsToStop bool
	muted       atomic.Bool // the book is kept, but the manager is not told
	stop        func()      // ends Run and waits for it
}

// onNode runs the test in a bubble with a node at work.
func onNode(t *testing.T, change func(*status.Config), test func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, heraldtest.NewAPIServer(), change)
		defer n.stop()
		test(t, n)
	})
}

// newNode starts a manager and a watch on the server. It must be called in a bubble.
func newNode(t *testing.T, server *heraldtest.APIServer, change func(*status.Config)) *node {
	t.Helper()
	n := &node{t: t, server: server, faults: fault.NewScript(), book: pod.NewManager(), cleanup: newCleanup()}
	rest := server.Config()
	n.line.Store(server)
	rest.Transport = n.faults.Wrap(&n.line)
	var err error
	if n.client, err = kubeapi.New(rest); err != nil {
		t.Fatal(err)
	}
	if n.allocations, err = allocation.New(allocation.Config{}); err != nil {
		t.Fatal(err)
	}
	config := status.Config{API: n.client, Pods: n.book, Deletion: n.cleanup, Allocations: n.allocations}
	if change != nil {
		change(&config)
	}
	if n.Manager, err = status.New(config); err != nil {
		t.Fatal(err)
	}
	n.run()
	return n
}

// line leads to the API server, and can be switched to another one.
type line struct {
	atomic.Pointer[heraldtest.APIServer]
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.Load().Transport().RoundTrip(r)
}

// restarted ends this agent in good order and starts another, which knows what the API server knows.
func (n *node) restarted(change func(*status.Config)) *node {
	n.t.Helper()
	n.stop()
	return newNode(n.t, n.server, change)
}

func (n *node) run() {
	ctx, cancel := context.WithCancel(n.t.Context())
	var all sync.WaitGroup
	watch := cache.NewReflectorWithOptions(n.client.PodsOnNode(nodeName), &v1.Pod{}, &bookkeeper{n}, cache.ReflectorOptions{})
	all.Go(func() { watch.RunWithContext(ctx) })
	all.Go(func() {
		if err := n.Run(ctx); (err != nil) != n.failsToStop {
			n.t.Errorf("Run ended with %v", err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	synctest.Wait()
}

// bookkeeper puts what the watch shows into the address book, as the agent does.
type bookkeeper struct{ n *node }

func (b *bookkeeper) Add(object any) error {
	p := object.(*v1.Pod)
	b.n.book.AddPod(p)
	if !b.n.muted.Load() {
		b.n.Reconcile(p)
	}
	return nil
}

func (b *bookkeeper) Update(object any) error { return b.Add(object) }

func (b *bookkeeper) Delete(object any) error {
	b.n.book.RemovePod(object.(*v1.Pod))
	return nil
}

func (b *bookkeeper) Replace(objects []any, _ string) error {
	pods, mirrors, _ := b.n.book.GetPodsAndMirrorPods()
	for _, p := range append(pods, mirrors...) {
		if !podid.IsStatic(p) {
			b.n.book.RemovePod(p)
		}
	}
	for _, object := range objects {
		_ = b.Add(object)
	}
	return nil
}

func (b *bookkeeper) Resync() error { return nil }

// cleanup says what pods still hold on the node: nothing, unless a test says otherwise.
type cleanup struct {
	mu      sync.Mutex
	running map[podid.UID]bool
	held    map[podid.UID]bool
}

func newCleanup() *cleanup {
	return &cleanup{running: map[podid.UID]bool{}, held: map[podid.UID]bool{}}
}

func (c *cleanup) PodCouldHaveRunningContainers(uid podid.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[uid]
}

func (c *cleanup) PodResourcesAreReclaimed(pod *v1.Pod, _ *v1.PodStatus) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.held[podid.UID(pod.UID)]
}

func (c *cleanup) isHeld(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[podid.UID(uid)]
}

func (c *cleanup) setRunning(uid types.UID, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[podid.UID(uid)] = running
}

func (c *cleanup) setHeld(uid types.UID, held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[podid.UID(uid)] = held
}

// bound creates a pod on this node through the API server and waits until the address book has it.
func (n *node) bound(name string, edit ...func(*v1.Pod)) *v1.Pod {
	n.t.Helper()
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
		Spec:       v1.PodSpec{NodeName: nodeName, RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "web", Image: "web"}}},
	}
	for _, e := range edit {
		e(p)
	}
	created := n.server.AddPod(p)
	synctest.Wait()
	held, found := n.book.GetPodByUID(podid.UID(created.UID))
	if !found {
		n.t.Fatalf("pod %s did not reach the address book", name)
	}
	return held
}

// boundMany creates so many pods on this node.
func (n *node) boundMany(count int) []*v1.Pod {
	n.t.Helper()
	var pods []*v1.Pod
	for i := range count {
		pods = append(pods, n.bound(fmt.Sprintf("web-%03d", i)))
	}
	return pods
}

// mirrored adds a static pod to the address book and its mirror to the API server.
func (n *node) mirrored(name string) (static, mirror *v1.Pod) {
	n.t.Helper()
	static = staticPod(name)
	n.book.AddPod(static)
	return static, n.mirror(static)
}

func staticPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("static-" + name), Annotations: map[string]string{
			podid.SourceAnnotation: "file", podid.HashAnnotation: "h",
		}},
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "web"}}},
	}
}

// mirrorOf is what the mirror client creates for a static pod.
func mirrorOf(static *v1.Pod) *v1.Pod {
	p := static.DeepCopy()
	p.UID, p.Spec.NodeName = "", nodeName
	p.Annotations = map[string]string{podid.MirrorAnnotation: static.Annotations[podid.HashAnnotation]}
	return p
}

// mirror creates a mirror of the static pod in the API server.
func (n *node) mirror(static *v1.Pod) *v1.Pod {
	n.t.Helper()
	created := n.server.AddPod(mirrorOf(static))
	synctest.Wait()
	return created
}

// held is the address book's newest copy.
func (n *node) held(p *v1.Pod) *v1.Pod {
	n.t.Helper()
	held, found := n.book.GetPodByUID(podid.UID(p.UID))
	if !found {
		n.t.Fatalf("pod %s is not in the address book", p.Name)
	}
	return held
}

// shown is what the API server says of the pod, once all is quiet.
func (n *node) shown(p *v1.Pod) v1.PodStatus {
	n.t.Helper()
	synctest.Wait()
	object := n.server.Pod(podid.FullNameOf(p))
	if object == nil {
		n.t.Fatalf("pod %s is not in the API server", p.Name)
	}
	return object.Status
}

// writes counts the requests of a verb since the last call of n.faults.Forget.
func (n *node) writes(verb string) int {
	synctest.Wait()
	return len(n.faults.Requests().Of(verb, "/pods"))
}

// patched lists the pods that were patched since the last call of n.faults.Forget, in order.
func (n *node) patched() []string {
	synctest.Wait()
	var names []string
	for _, request := range n.faults.Requests().Of("PATCH", "/pods/") {
		names = append(names, path.Base(path.Dir(request.Path)))
	}
	return names
}

// runningStatus is the status of a pod whose one container runs and is ready.
func runningStatus() v1.PodStatus {
	started := true
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
			Name: "web", Image: "web", ContainerID: "test://1", Ready: true, Started: &started,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: since}},
		}},
	}
}

// succeededStatus is the status of a pod whose one container ended well.
func succeededStatus() v1.PodStatus {
	s := runningStatus()
	s.Phase = v1.PodSucceeded
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	s.ContainerStatuses[0].Ready = false
	s.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: "test://1",
	}}
	for i := range s.Conditions {
		if s.Conditions[i].Type == v1.PodReady || s.Conditions[i].Type == v1.ContainersReady {
			s.Conditions[i].Status, s.Conditions[i].Reason = v1.ConditionFalse, "PodCompleted"
		}
	}
	return s
}

func conditionOf(s v1.PodStatus, kind v1.PodConditionType) v1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.PodCondition{}
}

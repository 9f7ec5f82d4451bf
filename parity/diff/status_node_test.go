package diff_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// setters is what workers and probes tell a status manager.
type setters interface {
	SetPodStatus(pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool)
	TerminatePod(pod *v1.Pod)
	SetContainerReadiness(uid types.UID, container string, ready bool)
	SetContainerStartup(uid types.UID, container string, started bool)
	RemoveOrphanedStatuses(keep map[types.UID]bool)
}

// logbook is the kubelet's status manager or ours, with an address book of its own kind.
type logbook interface {
	setters
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// held lists the pods that the node should run, and the mirrors.
	held() (pods, mirrors []*v1.Pod)
	// saw puts what the watch shows into the address book and tells those who want to know.
	saw(pod *v1.Pod)
	removed(pod *v1.Pod)
}

// runtimes says which pods could have running containers, by the UID under which the node runs them.
type runtimes struct {
	mu      sync.Mutex // guards running
	running map[types.UID]bool
}

func newRuntimes() *runtimes { return &runtimes{running: map[types.UID]bool{}} }

func (r *runtimes) set(uid types.UID, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[uid] = running
}

func (r *runtimes) could(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[uid]
}

// theirLogbook is the kubelet's.
type theirLogbook struct {
	*kubelet.StatusManager
	book kubeletpod.Manager
}

type theirRuntimes struct{ *runtimes }

// PodCouldHaveRunningContainers answers as the kubelet's pod workers do: about the UID of the object that was read, which
// for a static pod is one that they never heard of (SM-69).
func (r theirRuntimes) PodCouldHaveRunningContainers(p *v1.Pod) bool { return r.could(p.UID) }

func (l *theirLogbook) held() (pods, mirrors []*v1.Pod) {
	pods, mirrors, _ = l.book.GetPodsAndMirrorPods()
	return pods, mirrors
}

func (l *theirLogbook) saw(p *v1.Pod) { l.book.UpdatePod(p) }

func (l *theirLogbook) removed(p *v1.Pod) { l.book.RemovePod(p) }

// ourLogbook is Herald's.
type ourLogbook struct {
	*status.Manager
	book *pod.Manager
}

type ourRuntimes struct{ *runtimes }

func (r ourRuntimes) PodCouldHaveRunningContainers(uid podid.UID) bool {
	return r.could(types.UID(uid))
}

func (r ourRuntimes) PodResourcesAreReclaimed(*v1.Pod, *v1.PodStatus) bool { return true }

func (l *ourLogbook) SetContainerReadiness(uid types.UID, container string, ready bool) {
	l.Manager.SetContainerReadiness(uid, observed.ParseContainerID(container), ready)
}

func (l *ourLogbook) SetContainerStartup(uid types.UID, container string, started bool) {
	l.Manager.SetContainerStartup(uid, observed.ParseContainerID(container), started)
}

func (l *ourLogbook) held() (pods, mirrors []*v1.Pod) {
	pods, mirrors, _ = l.book.GetPodsAndMirrorPods()
	return pods, mirrors
}

func (l *ourLogbook) saw(p *v1.Pod) {
	l.book.UpdatePod(p)
	l.Reconcile(p)
}

func (l *ourLogbook) removed(p *v1.Pod) { l.book.RemovePod(p) }

// reporter is a status manager at work on a node of a cluster, with a watch that feeds its address book.
type reporter struct {
	logbook
	name    string // of the node; its pods are in the namespace that is called so
	cluster cluster
	faults  *fault.Script
	could   *runtimes
	change  func(*status.Config) // of ours, before each start; nil for none
	start   func(ctx context.Context, config *rest.Config) (logbook, func(), error)
	stop    func()
}

// cluster is what users and controllers do to pods, and where a node's requests go.
type cluster interface {
	add(pod *v1.Pod) *v1.Pod
	pod(name string) *v1.Pod
	update(name string, edit func(*v1.Pod))
	remove(name string, grace int64)
	config() *rest.Config
}

// requestTimeout is that of both. The kubelet has none of its own: one request that is never answered would be its last.
const requestTimeout = 10 * time.Second

func newKubeletReporter(name string, c cluster) *reporter {
	n := &reporter{name: name, cluster: c, faults: fault.NewScript(), could: newRuntimes()}
	n.start = func(ctx context.Context, config *rest.Config) (logbook, func(), error) {
		config = rest.CopyConfig(config)
		config.Timeout = requestTimeout
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		book := kubeletpod.NewBasicPodManager()
		manager := kubelet.NewStatusManager(client, book, theirRuntimes{n.could})
		manager.Start(ctx)
		return &theirLogbook{manager, book}, manager.Stop, nil
	}
	return n
}

func newHeraldReporter(name string, c cluster) *reporter {
	n := &reporter{name: name, cluster: c, faults: fault.NewScript(), could: newRuntimes()}
	n.start = func(ctx context.Context, config *rest.Config) (logbook, func(), error) {
		client, err := kubeapi.New(config)
		if err != nil {
			return nil, nil, err
		}
		book := pod.NewManager()
		settings := status.Config{API: client, Pods: book, Deletion: ourRuntimes{n.could}, RequestTimeout: requestTimeout}
		if n.change != nil {
			n.change(&settings)
		}
		manager, err := status.New(settings)
		if err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { _ = manager.Run(ctx) }) // its only error is the disk's, and it has none
		return &ourLogbook{manager, book}, func() { cancel(); running.Wait() }, nil
	}
	return n
}

// boot starts the node's manager and its watch, with nothing remembered but the static pods' manifests.
func (n *reporter) boot(t *testing.T, manifests []*v1.Pod) {
	t.Helper()
	config := n.cluster.config()
	config.Wrap(n.faults.Wrap)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	manager, stopManager, err := n.start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	n.logbook = manager
	for _, p := range manifests {
		n.saw(p)
	}
	client, err := kubeapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	watch := cache.NewReflectorWithOptions(client.PodsOnNode(n.name), &v1.Pod{}, bookkeeper{manager}, cache.ReflectorOptions{})
	var watching sync.WaitGroup
	watching.Go(func() { watch.RunWithContext(ctx) })
	n.stop = sync.OnceFunc(func() {
		stopManager()
		cancel()
		watching.Wait()
	})
}

// copyOf is the address book's newest copy of the pod.
func (n *reporter) copyOf(uid types.UID) *v1.Pod {
	pods, _ := n.held()
	if i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == uid }); i >= 0 {
		return pods[i]
	}
	return nil
}

// bookkeeper puts what a watch shows into an address book.
type bookkeeper struct{ logbook }

func (b bookkeeper) Add(object any) error {
	b.saw(object.(*v1.Pod))
	return nil
}

func (b bookkeeper) Update(object any) error { return b.Add(object) }

func (b bookkeeper) Delete(object any) error {
	b.removed(object.(*v1.Pod))
	return nil
}

func (b bookkeeper) Replace(objects []any, _ string) error {
	pods, mirrors := b.held()
	for _, p := range slices.Concat(pods, mirrors) {
		if !kubetypes.IsStaticPod(p) {
			b.removed(p)
		}
	}
	for _, object := range objects {
		b.saw(object.(*v1.Pod))
	}
	return nil
}

func (b bookkeeper) Resync() error { return nil }

// memory is a cluster in memory with one namespace, which sees who writes without need.
type memory struct {
	*heraldtest.APIServer
	namespace string
	// idle counts the patches that left an object as it was.
	idle atomic.Int64
}

func (m *memory) full(name string) podid.FullName {
	return podid.FullName{Namespace: m.namespace, Name: name}
}

func (m *memory) add(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Namespace = m.namespace
	return m.AddPod(p)
}

func (m *memory) pod(name string) *v1.Pod                  { return m.Pod(m.full(name)) }
func (m *memory) update(name string, edit func(p *v1.Pod)) { m.UpdatePod(m.full(name), edit) }
func (m *memory) remove(name string, grace int64)          { m.DeletePod(m.full(name), grace) }

func (m *memory) config() *rest.Config {
	config := m.Config()
	config.Transport = auditor{m, config.Transport}
	return config
}

// auditor looks at the object before and after a patch.
type auditor struct {
	cluster *memory
	next    http.RoundTripper
}

func (a auditor) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch {
		return a.next.RoundTrip(r)
	}
	name := strings.Split(r.URL.Path, "/")[6]
	before := a.version(name)
	response, err := a.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK && a.version(name) == before {
		a.cluster.idle.Add(1)
	}
	return response, err
}

func (a auditor) version(name string) string {
	if p := a.cluster.pod(name); p != nil {
		return p.ResourceVersion
	}
	return ""
}

// tally is what a node asked of the API server about single pods.
type tally struct {
	gets, patches, deletes int
}

func (n *twin) tally() tally {
	asked := n.faults.Requests()
	return tally{
		gets: len(asked.Of("get", "/pods/")), patches: len(asked.Of("PATCH", "/pods/")), deletes: len(asked.Of("DELETE", "/pods/")),
	}
}

// compareRequests says what our node asked too often since the last time: it never reads what the watch tells, changes
// something with each write, and writes no more often than the kubelet.
func (w *twins) compareRequests() string {
	kubelet, herald := w.nodes[0].tally(), w.nodes[1].tally()
	asked := w.nodes[1].faults.Requests().Of("*", "/pods/")
	idle := w.nodes[1].cluster.(*memory).idle.Swap(0)
	for _, n := range w.nodes {
		n.faults.Forget()
	}
	extra := herald.gets + max(0, herald.patches-kubelet.patches) + max(0, herald.deletes-kubelet.deletes)
	if idle > 0 || extra > w.blind {
		return fmt.Sprintf("the kubelet asked %+v; Herald asked %+v, with %d patches that changed nothing:\n%+v", kubelet, herald, idle, asked)
	}
	w.blind = 0
	return ""
}

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

// statusSetters is what workers and probers call.
type statusSetters interface {
	SetPodStatus(pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool)
	TerminatePod(pod *v1.Pod)
	SetContainerReadiness(uid types.UID, container string, ready bool)
	SetContainerStartup(uid types.UID, container string, started bool)
	RemoveOrphanedStatuses(keep map[types.UID]bool)
}

// statusManager is the kubelet's or Herald's status manager with a pod manager of the same side.
type statusManager interface {
	statusSetters
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// listPods returns the pods that the node should run, and the mirror pods.
	listPods() (pods, mirrors []*v1.Pod)
	// updatePod handles a watch event.
	updatePod(pod *v1.Pod)
	removePod(pod *v1.Pod)
}

// runtimeState records which pods may have running containers, by the UID under which the node runs them.
type runtimeState struct {
	mu      sync.Mutex // guards running
	running map[types.UID]bool
}

func newRuntimeState() *runtimeState { return &runtimeState{running: map[types.UID]bool{}} }

func (r *runtimeState) set(uid types.UID, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[uid] = running
}

func (r *runtimeState) isRunning(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[uid]
}

// kubeletStatusManager is the kubelet's side.
type kubeletStatusManager struct {
	*kubelet.StatusManager
	pods kubeletpod.Manager
}

type kubeletDeletion struct{ *runtimeState }

// PodCouldHaveRunningContainers answers as the kubelet's pod workers do: for the UID of the API object, which they do
// not know for a static pod (SM-69).
func (r kubeletDeletion) PodCouldHaveRunningContainers(p *v1.Pod) bool { return r.isRunning(p.UID) }

func (m *kubeletStatusManager) listPods() (pods, mirrors []*v1.Pod) {
	pods, mirrors, _ = m.pods.GetPodsAndMirrorPods()
	return pods, mirrors
}

func (m *kubeletStatusManager) updatePod(p *v1.Pod) { m.pods.UpdatePod(p) }

func (m *kubeletStatusManager) removePod(p *v1.Pod) { m.pods.RemovePod(p) }

// heraldStatusManager is Herald's side.
type heraldStatusManager struct {
	*status.Manager
	pods *pod.Manager
}

type heraldDeletion struct{ *runtimeState }

func (r heraldDeletion) PodCouldHaveRunningContainers(uid podid.UID) bool {
	return r.isRunning(types.UID(uid))
}

func (r heraldDeletion) PodResourcesAreReclaimed(*v1.Pod, *v1.PodStatus) bool { return true }

func (m *heraldStatusManager) SetContainerReadiness(uid types.UID, container string, ready bool) {
	m.Manager.SetContainerReadiness(uid, observed.ParseContainerID(container), ready)
}

func (m *heraldStatusManager) SetContainerStartup(uid types.UID, container string, started bool) {
	m.Manager.SetContainerStartup(uid, observed.ParseContainerID(container), started)
}

func (m *heraldStatusManager) listPods() (pods, mirrors []*v1.Pod) {
	pods, mirrors, _ = m.pods.GetPodsAndMirrorPods()
	return pods, mirrors
}

func (m *heraldStatusManager) updatePod(p *v1.Pod) {
	m.pods.UpdatePod(p)
	m.Reconcile(p)
}

func (m *heraldStatusManager) removePod(p *v1.Pod) { m.pods.RemovePod(p) }

// testNode is a node of a cluster with a status manager and a watch that feeds its pod manager.
type testNode struct {
	statusManager
	name         string // also the namespace of its pods
	cluster      cluster
	faults       *fault.Injector
	runtime      *runtimeState
	configure    func(*status.Config) // changes Herald's configuration before each start; optional
	startManager func(ctx context.Context, config *rest.Config) (statusManager, func(), error)
	stop         func()
}

// cluster is where users and controllers change pods, and where a node's requests go.
type cluster interface {
	createPod(getPod *v1.Pod) *v1.Pod
	getPod(name string) *v1.Pod
	updatePod(name string, edit func(*v1.Pod))
	deletePod(name string, grace int64)
	restConfig() *rest.Config
}

// requestTimeout applies to both sides. The kubelet has none of its own: it would hang on a request that is never
// answered.
const requestTimeout = 10 * time.Second

func newKubeletNode(name string, c cluster) *testNode {
	n := &testNode{name: name, cluster: c, faults: fault.NewInjector(), runtime: newRuntimeState()}
	n.startManager = func(ctx context.Context, config *rest.Config) (statusManager, func(), error) {
		config = rest.CopyConfig(config)
		config.Timeout = requestTimeout
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		pods := kubeletpod.NewBasicPodManager()
		manager := kubelet.NewStatusManager(client, pods, kubeletDeletion{n.runtime})
		manager.Start(ctx)
		return &kubeletStatusManager{manager, pods}, manager.Stop, nil
	}
	return n
}

func newHeraldNode(name string, c cluster) *testNode {
	n := &testNode{name: name, cluster: c, faults: fault.NewInjector(), runtime: newRuntimeState()}
	n.startManager = func(ctx context.Context, config *rest.Config) (statusManager, func(), error) {
		client, err := kubeapi.New(config)
		if err != nil {
			return nil, nil, err
		}
		pods := pod.NewManager()
		settings := status.Config{API: client, Pods: pods, Deletion: heraldDeletion{n.runtime}, RequestTimeout: requestTimeout}
		if n.configure != nil {
			n.configure(&settings)
		}
		manager, err := status.New(settings)
		if err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { _ = manager.Run(ctx) }) // fails only on disk errors, and there is no disk
		return &heraldStatusManager{manager, pods}, func() { cancel(); running.Wait() }, nil
	}
	return n
}

// start starts the manager and the watch. Only the manifests of static pods are known.
func (n *testNode) start(t *testing.T, manifests []*v1.Pod) {
	t.Helper()
	config := n.cluster.restConfig()
	config.Wrap(n.faults.Wrap)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	manager, stopManager, err := n.startManager(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	n.statusManager = manager
	for _, p := range manifests {
		n.updatePod(p)
	}
	client, err := kubeapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	watch := cache.NewReflectorWithOptions(client.PodsOnNode(n.name), &v1.Pod{}, podStore{manager}, cache.ReflectorOptions{})
	var watching sync.WaitGroup
	watching.Go(func() { watch.RunWithContext(ctx) })
	n.stop = sync.OnceFunc(func() {
		stopManager()
		cancel()
		watching.Wait()
	})
}

// latestPod returns the pod manager's copy of the pod, or nil.
func (n *testNode) latestPod(uid types.UID) *v1.Pod {
	pods, _ := n.listPods()
	if i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == uid }); i >= 0 {
		return pods[i]
	}
	return nil
}

// podStore passes watch events to the status manager.
type podStore struct{ statusManager }

func (b podStore) Add(object any) error {
	b.updatePod(object.(*v1.Pod))
	return nil
}

func (b podStore) Update(object any) error { return b.Add(object) }

func (b podStore) Delete(object any) error {
	b.removePod(object.(*v1.Pod))
	return nil
}

func (b podStore) Replace(objects []any, _ string) error {
	pods, mirrors := b.listPods()
	for _, p := range slices.Concat(pods, mirrors) {
		if !kubetypes.IsStaticPod(p) {
			b.removePod(p)
		}
	}
	for _, object := range objects {
		b.updatePod(object.(*v1.Pod))
	}
	return nil
}

func (b podStore) Resync() error { return nil }

// memoryCluster is an in-memory cluster with one namespace that counts needless writes.
type memoryCluster struct {
	*heraldtest.APIServer
	namespace string
	// noopPatches counts patches that changed nothing.
	noopPatches atomic.Int64
}

func (m *memoryCluster) fullName(name string) podid.FullName {
	return podid.FullName{Namespace: m.namespace, Name: name}
}

func (m *memoryCluster) createPod(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Namespace = m.namespace
	return m.AddPod(p)
}

func (m *memoryCluster) getPod(name string) *v1.Pod { return m.Pod(m.fullName(name)) }
func (m *memoryCluster) updatePod(name string, edit func(p *v1.Pod)) {
	m.UpdatePod(m.fullName(name), edit)
}
func (m *memoryCluster) deletePod(name string, grace int64) { m.DeletePod(m.fullName(name), grace) }

func (m *memoryCluster) restConfig() *rest.Config {
	config := m.Config()
	config.Transport = patchAuditor{m, config.Transport}
	return config
}

// patchAuditor compares the object before and after a patch.
type patchAuditor struct {
	cluster *memoryCluster
	next    http.RoundTripper
}

func (a patchAuditor) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch {
		return a.next.RoundTrip(r)
	}
	name := strings.Split(r.URL.Path, "/")[6]
	before := a.version(name)
	response, err := a.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK && a.version(name) == before {
		a.cluster.noopPatches.Add(1)
	}
	return response, err
}

func (a patchAuditor) version(name string) string {
	if p := a.cluster.getPod(name); p != nil {
		return p.ResourceVersion
	}
	return ""
}

// requestCounts are a node's requests for single pods.
type requestCounts struct {
	gets, patches, deletes int
}

func (n *pairedNode) countRequests() requestCounts {
	requests := n.faults.Requests()
	return requestCounts{
		gets: len(requests.Filter("get", "/pods/")), patches: len(requests.Filter("PATCH", "/pods/")), deletes: len(requests.Filter("DELETE", "/pods/")),
	}
}

// compareRequests returns which requests Herald's node sent needlessly since the last call: it must never read what the
// watch shows, must change something with each write, and must not write more often than the kubelet.
func (pair *nodePair) compareRequests() string {
	kubelet, herald := pair.nodes[0].countRequests(), pair.nodes[1].countRequests()
	requests := pair.nodes[1].faults.Requests().Filter("*", "/pods/")
	idle := pair.nodes[1].cluster.(*memoryCluster).noopPatches.Swap(0)
	for _, n := range pair.nodes {
		n.faults.ClearRequests()
	}
	extra := herald.gets + max(0, herald.patches-kubelet.patches) + max(0, herald.deletes-kubelet.deletes)
	if idle > 0 || extra > pair.allowedExtra {
		return fmt.Sprintf("got kubelet %+v; Herald %+v with %d patches that changed nothing:\n%+v", kubelet, herald, idle, requests)
	}
	pair.allowedExtra = 0
	return ""
}

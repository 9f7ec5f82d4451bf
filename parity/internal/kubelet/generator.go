package kubelet

import (
	"context"
	"errors"
	"net"
	"reflect"
	"unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

//nolint:revive // context-as-argument: a method, so the receiver comes first
//go:linkname generateAPIPodStatus k8s.io/kubernetes/pkg/kubelet.(*Kubelet).generateAPIPodStatus
func generateAPIPodStatus(
	kl *kubelet.Kubelet, ctx context.Context, pod *v1.Pod, runtimeStatus *kubecontainer.PodStatus, terminal bool,
) v1.PodStatus

//go:linkname addReason k8s.io/kubernetes/pkg/kubelet.(*ReasonCache).add
func addReason(cache *kubelet.ReasonCache, uid types.UID, container string, reason error, message string)

// StatusInput is everything that the kubelet's generateAPIPodStatus depends on. The kubelet reads most of it from its
// other components.
type StatusInput struct {
	Pod *v1.Pod
	// Cached is the status manager's status, or nil.
	Cached        *v1.PodStatus
	RuntimeStatus *kubecontainer.PodStatus
	// Startup and Readiness are the cached probe results. Every container that declares a probe also has a worker.
	Startup, Readiness map[kubecontainer.ContainerID]results.Result
	// Reasons says why containers could not be started, by container name.
	Reasons          map[string]Reason
	ResizeConditions []v1.PodCondition
	// Eviction makes the pod fail. Optional.
	Eviction *lifecycle.ShouldEvictResponse
	// NodeIPs is --node-ip. NodeAddresses are those of the Node object, nil without an API server.
	NodeIPs       []net.IP
	NodeAddresses []v1.NodeAddress
	// Cgroup is what the pod's cgroup enforces, or nil.
	Cgroup   *cm.ResourceConfig
	Terminal bool
}

// Reason is an entry of the kubelet's reason cache.
type Reason struct{ Reason, Message string }

// StatusGenerator is a kubelet with only the fields that generateAPIPodStatus needs. It is not safe for concurrent use.
type StatusGenerator struct {
	kubelet *kubelet.Kubelet
	prober  prober.Manager
	input   StatusInput
}

// NewStatusGenerator returns a kubelet that only generates statuses.
func NewStatusGenerator() *StatusGenerator {
	g := &StatusGenerator{kubelet: &kubelet.Kubelet{}}
	g.prober = prober.NewManager(nil, fixedResults{}, fixedResults{&g.input.Readiness}, fixedResults{&g.input.Startup}, nil, nil)
	g.kubelet.PodSyncHandlers = lifecycle.PodSyncHandlers{fakeEvictor{&g.input}}
	setField(g.kubelet, "statusManager", status.Manager(fakeStatusManager{input: &g.input}))
	setField(g.kubelet, "probeManager", g.prober)
	containerManager := fakeContainerManager{ContainerManager: cm.NewStubContainerManager(), input: &g.input}
	setField(g.kubelet, "containerManager", cm.ContainerManager(containerManager))
	setField(g.kubelet, "nodeLister", corelisters.NodeLister(fakeNodeLister{input: &g.input}))
	return g
}

// Generate returns the status that the kubelet computes. It may modify the pod.
func (g *StatusGenerator) Generate(input StatusInput) v1.PodStatus {
	g.input = input
	setField(g.kubelet, "nodeIPs", input.NodeIPs)
	setField(g.kubelet, "kubeClient", g.client())
	reasons := kubelet.NewReasonCache()
	for container, reason := range input.Reasons {
		addReason(reasons, input.Pod.UID, container, errors.New(reason.Reason), reason.Message)
	}
	setField(g.kubelet, "reasonCache", reasons)
	g.setWorkers()
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	return generateAPIPodStatus(g.kubelet, ctx, input.Pod, input.RuntimeStatus, input.Terminal)
}

// client returns a client that the kubelet only compares with nil.
func (g *StatusGenerator) client() clientset.Interface {
	if g.input.NodeAddresses == nil {
		return nil
	}
	return struct{ clientset.Interface }{}
}

// setWorkers registers a worker for every declared probe. The workers never run: the kubelet only checks that they
// exist.
func (g *StatusGenerator) setWorkers() {
	workers := field(g.prober, "workers")
	workers.Clear()
	add := func(container *v1.Container, kind ProbeKind) {
		key := probeKey(workers.Type().Key(), g.input.Pod.UID, container.Name, kind)
		workers.SetMapIndex(key, reflect.New(workers.Type().Elem().Elem()))
	}
	for _, containers := range [][]v1.Container{g.input.Pod.Spec.InitContainers, g.input.Pod.Spec.Containers} {
		for i := range containers {
			if containers[i].ReadinessProbe != nil {
				add(&containers[i], Readiness)
			}
			if containers[i].StartupProbe != nil {
				add(&containers[i], Startup)
			}
		}
	}
}

// setField sets an unexported field of a kubelet type.
func setField[T any](object any, name string, value T) {
	field(object, name).Set(reflect.ValueOf(&value).Elem())
}

func field(object any, name string) reflect.Value {
	return writable(reflect.ValueOf(object).Elem().FieldByName(name))
}

func writable(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

// fakeStatusManager implements what generateAPIPodStatus calls.
type fakeStatusManager struct {
	status.Manager
	input *StatusInput
}

func (s fakeStatusManager) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	if s.input.Cached == nil {
		return v1.PodStatus{}, false
	}
	return *s.input.Cached, true
}

func (s fakeStatusManager) GetPodResizeConditions(types.UID) []*v1.PodCondition {
	var conditions []*v1.PodCondition
	for _, condition := range s.input.ResizeConditions {
		conditions = append(conditions, &condition)
	}
	return conditions
}

func (s fakeStatusManager) ClearPodResizePendingCondition(types.UID) {}

func (s fakeStatusManager) ClearPodResizeInProgressCondition(types.UID) (int64, bool) {
	return 0, false
}

// fixedResults is a results manager whose results never change.
type fixedResults struct {
	byID *map[kubecontainer.ContainerID]results.Result
}

func (v fixedResults) Get(id kubecontainer.ContainerID) (results.Result, bool) {
	result, ok := (*v.byID)[id]
	return result, ok
}

func (v fixedResults) Set(kubecontainer.ContainerID, results.Result, *v1.Pod) {}

func (v fixedResults) Remove(kubecontainer.ContainerID) {}

func (v fixedResults) Updates() <-chan results.Update { return nil }

type fakeEvictor struct{ input *StatusInput }

func (e fakeEvictor) ShouldEvict(*v1.Pod) lifecycle.ShouldEvictResponse {
	if e.input.Eviction == nil {
		return lifecycle.ShouldEvictResponse{}
	}
	return *e.input.Eviction
}

// fakeContainerManager serves one pod's cgroup.
type fakeContainerManager struct {
	cm.ContainerManager
	cm.PodContainerManager
	input *StatusInput
}

func (c fakeContainerManager) NewPodContainerManager() cm.PodContainerManager { return c }

func (c fakeContainerManager) GetPodCgroupConfig(*v1.Pod, v1.ResourceName) (*cm.ResourceConfig, error) {
	return c.input.Cgroup, nil
}

// fakeNodeLister serves one node.
type fakeNodeLister struct {
	corelisters.NodeLister
	input *StatusInput
}

func (n fakeNodeLister) Get(string) (*v1.Node, error) {
	return &v1.Node{Status: v1.NodeStatus{Addresses: n.input.NodeAddresses}}, nil
}

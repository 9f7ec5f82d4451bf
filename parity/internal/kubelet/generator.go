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

// The receiver of a method comes first.
//
//nolint:revive // context-as-argument: this is a method
//go:linkname generateAPIPodStatus k8s.io/kubernetes/pkg/kubelet.(*Kubelet).generateAPIPodStatus
func generateAPIPodStatus(
	kl *kubelet.Kubelet, ctx context.Context, pod *v1.Pod, seen *kubecontainer.PodStatus, terminal bool,
) v1.PodStatus

//go:linkname addReason k8s.io/kubernetes/pkg/kubelet.(*ReasonCache).add
func addReason(cache *kubelet.ReasonCache, uid types.UID, container string, reason error, message string)

// Look is all that the kubelet's generateAPIPodStatus goes by, most of which it reads from its own parts.
type Look struct {
	Pod *v1.Pod
	// Cached is the status manager's status, or nil.
	Cached *v1.PodStatus
	Seen   *kubecontainer.PodStatus
	// Startup and Readiness are cached probe results. A container with a probe has a worker, too.
	Startup, Readiness map[kubecontainer.ContainerID]results.Result
	// Reasons say why containers could not be started, by name.
	Reasons map[string]Reason
	Resize  []v1.PodCondition
	// Evict makes the pod fail.
	Evict *lifecycle.ShouldEvictResponse
	// NodeIPs are --node-ip; NodeAddresses are those of the Node object, nil when there is no API server.
	NodeIPs       []net.IP
	NodeAddresses []v1.NodeAddress
	// Cgroup is what the pod's own cgroup enforces, or nil.
	Cgroup   *cm.ResourceConfig
	Terminal bool
}

// Reason is an entry of the kubelet's reason cache.
type Reason struct{ Reason, Message string }

// Generator is a kubelet with no more than generateAPIPodStatus needs. It serves one caller at a time.
type Generator struct {
	kubelet *kubelet.Kubelet
	prober  prober.Manager
	look    Look
}

// NewGenerator makes a kubelet that only generates statuses.
func NewGenerator() *Generator {
	g := &Generator{kubelet: &kubelet.Kubelet{}}
	g.prober = prober.NewManager(nil, verdicts{}, verdicts{&g.look.Readiness}, verdicts{&g.look.Startup}, nil, nil)
	g.kubelet.PodSyncHandlers = lifecycle.PodSyncHandlers{evictor{&g.look}}
	set(g.kubelet, "statusManager", status.Manager(statuses{look: &g.look}))
	set(g.kubelet, "probeManager", g.prober)
	set(g.kubelet, "containerManager", cm.ContainerManager(cgroups{ContainerManager: cm.NewStubContainerManager(), look: &g.look}))
	set(g.kubelet, "nodeLister", corelisters.NodeLister(nodes{look: &g.look}))
	return g
}

// Generate is the status that the kubelet computes. It may change the pod.
func (g *Generator) Generate(look Look) v1.PodStatus {
	g.look = look
	set(g.kubelet, "nodeIPs", look.NodeIPs)
	set(g.kubelet, "kubeClient", g.client())
	reasons := kubelet.NewReasonCache()
	for container, why := range look.Reasons {
		addReason(reasons, look.Pod.UID, container, errors.New(why.Reason), why.Message)
	}
	set(g.kubelet, "reasonCache", reasons)
	g.setWorkers()
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	return generateAPIPodStatus(g.kubelet, ctx, look.Pod, look.Seen, look.Terminal)
}

// client is asked only whether it is nil.
func (g *Generator) client() clientset.Interface {
	if g.look.NodeAddresses == nil {
		return nil
	}
	return struct{ clientset.Interface }{}
}

// setWorkers gives each declared probe its worker, which never runs: the kubelet only asks whether it exists.
func (g *Generator) setWorkers() {
	workers := field(g.prober, "workers")
	workers.Clear()
	add := func(container *v1.Container, kind ProbeKind) {
		key := probeKey(workers.Type().Key(), g.look.Pod.UID, container.Name, kind)
		workers.SetMapIndex(key, reflect.New(workers.Type().Elem().Elem()))
	}
	for _, containers := range [][]v1.Container{g.look.Pod.Spec.InitContainers, g.look.Pod.Spec.Containers} {
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

// set fills a field that only the kubelet's own package may fill.
func set[T any](object any, name string, value T) {
	field(object, name).Set(reflect.ValueOf(&value).Elem())
}

func field(object any, name string) reflect.Value {
	return settable(reflect.ValueOf(object).Elem().FieldByName(name))
}

func settable(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

// statuses is the part of a status manager that a Generator needs.
type statuses struct {
	status.Manager
	look *Look
}

func (s statuses) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	if s.look.Cached == nil {
		return v1.PodStatus{}, false
	}
	return *s.look.Cached, true
}

func (s statuses) GetPodResizeConditions(types.UID) []*v1.PodCondition {
	var conditions []*v1.PodCondition
	for _, condition := range s.look.Resize {
		conditions = append(conditions, &condition)
	}
	return conditions
}

func (s statuses) ClearPodResizePendingCondition(types.UID) {}

func (s statuses) ClearPodResizeInProgressCondition(types.UID) (int64, bool) { return 0, false }

// verdicts are probe results that do not change.
type verdicts struct {
	byID *map[kubecontainer.ContainerID]results.Result
}

func (v verdicts) Get(id kubecontainer.ContainerID) (results.Result, bool) {
	result, ok := (*v.byID)[id]
	return result, ok
}

func (v verdicts) Set(kubecontainer.ContainerID, results.Result, *v1.Pod) {}

func (v verdicts) Remove(kubecontainer.ContainerID) {}

func (v verdicts) Updates() <-chan results.Update { return nil }

type evictor struct{ look *Look }

func (e evictor) ShouldEvict(*v1.Pod) lifecycle.ShouldEvictResponse {
	if e.look.Evict == nil {
		return lifecycle.ShouldEvictResponse{}
	}
	return *e.look.Evict
}

// cgroups answers with one pod's cgroup.
type cgroups struct {
	cm.ContainerManager
	cm.PodContainerManager
	look *Look
}

func (c cgroups) NewPodContainerManager() cm.PodContainerManager { return c }

func (c cgroups) GetPodCgroupConfig(*v1.Pod, v1.ResourceName) (*cm.ResourceConfig, error) {
	return c.look.Cgroup, nil
}

// nodes holds the one node.
type nodes struct {
	corelisters.NodeLister
	look *Look
}

func (n nodes) Get(string) (*v1.Node, error) {
	return &v1.Node{Status: v1.NodeStatus{Addresses: n.look.NodeAddresses}}, nil
}

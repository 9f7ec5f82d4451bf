package kubelet

import (
	"k8s.io/apimachinery/pkg/types"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

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

package nodeagent

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cgroup/manager"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// enforcePods is the only value of Config.EnforceNodeAllocatable.
const enforcePods = "pods"

func (n *NodeAgent) newCgroups() (err error) {
	if n.config.Runtime == RuntimeProcess || n.config.NoCgroupsPerQOS {
		return nil
	}
	n.cgroups, err = manager.New(manager.Config{
		NodeName: n.config.NodeName, Root: n.config.CgroupRoot, PodPidsLimit: n.config.PodPidsLimit, NoCPUQuota: n.config.NoCPUCFSQuota,
		Driver: func(ctx context.Context) (string, error) { return n.runtime.CgroupDriver(ctx) },
		Pods:   n.allocatedPods, Available: n.availableResources, IsOrphaned: n.isOrphaned,
		IsResizing: func(uid podid.UID) bool { return n.Agent.Allocations.IsResizing(uid) },
		Events:     n.Events, Logger: n.config.Logger, Metrics: n.config.Metrics,
	})
	return err
}

// isOrphaned reports whether nothing but a cgroup is left of the pod. Files of its volumes in memory are charged to that
// cgroup, so the volumes go first (CGR-23).
func (n *NodeAgent) isOrphaned(uid podid.UID) bool {
	if !n.Agent.IsOrphaned(uid) { // nearly always, and listing the volumes of all pods costs more
		return false
	}
	withVolumes, err := n.volumes.Pods()
	return err == nil && !slices.Contains(withVolumes, uid) && n.Agent.IsOrphaned(uid)
}

// allocatedPods returns the pods that may run, with the resources allocated to them: a resize that is not accepted must not
// change a cgroup (CGR-10). complete is false until all sources have reported their pods.
func (n *NodeAgent) allocatedPods() (pods []*v1.Pod, complete bool) {
	for _, pod := range n.Agent.Pods.GetPods() {
		if derive.IsTerminal(pod.Status.Phase) {
			continue
		}
		if allocated, found := n.Agent.Allocations.AllocatedPod(pod); found {
			pod = allocated
		}
		pods = append(pods, pod)
	}
	return pods, n.Agent.Sources.AllReady()
}

// availableResources returns what pods may use together: the capacity without what is reserved. The eviction thresholds are
// not subtracted, because eviction must act before the kernel does (CGR-8).
func (n *NodeAgent) availableResources() v1.ResourceList {
	available := n.Node.Capacity()
	if slices.Contains(n.config.EnforceNodeAllocatable, enforcePods) {
		for name, reserved := range n.config.Reserved {
			if capacity, found := available[name]; found {
				capacity.Sub(reserved)
				available[name] = capacity
			}
		}
	}
	if available.Cpu().Sign() <= 0 || available.Memory().Sign() <= 0 { // more is reserved than the machine has
		return nil
	}
	return available
}

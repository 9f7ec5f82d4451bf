package nodeagent

import v1 "k8s.io/api/core/v1"

// AllocatedPods returns the pods that the cgroups of QoS classes are computed from.
func (n *NodeAgent) AllocatedPods() (pods []*v1.Pod, complete bool) { return n.allocatedPods() }

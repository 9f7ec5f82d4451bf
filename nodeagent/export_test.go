package nodeagent

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/load"
)

// AllocatedPods returns the pods that the cgroups of QoS classes are computed from.
func (n *NodeAgent) AllocatedPods() (pods []*v1.Pod, complete bool) { return n.allocatedPods() }

// RecordLevel records a change of the level of the node's load.
func (n *NodeAgent) RecordLevel(before, after load.Node) { n.recordLevel(before, after) }

package view

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
)

// NodeFacts is what is known about the node at one instant. Only Node is required.
type NodeFacts struct {
	// Node has the local status, as of At.
	Node *v1.Node
	At   time.Time
	// Synced is the status that the API server acknowledged at SyncedAt. Nil if there is none.
	Synced   *v1.NodeStatus
	SyncedAt time.Time
	Lag      Lag
	Lease    *Lease
	Pods     []PodView
	Agent    Agent
	Runtime  Runtime
	Cluster  string
	Sources  []Source
	History  History
	Load     *NodeLoad
}

// NewNode returns the view of the node. It shares what the facts refer to.
func NewNode(f NodeFacts) NodeView {
	node := f.Node
	if node == nil {
		node = &v1.Node{}
	}
	v := NodeView{
		APIVersion: APIVersion, Kind: "NodeView", Metadata: newMetadata(&node.ObjectMeta), Spec: node.Spec,
		Local: NodeStatus{At: NewTime(f.At), Status: node.Status},
		Lag:   f.Lag, Pods: CountPods(f.Pods), Agent: f.Agent, Runtime: f.Runtime, Connection: Connection{Cluster: f.Cluster, Lease: f.Lease},
		Sources: f.Sources, History: f.History, Load: f.Load,
	}
	if f.Synced != nil {
		v.Synced = &NodeStatus{At: NewTime(f.SyncedAt), Status: *f.Synced}
	}
	if v.Sources == nil {
		v.Sources = []Source{}
	}
	if maxPods, found := node.Status.Allocatable[v1.ResourcePods]; found {
		v.Pods.Max = maxPods.Value()
	}
	return v
}

// CountPods counts the pods by what is wrong with them. Max is not set.
func CountPods(pods []PodView) PodCounts {
	counts := PodCounts{Total: len(pods)}
	for i := range pods {
		switch explain.ClassOf(pods[i].Why.Code) {
		case explain.Healthy:
			counts.Ready++
		case explain.Ended:
			counts.Ended++
		case explain.Progress:
			counts.Starting++
		default:
			counts.NotWell++
		}
	}
	return counts
}

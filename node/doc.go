// Package node tells the cluster of the machine: it registers the Node object, keeps its status, and renews the lease by
// which the cluster knows that the node is alive.
//
//	machine ──> report (decides) ──> status, when it changed or is due ──┐
//	                                 lease, always                       ├──> API server
//
// The two go their own ways, so that neither waits for the other. Give them an API client of their own too, kubeapi.New
// once more with the same config: each client has connections of its own, and a flood of pods' statuses then never keeps
// the node from saying that it lives. All requests are among those that the Node authorizer and NodeRestriction allow a
// node for itself.
//
// A node that is short of memory, disk or process IDs says so, and the scheduler sends it no more pods. Nothing is
// evicted.
//
// Nothing is said in the end: the containers of an agent that stops live on, and its successor takes over the node before
// the lease runs out.
package node

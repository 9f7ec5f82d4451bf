// Package node keeps the Node object of this machine: it registers the node, reports its status and renews its lease.
//
//	machine ──> report (decides) ──> status, when it changed or is due ──┐
//	                                 lease, always                       ├──> API server
//
// Status and lease are independent, so that neither waits for the other. Config.API should be a client of its own,
// created by kubeapi.New with the same config: each client has its own connections, so a burst of pod statuses cannot
// delay the lease. All requests are among those that the Node authorizer and NodeRestriction allow a node.
//
// A node under memory, disk or PID pressure reports it, and the scheduler sends no more pods. Packages eviction and eviction/manager
// decide about pods.
//
// Nothing is reported at shutdown: the containers of a stopped agent keep running, and the next agent takes over before
// the lease expires.
package node

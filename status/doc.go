// Package status is the Status Manager: the node's logbook of its pods' statuses, and the writer that reports each change
// to the API server.
//
//	worker   SetPodStatus, TerminatePod ──┐
//	probes   SetContainerReadiness, ──────┤                       ┌──> Changes (subscribers)
//	         SetContainerStartup          ├──> accept ──> entry ──┼──> GetPodStatus
//	volumes  SetPodVolumeHealth ──────────┘    (derive)   version └──> queue, most urgent first
//	                                                                     │ each pod once
//	watch    Reconcile ──────────────────────────────────────────────────┤
//	10 s     full pass ──────────────────────────────────────────────────┤
//	                                                                     ▼
//	                                       decide: write, delete, or nothing ──> one request ──> settle
//
// A status is accepted or refused at once, under one lock, by the pure rules of package derive. What was accepted gets a
// new version and is sent by one of a bounded number of senders, one request for each change, never two at a time for one
// pod. What the API server says is known from the watch and from its answers; the newer of the two decides whether there
// is anything to send.
//
// Without an API server all of it works but the sending.
package status

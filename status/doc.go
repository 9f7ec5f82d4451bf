// Package status is the Status Manager: it caches the status of every pod on the node and writes each change to the API
// server.
//
//	worker   SetPodStatus, TerminatePod ──┐                        ┌──> Changes (subscribers)
//	probes   SetContainerReadiness,       ├──> status cache ───────┼──> GetPodStatus
//	         SetContainerStartup ─────────┘    (a new version)     └──> queue, by priority
//	                                                                      │ each pod once
//	watch    Reconcile ───────────────────────────────────────────────────┤
//	periodic comparison, every SyncPeriod ────────────────────────────────┤
//	                                                                      ▼
//	              syncPod: snapshot ──> decide ──> PATCH, DELETE or nothing ──> acknowledge, or back off
//
// To follow one status, read these files in order:
//
//   - manager.go: the exported methods. SetPodStatus is the entry point.
//   - cache.go: updateCache validates the status by the rules of package derive, under one lock, and stores it as a new
//     version.
//   - queue.go: the pod waits in a queue that is ordered by priority. The number of concurrent requests is bounded.
//   - sync.go: syncPod compares the cached status with the API object and sends one PATCH. There is never more than one
//     request in flight for a pod.
//   - retry.go: a failed request is classified, and the pod backs off.
//   - lag.go: Sync compares the cached status with the API object, for people.
//
// The API object is known from the watch and from the responses to the manager's own requests. The newer of the two is the
// base of each comparison. An older one is never written back.
//
// # Duties of the caller
//
//  1. Run must be running. Without Config.API it only writes the checkpoint.
//  2. Config.Pods must know a pod before SetPodStatus is called for it, and must have its newest version before Reconcile is.
//  3. Every change that the watch delivers must be passed to Reconcile. A change that is missed is found by the next
//     periodic comparison.
//  4. TerminatePod must be called once a pod holds nothing on the node any more. Only then is a deleted pod's object deleted.
//  5. RemoveOrphanedStatuses must be called from time to time with all pods that are still known.
package status

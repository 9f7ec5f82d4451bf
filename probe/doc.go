// Package probe runs the startup, readiness and liveness probes of containers. It reports readiness and startup to the Status
// Manager and wakes the pod workers, which restart unhealthy containers.
//
// One loop keeps a heap of due times. Each check runs in its own goroutine, for at most one timeout per attempt. A probe has
// at most one check in flight, so that the number of probes bounds the number of open connections. There is no limit across
// pods: a pod that hangs must not delay the liveness probes of others (F24).
//
//	                ┌──────────────────────── heap of due times <───────────────────────┐
//	                v                                                                   │
//	PodCache ──> snapshot ──> judge.Due ──> check.Check ──> judge.Record ──> Statuses ──┴─> Wake
//
// Package probe/judge decides, package probe/check performs the checks. To use it:
//
//  1. Create a Prober with [New] and call Run.
//  2. Call AddPod after each sync of a pod.
//  3. Call StopLivenessAndStartup when the pod terminates.
//  4. Call RemovePod when its containers have stopped.
package probe

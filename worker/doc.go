// Package worker implements the pod workers: it drives each pod of the node through its lifecycle. Each pod has its own
// goroutine and waits for no other pod, except that a static pod waits for its predecessor of the same name.
//
//	UpdatePod ──┐   ┌──────────────── one goroutine per active pod ──────────────────┐
//	Wake ───────┼─> │ plan.Lifecycle ─> sync        ─> plan.ComputeActions ──────────┼──> Runtime, Volumes
//	KillPod ────┤   │                   terminating ─> plan.TerminationOrder         │
//	Housekeep ──┘   │                   terminated                                   ├──> Statuses (derive.Status)
//	                └───────────────^────────────────────────────────────────────────┘
//	                    PodCache: newer than the last action
//
// A sync iteration observes the pod, publishes its status and then acts. The next iteration acts only on an observation that
// is newer than the last action. Every call that an iteration makes is canceled as soon as the iteration is obsolete: a
// deletion never waits for an image pull, a hook or a volume (BUG-27). The cause is plan.ErrInterrupted, so that a runtime
// can complete the creation or the start of a container that is under way: canceled halfway, it would count as failed.
// Between iterations the goroutine waits for a timer or a wake-up. It ends with the pod.
//
// Only the run-once journal survives a restart of the agent: it lists the containers that were started and must not be
// started a second time (Config.State, BUG-41). Everything else is rebuilt. After a restart every pod arrives as new, and
// its running containers are found by UID and adopted (PW-53).
package worker

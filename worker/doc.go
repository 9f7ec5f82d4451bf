// Package worker drives each pod of the node through its life: one ordered stream of steps per pod, and no pod waits for
// another but a static one for its predecessor of the same name.
//
//	UpdatePod ──┐   ┌──────────── one goroutine per live pod ────────────┐
//	Wake ───────┼─> │ Lifecycle (plan) ─> sync        ─> plan.ComputeActions ──────┼──> Runtime, Volumes
//	KillPod ────┤   │                     terminating ─> plan.TerminationOrder   │
//	Housekeep ──┘   │                     terminated                     ├──> Statuses (derive.Status)
//	                └───────────────^────────────────────────────────────┘
//	                    PodCache: newer than the last thing that we did
//
// A step looks at the pod, publishes what it saw, and then acts; whatever it did it looks at again before it acts the next
// time. Each call that a step makes ends when the step is no longer wanted: a deletion never waits behind a pull, a hook
// or a volume (BUG-27). Between its steps a pod's goroutine waits for a timer or a wake-up, and it ends with the pod.
//
// Nothing is remembered over a restart of the agent. Every pod comes as new then, and what runs is found by UID and
// adopted (PW-53).
package worker

// Package plan decides what to do for one pod: which sandbox and containers to start or stop now, when to sync again, and
// how the pod moves from its first sync to its termination. Values in, values out: it has no clock, goroutine, lock, log or
// I/O.
//
//	desired pod ─┐
//	observed ────┤
//	probes ──────┼─> ComputeActions ──> Actions: evict, done, kill, sandbox, stops, starts, waits
//	back-off ────┤                         │
//	now ─────────┘                         └──> back-off, for the next call
//
// The caller has these duties:
//
//  1. Call [ComputeActions] after each inspection of the runtime.
//  2. Execute the [Actions] in the order of their fields.
//  3. Pass Actions.Backoff to the next call.
//  4. Stop a whole pod in the order of [TerminationOrder].
//
// ComputeActions keeps no state except [Backoff] and decides from the observed state alone. It is therefore safe to repeat a
// call, to crash between two actions and to lose the Backoff. If there is nothing to do, it returns no actions.
//
// [Lifecycle] is the state machine of the pod worker: the kubelet's podSyncStatus as a value.
//
// Rule numbers in comments (PH-16, PW-25, BUG-40) refer to docs/behaviour.md.
package plan

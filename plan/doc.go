// Package plan decides what is to be done for one pod: which sandbox and containers to start or stop now, when to look
// again, and where the pod is between its first sync and its end. Values in, values out: it has no clock, no goroutine,
// no lock, no log and no I/O.
//
//	desired pod ─┐
//	observed ────┤
//	probes ──────┼─> Next ──> Actions: fail, done, kill, sandbox, stops, starts, waits
//	back-off ────┤               │
//	now ─────────┘               └──> back-off, for the next call
//
// [Next] is asked after each look at the runtime. It remembers nothing between calls but its [Backoff], and decides from
// what was observed alone, so that a caller that lost its memory, crashed between two actions or repeats a call does no
// harm. With nothing to do it returns no action. [Shutdown] orders the end of a whole pod.
//
// Where a rule's number stands in a comment (PH-16, PW-25, BUG-40), docs/behaviour.md has its text.
package plan

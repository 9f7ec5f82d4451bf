// Package derive computes the status of a pod: values in, values out. It has no clock, goroutine, lock, log or I/O, so that
// every rule can be tested with a table and compared with the kubelet's own function.
//
//	desired pod ─┐
//	observed ────┤
//	probes ──────┼─> Status ─> WithProbeResults ─> CheckTransition ─> CarryOver ─> Normalize ─> Equal? ─> cache
//	previous ────┤                                                                                         │
//	now ─────────┘                                                     API's status ─> Merge <─────────────┘
//	                                                                                     │
//	                                                                                     └──> status to send
//
// [Status] computes container statuses, phase, conditions and addresses. Its result is ready to be published. A simple
// agent does the following after each inspection of its runtime:
//
//  1. Call [Status].
//  2. Call [Merge] with the status that the API server holds.
//  3. Send the result.
//
// The other functions serve an agent that caches statuses and accepts them from several writers:
//
//   - [WithProbeResults] applies the newest probe results to a status that was computed before them.
//   - [CheckTransition] rejects transitions that a container must not make.
//   - [CarryOver] preserves monotonic fields: the start time, and the transition times of unchanged conditions.
//   - [Normalize] converts a status to the form in which the API server stores it.
//   - [Equal] compares two normalized statuses without allocating.
//
// A status is immutable once it was passed to or returned by this package: results share memory with arguments.
//
// Rule numbers in comments (PH-7, SM-65, BUG-42) refer to docs/behaviour.md. There are no feature gates: unless a comment
// says otherwise, the behaviour is that of Kubernetes v1.36 with default gates.
package derive

// Package derive computes what the API should say about a pod: values in, values out. It has no clock, no goroutine, no
// lock, no log and no I/O, so that every rule can be tested by a table and compared with the kubelet's own function.
//
//	desired pod ─┐
//	observed ────┤
//	probes ──────┼─> Status ──> WithProbeFacts ─> CheckTransition ─> Continue ─> Normalize ─> Equal? ──> cache
//	previous ────┤                                                                                        │
//	now ─────────┘                                                    API's status ─> Merge <────────────┘
//	                                                                                    │
//	                                                                                    └──> what to send
//
// [Status] is the whole of the left half: container statuses, phase, conditions, addresses. Its result is ready to be
// published. An agent that needs no more calls Status after each look at its runtime, then [Merge] with what the API
// server holds, and sends the result.
//
// The right half is for an agent that keeps statuses and takes them from several writers. [WithProbeFacts] lays the
// newest probe results over a status that was computed before them. [CheckTransition] refuses what may not happen to a
// container. [Continue] keeps what must not move in a pod's life: its start time, the times of conditions that did not
// change. [Normalize] brings a status into the form in which the API server will hold it, and [Equal] tells whether two
// such statuses say the same, without allocating.
//
// A status is immutable once it was handed to this package or was returned by it: results share memory with arguments.
//
// Where a rule's number stands in a comment (PH-7, SM-65, BUG-42), docs/behaviour.md has its text. Feature gates do not
// exist here: behaviour is that of Kubernetes v1.36 with its default gates, where no comment says otherwise.
package derive

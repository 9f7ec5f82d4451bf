// Package pleg implements the pod lifecycle event generator: it caches the newest [observed.Pod] of each pod in the runtime
// and reports which pods changed.
//
// The PLEG lists all pods once per second and inspects those that differ from the cache, several at a time. A pod is
// inspected sooner if a caller asks for it ([PLEG.Refresh], [PLEG.GetNewerThan]) or if the runtime's event stream names
// it. Events are only hints: state is always read back (BUG-39), and the next relist finds whatever no event reported.
//
// Changes are a set of pods and not a queue of events. The set holds each pod at most once, however slow its reader is, and
// nothing is ever dropped (BUG-28). A pod whose inspection hangs or fails keeps its last known state and does not delay
// other pods (BUG-38).
package pleg

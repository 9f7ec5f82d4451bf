// Package pleg knows what the runtime holds of each pod: the newest [observed.Pod], and which pods changed.
//
// A list of everything is taken once a second, and pods that look different from what is known are inspected, several at
// a time. Two things make a look come sooner: somebody asks for one pod ([PLEG.Refresh], [PLEG.GetNewerThan]), or the
// runtime's event stream names it. Events are hints and nothing more: state is always read back (BUG-39), and a list finds
// whatever no event told of.
//
// Changes are a set of pods, not a queue of events: it holds each pod at most once however slow its reader is, and nothing
// is ever dropped from it (BUG-28). A pod whose inspection hangs or fails keeps its last known state, and holds up nobody
// else (BUG-38).
package pleg

// Package source turns a directory or a file, a URL and the API server into one stream of pod changes.
//
//	File ─┐                 ┌─ what each source wants now, newest version only
//	HTTP ─┼─ Sink ─ intake ─┤
//	API  ─┘                 └─ ledger: what the consumer was told ── Updates() ── consumer
//
// A source tells what it sees through its Sink: the complete set, a change of it, and what is wrong. It never waits for
// the consumer, and it never tells an empty set because something failed: a broken edit, a server that is down or a
// watch that was cut leave the last good pods in force (BUG-18, CFG-34).
//
// The Mux compares what the sources want with what the consumer was told, by UID, and delivers the difference in
// batches (CFG-35). A slow consumer gets fewer and larger steps, never older ones, and a removal is never swallowed. No
// two pods that are delivered share a full name, whatever their sources; a mirror and its static pod are the one
// exception.
//
// Pods that are handed over are shared and immutable: whoever wants to change one copies it.
package source

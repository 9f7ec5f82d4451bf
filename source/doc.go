// Package source merges the pods of a directory or file, a URL and the API server into one stream of updates.
//
//	File ─┐                          ┌─ sourceState: the newest version of each desired pod
//	HTTP ─┼─ Sink ─ one per source ──┤
//	API  ─┘                          └─ deliveredState: the pods the consumer has ── Updates() ── consumer
//
// A source reports its pods through its Sink: the complete set, a change of the set, and the current problems. It never
// waits for the consumer. It never reports an empty set because something failed: a broken edit, an unreachable server and
// an interrupted watch leave the last valid pods in force (BUG-18, CFG-34).
//
// The Mux compares the desired pods with the delivered pods, by UID, and delivers the difference in batches (CFG-35). A
// slow consumer gets fewer and larger batches, never older ones, and no removal is lost. No two delivered pods share a full
// name, whatever their sources, except a mirror pod and its static pod.
//
// The consumer must:
//
//  1. receive from Updates until the channel is closed, and drop no batch: each one is relative to those before it;
//  2. call Ack on each batch after acting on it: a source becomes ready only then;
//  3. treat the pods as shared and immutable, and copy a pod before changing it.
package source

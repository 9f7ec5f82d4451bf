// Package manager evaluates the alert rules of a node. A Manager owns an engine.Engine: it feeds it with what happens to pods and the node,
// wakes it at the instants that rules wait for, and passes on what changes.
//
//	versions, answers, samples ──> queue ──> engine.Engine ──> edges ──> checkpoint "alerts"
//	rule files ──> last good rules ────────────────┘                        └──> Notifier, Actor, Journal, conditions of the Node
//
// Guarantees:
//   - What happens is evaluated in the order in which it happened to each object, at the time at which it happened. Nothing is polled.
//   - An alert that fires or is resolved is on disk before anybody is told. If the disk cannot be written, it is told nevertheless.
//   - After a restart, alerts continue as they were: those whose object is gone or whose rule was removed are resolved.
//   - A rule file that cannot be used keeps its last good version, also over restarts.
//
// Methods that tell a Manager what happened never block and do no I/O. If the Manager falls behind by more than 4096 versions, it evaluates
// only the newest version of each pod, but still counts the restarts, ends and flips of up to 64 of those that it leaves out.
package manager

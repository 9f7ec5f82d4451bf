// Package engine evaluates alert rules for the node, its pods and their containers, and keeps the alerts. It is pure: it is driven by
// calls that say what happened when, and never asks a clock. The agent, tests of rules and replays of the history use the same engine.
//
//	e := engine.New(engine.Config{NodeName: "n1", Instance: "n1"})
//	e.Restore(engine.Join(saved...), now)      // what an earlier run has saved
//	e.SetRules(set, now)
//	e.NodeChanged(node, rule.OnNode, now)      // what happened, in the order in which it happened to each object
//	e.PodChanged(engine.PodChange{UID: uid, View: view, Changes: changes, Trigger: rule.OnStatus, At: at})
//	e.Advance(now)                             // at e.Next()
//	for _, edge := range e.Take() { ... }      // what changed
//
// A rule is evaluated when something that it reads changes, and at instants that its last evaluation named. Nothing else can change its
// answer, so that nothing is polled. Changes are evaluated at the time at which they happened: timers of the same object that were due
// until then run before. Times should have monotonic clock readings, all of the same run: then setting the clock changes no duration.
//
// An Engine is not safe for concurrent use.
package engine

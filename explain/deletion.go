package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
)

// killSlack is how long after the end of its grace period a container may take to end before that is called overdue.
const killSlack = 10 * time.Second

// isEnding reports whether the pod is being deleted, or stopped although it has not ended.
func (e *explainer) isEnding() bool {
	if e.Pod.DeletionTimestamp != nil {
		return true
	}
	return e.Worker.Known && e.Worker.Stage != plan.Syncing && !derive.IsTerminal(e.Pod.Status.Phase)
}

// notDeleted answers WhyNotDeleted.
func (e *explainer) notDeleted() Verdict {
	if v, ok := e.deletion(); ok {
		return v
	}
	if e.isStatic() {
		return Verdict{
			Code: CodeStaticPod, Summary: "static pod: only its source can remove it",
			Headline: fmt.Sprintf("%s is a static pod of the source %s: only the source can remove it", e.name(), e.sourceName()),
			Chain: []Because{{
				Rule: "PM-22", Text: "a mirror pod that is deleted in the API is created again", Input: "source " + e.sourceName(),
			}},
			Next:    Step{What: "nothing: nobody deletes the pod"},
			Changes: []string{"remove its manifest from the source"},
		}
	}
	return Verdict{
		Code: CodeNotDeleted, Headline: e.name() + " is not being deleted", Summary: "not being deleted",
		Chain:   []Because{{Text: "nobody has deleted the pod", Input: "metadata.deletionTimestamp is not set"}},
		Next:    Step{What: "nothing: nobody deletes the pod"},
		Changes: []string{"delete the pod"},
	}
}

func (e *explainer) sourceName() string {
	if e.Source.Name != "" {
		return clean(string(e.Source.Name), maxName)
	}
	return "file or URL"
}

// deletion matches a pod that is being deleted. It says what is not done yet.
func (e *explainer) deletion() (Verdict, bool) {
	if !e.isEnding() {
		return Verdict{}, false
	}
	var v Verdict
	switch {
	case e.Runtime.Err != nil && !e.isStopped():
		v, _ = e.runtimeDown()
		v.Headline = e.isBeing() + ": " + v.Summary + ageSuffix(e.Now, e.Runtime.Since)
	case !e.isStopped():
		v = e.stopping()
	case e.Worker.Known && e.Worker.Stage == plan.Terminated:
		v = e.cleaningUp()
	default:
		v = e.objectRemains()
	}
	if v.Since.IsZero() {
		v.Since = e.deletedAt()
	}
	return v, true
}

// isStopped reports whether no container runs any more, as far as it is known.
func (e *explainer) isStopped() bool {
	if e.Worker.Known {
		return e.Worker.Stage >= plan.Terminated
	}
	return e.findAny((*container).isRunning) == nil
}

// deletedAt returns when the deletion was requested: the API's deletion timestamp is the end of the grace period.
func (e *explainer) deletedAt() time.Time {
	if e.Pod.DeletionTimestamp == nil {
		return time.Time{}
	}
	at := e.Pod.DeletionTimestamp.Time
	if seconds := e.Pod.DeletionGracePeriodSeconds; seconds != nil {
		at = at.Add(-time.Duration(min(max(*seconds, 0), 1<<31)) * time.Second)
	}
	return at
}

// isBeing begins a headline: "web is being deleted since 41s".
func (e *explainer) isBeing() string {
	text := e.name() + " is being stopped"
	if e.Pod.DeletionTimestamp != nil {
		text = e.name() + " is being deleted"
	}
	if since := age(e.Now, e.deletedAt()); since != "" {
		text += " since " + since
	}
	return text
}

// stopping says which container has not ended yet: of several the one that is killed last.
func (e *explainer) stopping() Verdict {
	if e.Worker.Trouble != nil && len(e.Worker.Stopping) == 0 {
		return Verdict{
			Code: CodeStopFailed, Headline: e.isBeing() + ": its containers could not be stopped", Summary: "containers could not be stopped",
			Chain: []Because{e.trouble("PW-37")}, Next: e.retry(), Changes: []string{"a container runtime that stops containers"},
		}
	}
	stop, ok := e.lastStop()
	if !ok {
		if c := e.findAny((*container).isRunning); c != nil {
			stop = Stopping{Container: c.spec.Name}
			if e.Pod.DeletionTimestamp != nil {
				stop.KillAt = e.Pod.DeletionTimestamp.Time
			}
			return e.stoppingContainer(stop)
		}
		return Verdict{
			Code: CodeDeleting, Headline: e.isBeing(), Summary: "being deleted", Next: Step{What: "stop of its containers", By: ByHerald},
		}
	}
	return e.stoppingContainer(stop)
}

// lastStop returns the stop of a container of the pod that ends last.
func (e *explainer) lastStop() (Stopping, bool) {
	var last Stopping
	found := false
	for _, stop := range e.Worker.Stopping {
		exists := e.findAny(func(c *container) bool { return c.spec.Name == stop.Container }) != nil
		if exists && (!found || stop.KillAt.After(last.KillAt)) {
			last, found = stop, true
		}
	}
	return last, found
}

func (e *explainer) stoppingContainer(stop Stopping) Verdict {
	name := clean(stop.Container, maxName)
	v := Verdict{
		Code: CodeStopping, Container: stop.Container, Summary: name + " has not exited yet",
		Next: Step{What: "kill", At: stop.KillAt, By: ByHerald}, Changes: []string{name + " exiting by itself"},
	}
	because := Because{Rule: "PW-24", Text: "it gets time to end by itself", Since: stop.Since}
	if !stop.KillAt.IsZero() {
		because.Text = "its grace period ends at " + clock(e.Now, stop.KillAt)
		because.Input = "metadata.deletionGracePeriodSeconds or spec.terminationGracePeriodSeconds"
	}
	if since := age(e.Now, stop.Since); since != "" {
		because.Text = "it was asked to stop " + since + " ago; " + because.Text
	}
	switch {
	case !stop.KillAt.IsZero() && e.Now.After(stop.KillAt.Add(killSlack)):
		v.Code, v.Summary = CodeStopOverdue, name+" still runs after its grace period"
		v.Next = Step{What: "kill is repeated until it has ended", By: ByHerald}
		v.Changes = []string{"a process in uninterruptible sleep or a hanging container runtime must be found on the node"}
		because.Rule, because.Text = "PW-37", strings.Replace(because.Text, "period ends at", "period ended at", 1)
	case stop.PreStop:
		v.Code, v.Summary = CodePreStopHook, name+" runs its preStop hook"
		v.Changes = []string{"the end of the hook"}
	}
	v.Headline = e.isBeing() + ": " + v.Summary
	v.Chain = []Because{because}
	return v
}

// cleaningUp is about a pod whose containers have ended and whose volumes and cgroups have not been released.
func (e *explainer) cleaningUp() Verdict {
	if e.Worker.Trouble == nil {
		return Verdict{
			Code: CodeCleaningUp, Headline: e.isBeing() + ": its containers have ended, its volumes are being released",
			Summary: "volumes are being released", Next: Step{What: "release of volumes and cgroups", By: ByHerald},
			Chain: []Because{{Rule: "PW-40", Text: "the object is deleted only after the node has released everything"}},
		}
	}
	return Verdict{
		Code: CodeCleanUpFailed, Headline: e.isBeing() + ": its containers have ended, its volumes could not be released",
		Summary: "volumes could not be released", Chain: []Because{e.trouble("PW-40")}, Next: e.retry(),
		Changes: []string{"whatever holds the volumes letting go of them"},
	}
}

// objectRemains is about a pod that has ended on this node and is still in the API.
func (e *explainer) objectRemains() Verdict {
	headline := e.name() + " has ended here, its object is still in the API"
	switch {
	case e.Sync.State == SyncWaiting || e.Sync.State == SyncRefused || e.Sync.State == SyncWithheld:
		return Verdict{
			Code: CodeDeletionNotSent, Headline: headline, Summary: "ended; the API server does not know it yet",
			Chain: []Because{{Rule: "SM-72", Text: e.syncReason(), Input: "sync " + string(e.Sync.State), Since: e.Sync.Since}},
			Next:  Step{What: "try", At: e.Sync.NextTry, By: ByHerald}, Changes: []string{"the API server accepting the status"},
		}
	case len(e.Sync.Finalizers) > 0 && e.Sync.State != SyncGone:
		return Verdict{
			Code: CodeFinalizer, Headline: headline, Summary: "ended; a finalizer keeps its object",
			Chain: []Because{{
				Rule: "SM-73", Text: "finalizer " + finalizers(e.Sync.Finalizers) + ageSuffix(e.Now, e.deletedAt()), Input: "metadata.finalizers",
			}},
			Next: Step{What: "removal of the finalizer", By: ByCluster}, Changes: []string{"the controller of the finalizer removing it"},
		}
	default:
		return Verdict{
			Code: CodeDeleting, Headline: e.isBeing() + ": it has ended here", Summary: "ended; being removed",
			Chain: []Because{{Rule: "SM-72", Text: "the object is deleted when the API server has the final status"}},
			Next:  Step{What: "deletion of the object", By: ByHerald},
		}
	}
}

func ageSuffix(now, t time.Time) string {
	if text := age(now, t); text != "" {
		return " since " + text
	}
	return ""
}

// finalizers names at most three.
func finalizers(names []string) string {
	const limit = 3
	rest := ""
	if len(names) > limit {
		rest = fmt.Sprintf(" and %d more", len(names)-limit)
		names = names[:limit]
	}
	cleaned := make([]string, len(names))
	for i, name := range names {
		cleaned[i] = clean(name, maxName)
	}
	return strings.Join(cleaned, ", ") + rest
}

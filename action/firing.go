package action

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/remedy"
)

// firing is an alert that fires, or did a short time ago.
type firing struct {
	key     string
	alert   alert.Alert
	actions []rule.Action
	allows  Allows
	object  remedy.Object
	// firedAt is when it fired, never in the future. endedAt is when it was resolved; zero while it fires.
	firedAt, endedAt time.Time
	tasks            []task // one for each action
}

// task is what goes on about one action of an alert.
type task struct {
	// next is when it is decided again; zero at once.
	next time.Time
	// over says that nothing will be done any more in this episode.
	over bool
	// refused is the last reason that was recorded.
	refused remedy.Reason
	// running is set while the deed is under way.
	running bool
}

func newFiring(key string, in input, now time.Time) *firing {
	f := &firing{key: key, object: objectOf(in.alert.Labels)}
	f.update(in, now)
	return f
}

// update applies a new state of the alert and reports whether it fired anew or was resolved. What was refused is decided again if that
// may change the answer.
func (f *firing) update(in input, now time.Time) bool {
	if !in.alert.IsFiring() {
		f.alert.State = in.alert.State
		wasFiring := f.endedAt.IsZero()
		if wasFiring {
			f.endedAt = now
		}
		return wasFiring
	}
	isNew := f.alert.Episode != in.alert.Episode || !f.endedAt.IsZero()
	if isNew {
		f.firedAt = in.alert.StartsAt
		if f.firedAt.IsZero() || f.firedAt.After(now) || !f.endedAt.IsZero() {
			f.firedAt = now // also an episode that continues: what follows is about what happens now
		}
	}
	if isNew || len(f.tasks) != len(in.actions) {
		f.tasks = make([]task, len(in.actions))
	}
	isKnown := f.alert.Mute.IsMuted() == in.alert.Mute.IsMuted() && (f.alert.Freeze == nil) == (in.alert.Freeze == nil)
	for i := range f.tasks {
		t := &f.tasks[i]
		isSame := i < len(f.actions) && isEqual(&f.actions[i], &in.actions[i])
		if !isKnown || !isSame {
			t.next = time.Time{}
		}
		t.over = t.over && isSame
	}
	f.alert, f.actions, f.allows, f.endedAt = in.alert, in.actions, in.allows, time.Time{}
	return isNew
}

// isEqual reports whether two actions are the same. Most often they are of the same rule.
func isEqual(x, y *rule.Action) bool {
	return x == y || x.OnlyIf == y.OnlyIf && x.String() == y.String() && slices.Equal(x.Pods, y.Pods)
}

// nextTask reports whether an action is to be decided now, and when the next one is; zero if only a change can tell.
func (f *firing) nextTask(now time.Time) (next time.Time, isDue bool) {
	if !f.isActive() {
		return time.Time{}, false
	}
	for i := range f.tasks {
		switch t := &f.tasks[i]; {
		case t.over || t.running:
		case now.Before(t.next):
			next = earliest(next, t.next)
		default:
			isDue = true
		}
	}
	return next, isDue
}

// isActive reports whether the expression of the rule is true, as far as is known. Nothing is done for an alert that recovers.
func (f *firing) isActive() bool { return f.endedAt.IsZero() && f.alert.State == alert.Firing }

// decideAll decides about all actions that are due and begins those that are allowed. It returns when the next is due.
func (a *Actor) decideAll(ctx context.Context, node func() remedy.Node, now time.Time) (next time.Time) {
	var firings []*firing
	for _, f := range a.alerts {
		at, isDue := f.nextTask(now)
		next = earliest(next, at)
		if isDue {
			firings = append(firings, f)
		}
	}
	slices.SortFunc(firings, func(x, y *firing) int { return cmp.Or(x.firedAt.Compare(y.firedAt), cmp.Compare(x.key, y.key)) })
	for _, f := range firings {
		for i := range f.tasks {
			next = earliest(next, a.decide(ctx, f, i, node))
		}
	}
	return next
}

// decide decides about one action, if that is due. It returns when to decide again; zero if a change will tell.
func (a *Actor) decide(ctx context.Context, f *firing, i int, node func() remedy.Node) time.Time {
	t, now := &f.tasks[i], a.config.Now()
	if t.over || t.running {
		return time.Time{}
	}
	if now.At.Before(t.next) {
		return t.next
	}
	policy := a.policy(&f.actions[i])
	if !a.hasRoom(policy) {
		return time.Time{} // the end of another deed wakes Run
	}
	if !policy.Type.Repeats() || !policy.Enforce {
		if t.over = a.ledger.IsDone(f.key, f.alert.Episode, policy); t.over {
			return time.Time{}
		}
	}
	decision := remedy.Decide(policy, &a.ledger, a.facts(ctx, f, i, node()), now.At)
	if decision.Verdict == remedy.Refuse {
		return a.refuse(f, i, decision, now)
	}
	t.refused = ""
	if err := a.begin(ctx, f, i, policy, now); err != nil {
		a.metrics.writeErrors.Inc()
		a.config.Logger.Error("Nothing is done because the intent of an action cannot be written", "err", err)
		t.next = now.At.Add(recheck)
		return t.next
	}
	return time.Time{}
}

// policy returns the policy of an action as the configuration allows it.
func (a *Actor) policy(action *rule.Action) remedy.Policy {
	policy := action.WithDefaults()
	if a.config.NeverEnforce && policy.Type.IsDisruptive() {
		policy.Enforce = false
	}
	return policy
}

// facts collects what is known for a decision.
func (a *Actor) facts(ctx context.Context, f *firing, i int, node remedy.Node) remedy.Facts {
	facts := remedy.Facts{
		Object: f.object, FiredAt: f.firedAt, Muted: f.alert.Mute.IsMuted(), OnlyIf: true, Pod: a.podFacts(ctx, f.object), Node: node,
	}
	if f.alert.Freeze != nil {
		facts.Node.RuntimeUnknown = true
	}
	if f.actions[i].OnlyIf != "" {
		facts.OnlyIf, facts.NotAllowed = onlyIf(f, i)
	}
	if breaker := a.ledger.Breaker; breaker != nil {
		facts.Breaker, facts.SuspendedUntil = breaker.Reason, breaker.Until()
	}
	return facts
}

func onlyIf(f *firing, i int) (allowed bool, why string) {
	if f.allows == nil {
		return false, "only_if cannot be evaluated"
	}
	allowed, err := f.allows(i)
	if err != nil {
		return false, fmt.Sprintf("only_if: %v", err)
	}
	return allowed, "only_if is not true: " + f.actions[i].OnlyIf
}

// refuse notes a refusal and returns when to decide again.
func (a *Actor) refuse(f *firing, i int, decision remedy.Decision, now remedy.Instant) time.Time {
	t, policy := &f.tasks[i], a.policy(&f.actions[i])
	isPassing := decision.Reason == remedy.ReasonSettling || decision.Reason == remedy.ReasonStarting || decision.Reason == remedy.ReasonBusy
	if t.refused != decision.Reason && !isPassing {
		t.refused = decision.Reason
		a.recordRefusal(Record{
			Entry: a.newEntry(f, policy, now), Decision: remedy.Refuse, Reason: decision.Reason, Refusal: decision.Message, Until: decision.Until,
		})
	}
	switch {
	case decision.Reason == remedy.ReasonPolicy || decision.Reason == remedy.ReasonObject:
		t.over = true // only another rule changes it
		return time.Time{}
	case decision.Reason == remedy.ReasonBusy:
		return time.Time{} // the end of the other deed wakes Run
	case !decision.Until.After(now.At):
		t.next = now.At.Add(recheck) // also if it is not known
	default:
		t.next = decision.Until
	}
	return t.next
}

// hasRoom reports whether another deed of this kind can begin now.
func (a *Actor) hasRoom(policy remedy.Policy) bool {
	switch {
	case !policy.Enforce:
		return true
	case policy.Type.IsDisruptive():
		return !a.work.disruptive
	default:
		return a.work.others < maxOthers
	}
}

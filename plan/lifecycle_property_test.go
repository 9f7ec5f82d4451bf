package plan_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func drawUpdate(t *rapid.T) plan.Update {
	u := plan.Update{Op: rapid.SampledFrom([]plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync, plan.OpKill}).Draw(t, "op")}
	if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
		u.RunningPod = runningSeen()
		return u
	}
	u.Pod = mortal(rapid.SampledFrom([]podid.Source{podid.API, podid.File}).Draw(t, "source"))
	if rapid.IntRange(0, 3).Draw(t, "deleted") == 0 {
		deleted(rapid.Int64Range(0, 100).Draw(t, "grace"))(u.Pod)
	}
	if rapid.IntRange(0, 5).Draw(t, "ended") == 0 {
		u.Pod.Status.Phase = v1.PodFailed
	}
	if u.Op == plan.OpKill {
		u.Kill.Evict = rapid.Bool().Draw(t, "evict")
		if rapid.Bool().Draw(t, "shortens") {
			grace := time.Duration(rapid.IntRange(-1, 100).Draw(t, "seconds")) * time.Second
			u.Kill.GracePeriod = &grace
		}
	}
	return u
}

// transitions are what a worker may tell a life, by the step that it was on.
func transition(t *rapid.T, l plan.Lifecycle) plan.Lifecycle {
	switch l.Step() {
	case plan.StepSync:
		return rapid.SampledFrom([]func() plan.Lifecycle{l.Start, l.CompleteSync, l.Reject}).Draw(t, "sync")()
	case plan.StepTerminate:
		if l.NeverStarted() {
			return l.FinishUnstarted()
		}
		return rapid.SampledFrom([]func() plan.Lifecycle{l.StartTerminating, l.CompleteTerminating}).Draw(t, "terminate")()
	case plan.StepCleanUp:
		return l.CompleteTerminated(l.ShouldRemoveContent())
	case plan.StepRemove:
		return l.CompleteTerminated(true)
	default:
		return l
	}
}

func TestPW7ALifeOnlyGoesForwardAndItsGraceOnlyShrinks(t *testing.T) { // PW-6, PW-8, PW-20
	rapid.Check(t, func(t *rapid.T) {
		seen := rapid.SampledFrom([]*observed.Pod{nil, {}, nothingSeen(), runningSeen()}).Draw(t, "seen")
		var life plan.Lifecycle
		for range rapid.IntRange(1, 30).Draw(t, "length") {
			before, effects := life, plan.Effects{}
			if rapid.Bool().Draw(t, "update") {
				life, effects = life.Apply(drawUpdate(t), seen)
			} else if life.Op != 0 {
				life = transition(t, life)
			}
			checkForward(t, before, life, effects)
		}
	})
}

func checkForward(t *rapid.T, before, after plan.Lifecycle, effects plan.Effects) {
	switch {
	case after.Stage < before.Stage:
		t.Fatalf("%s became %s", before.Stage, after.Stage)
	case before.GracePeriod > 0 && after.GracePeriod > before.GracePeriod:
		t.Fatalf("the grace grew from %v to %v", before.GracePeriod, after.GracePeriod)
	case after.Stage == plan.Terminating && after.GracePeriod < time.Second:
		t.Fatalf("a grace of %v", after.GracePeriod)
	case before.Deleted && !after.Deleted, before.StartedTerminating && !after.StartedTerminating, before.Started && !after.Started:
		t.Fatalf("something was undone: %+v became %+v", before, after)
	case before.Stage == plan.Syncing && before.Op != 0 && after.Stage == plan.Terminating && after.Op != before.Op && !effects.Interrupt:
		t.Fatal("the pod must end, and the step goes on")
	case before.Pod != nil && after.Pod == nil:
		t.Fatal("the spec was forgotten")
	}
}

func TestEveryLifeEndsWhenItsStepsAreTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		life, effects := plan.Lifecycle{}.Apply(drawUpdate(t), nothingSeen())
		if effects.Ignored {
			return
		}
		life, _ = life.Orphan()
		for range 5 {
			if life.NeverStarted() {
				life = life.FinishUnstarted()
			}
			switch life.Step() {
			case plan.StepTerminate:
				life = life.StartTerminating().CompleteTerminating()
			case plan.StepCleanUp, plan.StepRemove:
				life = life.CompleteTerminated(true)
			case plan.StepIdle:
				return
			}
		}
		t.Fatalf("it is %s and its next step is %v", life.Stage, life.Step())
	})
}

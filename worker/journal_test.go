package worker_test

import (
	"errors"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/worker"
)

// inDurableWorld is inWorld with a folder that outlives agents.
func inDurableWorld(t *testing.T, story func(*world)) {
	t.Helper()
	state, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	inWorldWith(t, func(c *worker.Config) { c.State = state }, story)
}

// loseEverything ends the agent before anybody has heard what it knows, and takes away all that the runtime knew.
func (w *world) loseEverything() {
	w.stop()
	w.engine = engine.New()
	w.boot()
}

func TestBUG41ARunOncePodDoesNotRunTwiceThoughAllRecordsAreLost(t *testing.T) {
	inDurableWorld(t, func(w *world) {
		job := apiPod("job", policy(v1.RestartPolicyNever))
		w.create(job)
		w.wantPhase(job, v1.PodRunning)
		w.loseEverything()
		w.create(job)
		w.wantPhase(job, v1.PodFailed)
		if starts := w.engine.Calls("StartContainer"); starts != 0 {
			w.Errorf("it was started %d times again", starts)
		}
		status, _ := w.statuses.GetPodStatus(job.UID)
		if end := status.ContainerStatuses[0].LastTerminationState.Terminated; end == nil || end.Reason != "ContainerStatusUnknown" {
			w.Errorf("its end is told as %+v", end)
		}
	})
}

func TestBUG41OtherPodsRunAgain(t *testing.T) {
	for _, again := range []v1.RestartPolicy{v1.RestartPolicyOnFailure, v1.RestartPolicyAlways} {
		t.Run(string(again), func(t *testing.T) {
			inDurableWorld(t, func(w *world) {
				web := apiPod("web", policy(again))
				w.create(web)
				w.loseEverything()
				w.create(web)
				w.wantPhase(web, v1.PodRunning)
			})
		})
	}
}

func TestBUG41AStartThatCameToNothingIsNoRun(t *testing.T) {
	inDurableWorld(t, func(w *world) {
		heal := w.engine.Break(engine.Method("StartContainer"), engine.Fault{Err: errors.New("no such image")})
		job := apiPod("job", policy(v1.RestartPolicyNever))
		w.create(job)
		heal()
		w.restartAgent()
		w.create(job)
		w.wantPhase(job, v1.PodRunning)
	})
}

func TestBUG41WhatWasBegunOfAPodThatIsGoneIsForgotten(t *testing.T) {
	inDurableWorld(t, func(w *world) {
		job, other := apiPod("job", policy(v1.RestartPolicyNever)), apiPod("other", policy(v1.RestartPolicyNever))
		w.create(job)
		w.loseEverything()
		w.housekeep() // nobody wants it any more
		w.create(other)
		w.loseEverything()
		w.create(job)
		w.wantPhase(job, v1.PodRunning)
		w.create(other)
		w.wantPhase(other, v1.PodFailed)
	})
}

func TestF18AnUnreadableJournalIsToldAndSetAside(t *testing.T) {
	dir := t.TempDir()
	state, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	if err := state.Save("begun", 1, []byte(`["no map"]`)); err != nil {
		t.Fatal(err)
	}
	inWorldWith(t, func(c *worker.Config) { c.State = state }, func(w *world) {
		job := apiPod("job", policy(v1.RestartPolicyNever))
		w.create(job)
		w.wantPhase(job, v1.PodRunning)
	})
	if aside, err := filepath.Glob(filepath.Join(dir, "begun.corrupt*")); err != nil || len(aside) != 1 {
		t.Errorf("set aside is %q, %v", aside, err)
	}
}

package worker_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/worker"
)

// runWithState is run with a state directory that survives agent restarts.
func runWithState(t *testing.T, test func(*harness)) {
	t.Helper()
	state, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	runWith(t, func(config *worker.Config) { config.State = state }, test)
}

// loseEverything restarts the agent with an empty runtime, before any status was sent.
func (h *harness) loseEverything() {
	h.stop()
	h.runtime = fakeruntime.New()
	h.start()
}

func TestBUG41_RunOncePod(t *testing.T) {
	runWithState(t, func(h *harness) {
		job := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever))
		h.create(job)
		h.wantPhase(job, v1.PodRunning)
		h.loseEverything()
		h.create(job)
		h.wantPhase(job, v1.PodFailed)
		if starts := h.runtime.CallCount("StartContainer"); starts != 0 {
			h.Errorf("got %d starts, want 0", starts)
		}
		status := h.status(job)
		if end := status.ContainerStatuses[0].LastTerminationState.Terminated; end == nil || end.Reason != "ContainerStatusUnknown" {
			h.Errorf("got %+v, want ContainerStatusUnknown", end)
		}
	})
}

func TestBUG41_RestartablePods(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyOnFailure, v1.RestartPolicyAlways} {
		t.Run(string(policy), func(t *testing.T) {
			runWithState(t, func(h *harness) {
				web := newAPIPod("web", withRestartPolicy(policy))
				h.create(web)
				h.loseEverything()
				h.create(web)
				h.wantPhase(web, v1.PodRunning)
			})
		})
	}
}

func TestBUG41_FailedStart(t *testing.T) {
	runWithState(t, func(h *harness) {
		heal := h.runtime.Inject(fakeruntime.Method("StartContainer"), fakeruntime.Fault{Err: errors.New("no such image")})
		job := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever))
		h.create(job)
		heal()
		h.restartAgent()
		h.create(job)
		h.wantPhase(job, v1.PodRunning)
	})
}

func TestBUG41_JournalPruned(t *testing.T) {
	runWithState(t, func(h *harness) {
		job, other := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever)), newAPIPod("other", withRestartPolicy(v1.RestartPolicyNever))
		h.create(job)
		h.loseEverything()
		h.housekeep() // the pod is no longer desired
		h.create(other)
		h.loseEverything()
		h.create(job)
		h.wantPhase(job, v1.PodRunning)
		h.create(other)
		h.wantPhase(other, v1.PodFailed)
	})
}

// TestBUG41_EarlierJournal checks that the journal of an earlier version is read.
func TestBUG41_EarlierJournal(t *testing.T) {
	state, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	job := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever))
	payload := fmt.Sprintf(`{%q: {%q: {"sandbox": "gone", "at": "2026-01-01T00:00:00Z"}}}`, job.UID, job.Spec.Containers[0].Name)
	if err := state.Save("begun", 1, []byte(payload)); err != nil {
		t.Fatal(err)
	}
	runWith(t, func(config *worker.Config) { config.State = state }, func(h *harness) {
		h.create(job)
		h.wantPhase(job, v1.PodFailed)
	})
}

func TestF18_CorruptJournal(t *testing.T) {
	dir := t.TempDir()
	state, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	if err := state.Save("begun", 1, []byte(`["not a map"]`)); err != nil {
		t.Fatal(err)
	}
	runWith(t, func(config *worker.Config) { config.State = state }, func(h *harness) {
		job := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever))
		h.create(job)
		h.wantPhase(job, v1.PodRunning)
	})
	if files, err := filepath.Glob(filepath.Join(dir, "begun.corrupt*")); err != nil || len(files) != 1 {
		t.Errorf("got corrupt files %q, %v, want one", files, err)
	}
}

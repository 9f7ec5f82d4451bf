package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// execute does what was decided, in the order of the decision. Whatever it did or tried is looked at at once, to tell what
// came of it, and before the next step decides anything: a call may have done its work although its answer was lost.
func (w *Workers) execute(ctx context.Context, t *turn, l *look, actions plan.Actions) result {
	if !actions.KillPod && actions.Sandbox == nil && len(actions.Stop) == 0 && len(actions.Start) == 0 {
		t.memory.busy = 0
		return result{after: jittered(w.config.Resync)} // PW-32
	}
	got := w.act(ctx, t, l, actions)
	if got.known {
		t.memory.busy = 0
		return got // nothing was tried
	}
	// A pod with which nothing comes of anything must not spin.
	got.after = min(time.Duration(t.memory.busy)*time.Second, w.config.Backoff)
	t.memory.busy++
	t.memory.newerThan = time.Now()
	w.config.PodCache.Refresh(t.uid)
	return got
}

func (w *Workers) act(ctx context.Context, t *turn, l *look, actions plan.Actions) result {
	if actions.KillPod {
		if len(l.seen.Sandboxes) > 0 {
			w.config.Events.Event(t.life.Pod, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it is made anew.")
		}
		if err := w.stopAll(ctx, t, l.seen, plan.GracePeriod(t.life.Pod)); err != nil {
			w.event(ctx, t, "FailedKillPod", "error killing pod: "+err.Error())
			return w.failed(err)
		}
	}
	sandbox, err := w.sandbox(ctx, t, l.seen, actions.Sandbox)
	if err != nil {
		w.event(ctx, t, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		return w.failed(err)
	}
	stuck, err := w.stopSome(ctx, t, l.seen, actions.Stop)
	got := w.start(ctx, t, sandbox, actions.Start, stuck)
	if err != nil {
		return w.failed(errors.Join(err, got.err))
	}
	got.known = got.known && !actions.KillPod && actions.Sandbox == nil && len(actions.Stop) == 0
	return got
}

// sandbox is where containers are started: the newest one, or the one that is made now. That it was made is told at once,
// for pulling images may take minutes (GEN-30).
func (w *Workers) sandbox(ctx context.Context, t *turn, seen *observed.Pod, wanted *plan.NewSandbox) (string, error) {
	if wanted == nil {
		newest, _ := seen.NewestSandbox()
		return newest.ID, nil
	}
	id, err := w.config.Runtime.StartSandbox(ctx, t.life.Pod, wanted.Attempt)
	if err != nil {
		return "", fmt.Errorf("make sandbox %d of pod %s: %w", wanted.Attempt, t.identity(), err)
	}
	if status, known := w.config.Statuses.GetPodStatus(t.life.Pod.UID); known {
		w.config.Statuses.SetPodStatus(t.life.Pod, derive.WithSandboxReady(t.life.Pod, status))
	}
	return id, nil
}

// stopSome stops single instances side by side. It returns the names of those that could not be stopped.
func (w *Workers) stopSome(ctx context.Context, t *turn, seen *observed.Pod, stops []plan.Stop) (map[string]bool, error) {
	endings := make([]plan.OrderedStop, 0, len(stops))
	for _, stop := range stops {
		endings = append(endings, plan.OrderedStop{Stop: stop})
	}
	failures := w.endEach(ctx, t, endings)
	stuck := map[string]bool{}
	for _, c := range seen.Containers {
		if failures[c.ID] != nil {
			stuck[c.Name] = true
		}
	}
	return stuck, joined(failures)
}

// start starts containers one after the other, as the spec has them: a postStart hook that takes its time keeps the next
// container waiting, and there are pods that count on it. One that failed rests, unless somebody wants something.
func (w *Workers) start(ctx context.Context, t *turn, sandbox string, starts []plan.Start, stuck map[string]bool) result {
	got := result{known: len(starts) > 0}
	for _, start := range starts {
		name := start.Container.Name
		if stuck[name] || ctx.Err() != nil {
			continue
		}
		failure, failed := t.memory.failed[name]
		if rests := failed && t.now.Before(failure.notBefore) && !t.hurried; !rests {
			failure = w.startOne(ctx, t, sandbox, start)
			got.known = false
		}
		if failure.err == nil {
			continue
		}
		if after := time.Until(failure.notBefore); got.err == nil || after < got.after {
			got.after = after
		}
		got.err = errors.Join(got.err, failure.err)
		if start.Kind == derive.InitContainer {
			break
		}
	}
	return got
}

// startOne starts a container, and remembers for its status why it could not.
func (w *Workers) startOne(ctx context.Context, t *turn, sandbox string, start plan.Start) failedStart {
	name := start.Container.Name
	err := w.journal.begin(t.life.Pod, sandbox, start, t.now)
	if err == nil {
		err = w.config.Runtime.StartContainer(ctx, t.life.Pod, sandbox, start)
	}
	if err == nil {
		delete(t.memory.failed, name)
		return failedStart{}
	}
	reason := "RunContainerError"
	var said interface{ WaitingReason() string }
	if errors.As(err, &said) {
		reason = said.WaitingReason()
	}
	rest := w.failed(fmt.Errorf("start container %s of pod %s: %w", name, t.identity(), err))
	failure := failedStart{
		waiting: derive.Waiting{Reason: reason, Message: err.Error()}, err: rest.err, notBefore: time.Now().Add(rest.after),
	}
	if t.memory.failed == nil {
		t.memory.failed = map[string]failedStart{}
	}
	t.memory.failed[name] = failure
	return failure
}

// waiting is why containers wait, as far as it was tried to start them. The map is the caller's.
func (m *memory) waiting() map[string]derive.Waiting {
	waiting := map[string]derive.Waiting{}
	for name, failure := range m.failed {
		waiting[name] = failure.waiting
	}
	return waiting
}

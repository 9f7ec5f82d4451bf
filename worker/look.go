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

// look is what a step knows of its pod before it decides.
type look struct {
	// pod has the status that the API server is known to show.
	pod       *v1.Pod
	previous  *v1.PodStatus
	seen      *observed.Pod
	probes    derive.ProbeResults
	unhealthy map[observed.ContainerID]string
}

// look sees the pod as it is after all that we did to it (PW-26).
func (w *Workers) look(ctx context.Context, t *turn) (*look, error) {
	seen, err := w.observe(ctx, t)
	if err != nil {
		return nil, err
	}
	l := &look{seen: seen}
	if t.life.Pod == nil {
		return l, nil
	}
	t.life.Pod = w.config.Allocated(t.life.Pod) // PW-13
	if status, known := w.config.Statuses.GetPodStatus(t.life.Pod.UID); known {
		l.previous = &status
	}
	l.pod = withMirrorsStatus(t.life, l.previous == nil && !seen.Running())
	if recalled := w.journal.recall(l.pod, l.status(), seen); recalled != l.status() {
		l.previous = recalled
	}
	l.probes, l.unhealthy = w.config.Probes.Results(t.uid)
	return l, nil
}

// observe waits for a look at the runtime that is new enough, and asks for one rather than wait for the next (BUG-27).
func (w *Workers) observe(ctx context.Context, t *turn) (*observed.Pod, error) {
	if seen := w.config.PodCache.Get(t.uid); seen.At.After(t.memory.newerThan) {
		return seen, nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.config.ObserveTimeout)
	defer cancel()
	w.config.PodCache.Refresh(t.uid)
	seen, err := w.config.PodCache.GetNewerThan(ctx, t.uid, t.memory.newerThan)
	if err != nil {
		err = fmt.Errorf("see what runs of pod %s: %w", t.identity(), err)
		w.event(ctx, t, "FailedSync", "error determining status: "+err.Error())
	}
	return seen, err
}

// withMirrorsStatus is the pod with the status that the API server shows of it: a static pod's is in its mirror. That the pod
// has ended is only believed of an earlier agent, which said so: whoever else writes to a mirror has no say in what this node
// runs.
func withMirrorsStatus(life plan.Lifecycle, believed bool) *v1.Pod {
	if !life.IsStatic() || life.Mirror == nil {
		return life.Pod
	}
	pod := *life.Pod
	pod.Status = life.Mirror.Status
	if derive.IsTerminal(pod.Status.Phase) && !believed {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = "", "", ""
	}
	return &pod
}

func (l *look) status() *v1.PodStatus {
	if l.previous != nil {
		return l.previous
	}
	return &l.pod.Status
}

// decide asks what is to be done. Restart counts of containers that the runtime has forgotten are in the newest status.
func (l *look) decide(t *turn) plan.Actions {
	pod := *l.pod
	pod.Status = *l.status()
	in := plan.Input{
		Pod: &pod, Observed: l.seen, Unhealthy: l.unhealthy, Backoff: t.memory.backoff, Now: t.now,
		Started: map[observed.ContainerID]bool{},
	}
	for id, facts := range l.probes {
		in.Started[id] = facts.Startup == derive.ProbeSuccess
	}
	if start := pod.Status.StartTime; start != nil {
		in.StartTime = start.Time
	}
	return plan.ComputeActions(in)
}

// input is what the pod's status follows from.
func (w *Workers) input(t *turn, l *look) derive.Input {
	return derive.Input{
		Pod: l.pod, Previous: l.previous, Observed: l.seen, Probes: l.probes, Waiting: t.memory.waiting(),
		Resize: w.config.ResizeState(t.uid), Node: w.config.NodeInfo(), Now: time.Now(),
	}
}

// publish derives the status, with the last kill's word on it, and returns the one that is now kept.
func (w *Workers) publish(t *turn, in derive.Input) v1.PodStatus {
	status := derive.Status(in)
	if t.life.StatusFunc != nil && !in.Terminating {
		t.life.StatusFunc(&status)
	}
	kept, _ := w.config.Statuses.SetPodStatus(t.life.Pod, status)
	w.measureStart(t, in, kept.Phase)
	return kept
}

// measureStart times a pod's start once, when it is first seen to run and was not running before (BUG-34).
func (w *Workers) measureStart(t *turn, in derive.Input, phase v1.PodPhase) {
	if t.memory.started || phase != v1.PodRunning {
		return
	}
	t.memory.started = true
	before := in.Pod.Status.Phase
	if in.Previous != nil {
		before = in.Previous.Phase
	}
	if before != v1.PodRunning {
		w.metrics.podStarted(time.Since(t.since))
	}
}

// event tells an operator of the pod's trouble, unless the trouble is only that the step is no longer wanted.
func (w *Workers) event(ctx context.Context, t *turn, reason, message string) {
	if t.life.Pod != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		w.config.Events.Event(t.life.Pod, v1.EventTypeWarning, reason, message)
	}
}

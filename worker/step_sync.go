package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
)

// sync brings the pod nearer to what it should be (PW-35). The status is published before anything slow.
func (w *Workers) sync(ctx context.Context, t *turn) result {
	if !t.admission.asked {
		if got, rests := t.resting(); rests {
			return got
		}
		if err := w.askAbout(ctx, t); err != nil {
			return w.failed(err)
		}
	}
	if t.admission.err != nil {
		return w.reject(t)
	}
	l, err := w.look(ctx, t)
	if err != nil {
		return w.failed(err)
	}
	actions := l.decide(t)
	t.memory.backoff = actions.Backoff
	status := w.publish(t, w.syncInput(t, l, actions))
	t.memory.rejections = 0
	w.tellCrashLoops(t, actions.Waiting)
	if actions.Evict != nil {
		w.config.Events.Event(t.life.Pod, v1.EventTypeNormal, actions.Evict.Reason, actions.Evict.Message)
	}
	if actions.Done || actions.Evict != nil || derive.IsTerminal(status.Phase) {
		w.move(t, plan.Lifecycle.CompleteSync) // PW-27
		return result{}
	}
	got, rests := t.resting()
	if !rests {
		got = w.converge(ctx, t, l, actions)
	}
	if !actions.RequeueAt.IsZero() {
		got.after = min(got.after, max(0, time.Until(actions.RequeueAt)))
	}
	return got
}

// tellCrashLoops tells once of each time that a container has to wait until it is started again.
func (w *Workers) tellCrashLoops(t *turn, waiting map[string]derive.Waiting) {
	for name, why := range waiting {
		if t.memory.waits[name].Equal(why.Until) {
			continue
		}
		if t.memory.waits == nil {
			t.memory.waits = map[string]time.Time{}
		}
		t.memory.waits[name] = why.Until
		w.config.Events.Event(containerReference(t.life.Pod, name), v1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s(%s)", name, t.life.Name, t.uid))
	}
}

func (w *Workers) syncInput(t *turn, l *look, actions plan.Actions) derive.Input {
	in := w.input(t, l)
	for name, waiting := range actions.Waiting {
		in.Waiting[name] = waiting
	}
	keepWaiting(in.Waiting, actions.Start, l.status())
	if actions.Evict != nil {
		in.Eviction = actions.Evict
	}
	if t.life.IsStatic() {
		in.Pod, in.Previous = withoutRejection(in.Pod, in.Previous)
	}
	return in
}

// keepWaiting has containers whose back-off is over wait as they were shown to, until they are started: how they ended is no
// news by then.
func keepWaiting(waiting map[string]derive.Waiting, starts []plan.Start, shown *v1.PodStatus) {
	all := slices.Concat(shown.InitContainerStatuses, shown.ContainerStatuses)
	for _, start := range starts {
		name := start.Container.Name
		at := slices.IndexFunc(all, func(c v1.ContainerStatus) bool { return c.Name == name })
		if _, known := waiting[name]; known || at < 0 {
			continue
		}
		if was := all[at].State.Waiting; was != nil && was.Reason == plan.ReasonCrashLoopBackOff {
			waiting[name] = derive.Waiting{Reason: was.Reason, Message: was.Message}
		}
	}
}

// withoutRejection forgets why a pod was rejected that is admitted now: the status would carry it along (PH-18). Its mirror
// may say it for a while yet, and that of an earlier agent's pod from the beginning.
func withoutRejection(pod *v1.Pod, previous *v1.PodStatus) (*v1.Pod, *v1.PodStatus) {
	word := derive.RejectedStatus(pod, "", "").Message
	if strings.HasPrefix(pod.Status.Message, word) {
		admitted := *pod
		admitted.Status.Reason, admitted.Status.Message = "", ""
		pod = &admitted
	}
	if previous != nil && strings.HasPrefix(previous.Message, word) {
		status := *previous
		status.Reason, status.Message = "", ""
		previous = &status
	}
	return pod, previous
}

// converge acts on a decision.
func (w *Workers) converge(ctx context.Context, t *turn, l *look, actions plan.Actions) result {
	if err := w.config.NetworkReady(); err != nil && !l.pod.Spec.HostNetwork {
		err = fmt.Errorf("network is not ready: %w", err)
		known := t.trouble != nil && t.trouble.Error() == err.Error()
		if !known {
			w.event(ctx, t, "NetworkNotReady", err.Error())
		}
		return result{after: jittered(time.Second), err: err, known: known}
	}
	if err := w.mount(ctx, t); err != nil {
		return w.failed(err)
	}
	w.config.Probes.AddPod(t.life.Pod)
	return w.execute(ctx, t, l, actions)
}

func (w *Workers) mount(ctx context.Context, t *turn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.config.VolumeTimeout, errVolumesSlow)
	defer cancel()
	err := w.config.Volumes.Mount(ctx, t.life.Pod)
	if err != nil {
		w.event(ctx, t, "FailedMount", err.Error())
		err = fmt.Errorf("mount volumes of pod %s: %w", t.identity(), err)
	}
	return err
}

var errVolumesSlow = errors.New("the volumes took too long")

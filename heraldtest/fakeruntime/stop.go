package fakeruntime

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// minStop is what a container has between SIGTERM and SIGKILL, however long its hook took (PW-24).
const minStop = 2 * time.Second

// StopContainer runs the hook, asks the container to end, and kills it when the grace is over. Given up half-way, it has
// done what it has done.
func (r *Runtime) StopContainer(ctx context.Context, desired *v1.Pod, stop plan.Stop) error {
	r.mu.Lock()
	c := r.findLocked(stop.ID)
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	return r.do(ctx, Call{Method: "StopContainer", PodUID: c.pod.uid, Container: c.seen.Name}, func() error {
		left := stop.Grace
		if desired != nil && c.script.PreStopDuration > 0 {
			hook := min(c.script.PreStopDuration, left)
			if err := wait(ctx, hook, c.ended); err != nil {
				return err
			}
			left -= hook
		}
		r.mu.Lock()
		r.noteLocked("stop %s/%s", c.pod.name, c.seen.Name)
		r.askLocked(c)
		r.mu.Unlock()
		if err := wait(ctx, max(left, minStop), c.ended); err != nil {
			return err
		}
		r.end(c, exitKilled)
		return nil
	})
}

func (r *Runtime) findLocked(id observed.ContainerID) *container {
	for _, p := range r.pods {
		for _, c := range p.containers {
			if c.seen.ID == id {
				return c
			}
		}
	}
	return nil
}

// StopSandbox kills what runs in the sandbox, and it is ready no more.
func (r *Runtime) StopSandbox(ctx context.Context, id string) error {
	return r.do(ctx, Call{Method: "StopSandbox"}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, p := range r.pods {
			s := p.sandbox(id)
			if s == nil || !s.Ready {
				continue
			}
			for _, c := range p.containers {
				if c.seen.SandboxID == id {
					r.endLocked(c, exitKilled, "")
				}
			}
			s.Ready = false
			r.noteLocked("stop sandbox %s #%d", p.name, s.Attempt)
			r.tellLocked(p.uid)
		}
		return nil
	})
}

// RemovePod forgets a pod of which nothing runs.
func (r *Runtime) RemovePod(ctx context.Context, uid podid.UID) error {
	return r.do(ctx, Call{Method: "RemovePod", PodUID: uid}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		p, found := r.pods[uid]
		if !found {
			return nil
		}
		for _, c := range p.containers {
			if c.seen.State == observed.Running {
				r.blameLocked("%s was to be removed while %s ran", p.name, c.seen.Name)
				return fmt.Errorf("remove pod %s: container %s runs", p.name, c.seen.Name)
			}
		}
		delete(r.pods, uid)
		r.noteLocked("remove %s", p.name)
		r.tellLocked(uid)
		return nil
	})
}

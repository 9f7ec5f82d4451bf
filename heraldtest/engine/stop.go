package engine

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
func (e *Engine) StopContainer(ctx context.Context, desired *v1.Pod, stop plan.Stop) error {
	e.mu.Lock()
	c := e.findLocked(stop.ID)
	e.mu.Unlock()
	if c == nil {
		return nil
	}
	return e.do(ctx, Call{Method: "StopContainer", Pod: c.pod.uid, Container: c.seen.Name}, func() error {
		left := stop.Grace
		if desired != nil && c.script.PreStop > 0 {
			hook := min(c.script.PreStop, left)
			if err := wait(ctx, hook, c.ended); err != nil {
				return err
			}
			left -= hook
		}
		e.mu.Lock()
		e.noteLocked("stop %s/%s", c.pod.name, c.seen.Name)
		e.askLocked(c)
		e.mu.Unlock()
		if err := wait(ctx, max(left, minStop), c.ended); err != nil {
			return err
		}
		e.end(c, exitKilled)
		return nil
	})
}

func (e *Engine) findLocked(id observed.ContainerID) *container {
	for _, p := range e.pods {
		for _, c := range p.containers {
			if c.seen.ID == id {
				return c
			}
		}
	}
	return nil
}

// StopSandbox kills what runs in the sandbox, and it is ready no more.
func (e *Engine) StopSandbox(ctx context.Context, id string) error {
	return e.do(ctx, Call{Method: "StopSandbox"}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, p := range e.pods {
			s := p.sandbox(id)
			if s == nil || !s.Ready {
				continue
			}
			for _, c := range p.containers {
				if c.seen.SandboxID == id {
					e.endLocked(c, exitKilled, "")
				}
			}
			s.Ready = false
			e.noteLocked("stop sandbox %s #%d", p.name, s.Attempt)
			e.tellLocked(p.uid)
		}
		return nil
	})
}

// RemovePod forgets a pod of which nothing runs.
func (e *Engine) RemovePod(ctx context.Context, uid podid.UID) error {
	return e.do(ctx, Call{Method: "RemovePod", Pod: uid}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		p, found := e.pods[uid]
		if !found {
			return nil
		}
		for _, c := range p.containers {
			if c.seen.State == observed.Running {
				e.blameLocked("%s was to be removed while %s ran", p.name, c.seen.Name)
				return fmt.Errorf("remove pod %s: container %s runs", p.name, c.seen.Name)
			}
		}
		delete(e.pods, uid)
		e.noteLocked("remove %s", p.name)
		e.tellLocked(uid)
		return nil
	})
}

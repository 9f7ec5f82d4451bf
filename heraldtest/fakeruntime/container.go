package fakeruntime

import (
	"context"
	"math"
	"time"

	"github.com/heraldnode/herald/observed"
)

// Forever is how long something takes that never ends by itself.
const Forever time.Duration = math.MaxInt64

// Script is what a container does. The zero value pulls at once, has no hooks, runs until it is asked to end and then
// ends at once.
type Script struct {
	// Pull is how long its image takes to come; PullError is how that ends.
	PullDuration time.Duration
	PullErr      error
	// PostStart and PreStop are how long its hooks take.
	PostStartDuration, PreStopDuration time.Duration
	// Runs is how long it runs before it ends by itself with ExitCode. Zero: until it is stopped.
	RunDuration time.Duration
	ExitCode    int
	// Message is what it leaves behind as its termination message, however it ends.
	TerminationMessage string
	// Ending is how long it takes to end after SIGTERM. Forever: it ignores it.
	StopDuration time.Duration
}

// container is one instance. The engine's lock guards it.
type container struct {
	pod    *pod
	script Script
	seen   observed.Container
	ended  chan struct{}
	clock  *time.Timer // ends it when its time is over
	asked  bool        // SIGTERM was sent
}

const (
	exitTerminated = 143
	exitKilled     = 137
)

func (r *Runtime) runLocked(c *container) {
	c.seen.State, c.seen.StartedAt = observed.Running, time.Now()
	if c.script.RunDuration > 0 && c.script.RunDuration != Forever {
		c.clock = time.AfterFunc(c.script.RunDuration, func() { r.end(c, c.script.ExitCode) })
	}
}

func (r *Runtime) end(c *container, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(c, code, "")
}

func (r *Runtime) endLocked(c *container, code int, reason string) {
	if c.seen.State == observed.Exited {
		return
	}
	if c.clock != nil {
		c.clock.Stop()
	}
	if reason == "" {
		reason = "Error"
		if code == 0 {
			reason = "Completed"
		}
	}
	c.seen.State = observed.Exited
	c.seen.Exit = &observed.Exit{Code: code, Reason: reason, Message: c.script.TerminationMessage, FinishedAt: time.Now()}
	close(c.ended)
	r.tellLocked(c.pod.uid)
}

// askLocked sends SIGTERM. A second one changes nothing.
func (r *Runtime) askLocked(c *container) {
	if c.asked || c.seen.State != observed.Running {
		return
	}
	c.asked = true
	switch c.script.StopDuration {
	case 0:
		r.endLocked(c, exitTerminated, "")
	case Forever:
	default:
		time.AfterFunc(c.script.StopDuration, func() { r.end(c, exitTerminated) })
	}
}

// wait lets d pass, or less when ctx or ended is over before.
func wait(ctx context.Context, d time.Duration, ended <-chan struct{}) error {
	if d <= 0 {
		return ctx.Err()
	}
	var over <-chan time.Time
	if d != Forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return nil
	case <-over:
		return nil
	}
}

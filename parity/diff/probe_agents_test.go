package diff_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	probejudge "github.com/heraldnode/herald/probe/judge"
)

// chart is what one agent asked and made of it, from its start on.
type chart struct {
	ward  *ward
	shift int
	// made is what the agent has made of the answers that it got.
	made func(id string, kind probejudge.Kind) level

	mu sync.Mutex // guards all below
	// got counts the answers, by exam. levels is what was made of them, after each.
	got    map[exam]int
	levels map[exam]map[int]level
	asked  []question
	// open counts the commands that run.
	open  int
	wrong []string
}

// question is one command that was begun.
type question struct {
	kind probejudge.Kind
	at   time.Time
}

func newChart(w *ward, made func(string, probejudge.Kind) level) *chart {
	return &chart{ward: w, shift: w.shift, made: made, got: map[exam]int{}, levels: map[exam]map[int]level{}}
}

// exec is a command in a container, for at most that long. Commands are called after their kind of probe.
func (c *chart) exec(ctx context.Context, id, command string, timeout time.Duration) (code int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err // as a call to a runtime
	}
	e := exam{c.shift, id, kindOf(command)}
	n := c.begin(e)
	switch c.ward.answer(e, n) {
	case isIll:
		code = 1
	case isUnknown:
		err = errors.New("the runtime is away")
	case isMissing:
		err = errNotFound
	case isLate:
		select {
		case <-time.After(timeout):
			err = context.DeadlineExceeded
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if !errors.Is(err, context.Canceled) { // of which nobody learns
		c.got[e]++
	}
	return code, err
}

// begin writes down the question, and what was made of the answers before it.
func (c *chart) begin(e exam) int {
	level := c.made(e.id, e.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.asked = append(c.asked, question{e.kind, time.Now()})
	c.noteLocked(e, level)
	if p := c.ward.find(e.id); p != nil {
		delay := time.Duration(c.ward.probeOf(p, e.kind).InitialDelaySeconds) * time.Second
		if early := delay - time.Since(p.since); early > 0 {
			c.wrong = append(c.wrong, fmt.Sprintf("%v of %s was asked %v too early", e.kind, e.id, early))
		}
	}
	return c.got[e]
}

// note writes down what is made of the answers to now.
func (c *chart) note(e exam) {
	level := c.made(e.id, e.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteLocked(e, level)
}

func (c *chart) noteLocked(e exam, l level) {
	if c.levels[e] == nil {
		c.levels[e] = map[int]level{}
	}
	if before, known := c.levels[e][c.got[e]]; known && before != l {
		c.wrong = append(c.wrong, fmt.Sprintf("after %d answers: %v was %+v and is %+v", c.got[e], e, before, l))
	}
	c.levels[e][c.got[e]] = l
}

// times counts how often probes of that kind were begun since then.
func (c *chart) times(kind probejudge.Kind, since time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := 0
	for _, q := range c.asked {
		if q.kind == kind && !q.at.Before(since) {
			times++
		}
	}
	return times
}

// running is how many commands run.
func (c *chart) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func kindOf(command string) probejudge.Kind {
	for _, kind := range kinds {
		if kind.String() == command {
			return kind
		}
	}
	panic("nobody probes by " + command)
}

var kinds = []probejudge.Kind{probejudge.Startup, probejudge.Readiness, probejudge.Liveness}

// asking is a probe that asks each second, and decides at once.
func asking(kind probejudge.Kind) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{kind.String()}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
	}
}

// count is how many answers were got.
func (c *chart) count(e exam) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[e]
}

func (c *chart) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

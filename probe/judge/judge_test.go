package judge_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/probe/judge"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func containerID(id string) observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: id}
}

// newContainer returns a container that has been running for an hour.
func newContainer(id string) judge.Container {
	return judge.Container{
		ID: containerID(id), State: observed.Running, StartedAt: noon.Add(-time.Hour), Started: true, Reachable: true,
	}
}

func newParams(kind judge.Kind) judge.Params {
	return judge.Params{Kind: kind, Period: 10 * time.Second, FailureThreshold: 3, SuccessThreshold: 1}
}

// newProbe returns a probe that has observed the container. The container of a startup probe has not started.
func newProbe(params judge.Params, id string) judge.Probe {
	c := newContainer(id)
	c.Started = params.Kind != judge.Startup
	p, _, _ := judge.New(params).Due(c, noon)
	return p
}

// recordAll records results, one letter each, and returns the probe's result after each.
func recordAll(p judge.Probe, id, results string) (judge.Probe, string) {
	byLetter := map[rune]judge.Result{'+': judge.Success, '-': judge.Failure, 'e': judge.Error, 'g': judge.NotFound}
	letters := map[derive.ProbeResult]byte{derive.ProbeUnknown: '?', derive.ProbeSuccess: 'P', derive.ProbeFailure: 'F'}
	var shown []byte
	for _, letter := range results {
		p, _ = p.Record(containerID(id), byLetter[letter])
		shown = append(shown, letters[p.Result(containerID(id))])
	}
	return p, string(shown)
}

func TestPRB19_Thresholds(t *testing.T) {
	tests := map[string]struct {
		kind             judge.Kind
		failure, success int
		results, want    string
	}{
		"failures":                                 {judge.Readiness, 3, 1, "---", "??F"},
		"PRB-22 success resets failures":           {judge.Readiness, 3, 1, "+--+---", "PPPPPPF"},
		"successes":                                {judge.Readiness, 1, 3, "++-++++", "??FFFPP"},
		"PRB-18 error neither counts nor resets":   {judge.Readiness, 3, 1, "+-e-e-", "PPPPPF"},
		"error between successes":                  {judge.Readiness, 3, 2, "+e+", "??P"},
		"BUG-24 errors make unready":               {judge.Readiness, 1, 1, "+eee", "PPPF"},
		"BUG-24 as many errors as the threshold":   {judge.Readiness, 5, 1, "+eeeee", "PPPPPF"},
		"BUG-24 errors must be consecutive":        {judge.Readiness, 1, 1, "+ee+ee", "PPPPPP"},
		"BUG-24 successes count anew after errors": {judge.Readiness, 1, 2, "++eee++", "?PPPFFP"},
		"BUG-24 container not found":               {judge.Readiness, 3, 1, "+g", "PF"},
		"BUG-24 errors do not fail liveness":       {judge.Liveness, 1, 1, "+eeeeeeg", "PPPPPPPP"},
		"errors do not fail startup":               {judge.Startup, 1, 1, "eeeeg+", "?????P"},
		"PRB-20 liveness failed":                   {judge.Liveness, 2, 1, "+--+++", "PPFFFF"},
		"PRB-20 startup succeeded":                 {judge.Startup, 1, 1, "+---", "PPPP"},
		"PRB-20 startup failed":                    {judge.Startup, 2, 1, "--+", "?FF"},
		"PRB-20 readiness continues":               {judge.Readiness, 1, 1, "-+-+", "FPFP"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			params := judge.Params{
				Kind: test.kind, Period: time.Second, FailureThreshold: test.failure, SuccessThreshold: test.success,
			}
			if _, got := recordAll(newProbe(params, "a"), "a", test.results); got != test.want {
				t.Fatalf("%s: got %s, want %s", test.results, got, test.want)
			}
		})
	}
}

func TestPRB12_Due(t *testing.T) {
	tests := map[string]struct {
		kind       judge.Kind
		modify     func(*judge.Container)
		due        bool
		retryAfter time.Duration
	}{
		"running":                                      {kind: judge.Readiness, due: true},
		"PRB-11 no container":                          {kind: judge.Readiness, modify: func(c *judge.Container) { c.ID = observed.ContainerID{} }, retryAfter: 10 * time.Second},
		"PRB-14 created":                               {kind: judge.Readiness, modify: func(c *judge.Container) { c.State = observed.Created }, retryAfter: 10 * time.Second},
		"PRB-14 exited":                                {kind: judge.Liveness, modify: func(c *judge.Container) { c.State = observed.Exited }, retryAfter: 10 * time.Second},
		"PRB-14 unknown":                               {kind: judge.Liveness, modify: func(c *judge.Container) { c.State = observed.Unknown }, retryAfter: 10 * time.Second},
		"PRB-15 initial delay":                         {kind: judge.Liveness, modify: func(c *judge.Container) { c.StartedAt = noon.Add(-4 * time.Second) }, retryAfter: time.Second},
		"PRB-15 initial delay over":                    {kind: judge.Liveness, modify: func(c *judge.Container) { c.StartedAt = noon.Add(-5 * time.Second) }, due: true},
		"PRB-17 readiness waits for startup":           {kind: judge.Readiness, modify: func(c *judge.Container) { c.Started = false }, retryAfter: 10 * time.Second},
		"PRB-17 liveness waits for startup":            {kind: judge.Liveness, modify: func(c *judge.Container) { c.Started = false }, retryAfter: 10 * time.Second},
		"PRB-16 startup succeeded under another agent": {kind: judge.Startup, retryAfter: 10 * time.Second},
		"startup not succeeded":                        {kind: judge.Startup, modify: func(c *judge.Container) { c.Started = false }, due: true},
		"PRB-30 no address":                            {kind: judge.Readiness, modify: func(c *judge.Container) { c.Reachable = false }, retryAfter: 10 * time.Second},
		"PRB-4 spread":                                 {kind: judge.Readiness, modify: func(c *judge.Container) { c.Delay = 7 * time.Second }, retryAfter: 7 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			params := newParams(test.kind)
			params.InitialDelay = 5 * time.Second
			c := newContainer("a")
			if test.modify != nil {
				test.modify(&c)
			}
			_, due, retryAt := judge.New(params).Due(c, noon)
			if due != test.due || (!due && retryAt.Sub(noon) != test.retryAfter) {
				t.Fatalf("got due %v, retry after %v; want %v, %v", due, retryAt.Sub(noon), test.due, test.retryAfter)
			}
		})
	}
}

func TestPRB14_ExitedNotReady(t *testing.T) {
	p, _ := recordAll(newProbe(newParams(judge.Readiness), "a"), "a", "+")
	c := newContainer("a")
	c.State = observed.Exited
	p, _, _ = p.Due(c, noon)
	if p.Result(containerID("a")) != derive.ProbeFailure {
		t.Fatal("got ready, want failure")
	}
	if p, changed := p.Record(containerID("a"), judge.Success); changed || p.Result(containerID("a")) != derive.ProbeFailure {
		t.Fatal("got a change by a due in flight, want none")
	}
}

func TestPRB12_StartedUnderOtherAgent(t *testing.T) {
	p, _, _ := judge.New(newParams(judge.Startup)).Due(newContainer("a"), noon)
	if p.Result(containerID("a")) != derive.ProbeSuccess {
		t.Fatal("got no success, want success")
	}
}

func TestBUG22_NewContainer(t *testing.T) {
	params := newParams(judge.Readiness)
	params.SuccessThreshold = 4
	p, _ := recordAll(newProbe(params, "a"), "a", "++++")
	p, due, _ := p.Due(newContainer("b"), noon)
	if !due || p.Result(containerID("a")) != derive.ProbeUnknown || p.Result(containerID("b")) != derive.ProbeUnknown {
		t.Fatal("got a result of the previous container, want none")
	}
	if _, got := recordAll(p, "b", "++++"); got != "???P" {
		t.Fatalf("got %s, want ???P", got)
	}
}

func TestSM14_ReplacedContainer(t *testing.T) {
	p := newProbe(newParams(judge.Readiness), "b")
	if _, got := recordAll(p, "a", "----"); got != "????" {
		t.Fatalf("got %s, want ????", got)
	}
}

func TestBUG36_OncePerPeriod(t *testing.T) {
	p := newProbe(newParams(judge.Readiness), "a")
	_, due, retryAt := p.Due(newContainer("a"), noon.Add(3*time.Second))
	if due || !retryAt.Equal(noon.Add(10*time.Second)) {
		t.Fatalf("got due %v, retry at %v, want later", due, retryAt)
	}
	if _, due, _ = p.Due(newContainer("a"), noon.Add(10*time.Second)); !due {
		t.Fatal("got not due after a period, want due")
	}
}

func TestPRB3_WithParams(t *testing.T) {
	p, _ := recordAll(newProbe(newParams(judge.Readiness), "a"), "a", "+--")
	if _, got := recordAll(p.WithParams(newParams(judge.Readiness)), "a", "---"); got != "PPF" {
		t.Fatalf("got %s, want PPF", got)
	}
}

func TestPRB3_OtherPeriod(t *testing.T) {
	slow, fast := newParams(judge.Readiness), newParams(judge.Readiness)
	slow.Period = time.Hour
	p := newProbe(slow, "a").WithParams(fast)
	_, due, retryAt := p.Due(newContainer("a"), noon.Add(3*time.Second))
	if due || !retryAt.Equal(noon.Add(10*time.Second)) {
		t.Fatalf("got due %v, retry at %v, want later", due, retryAt)
	}
}

// The container starts in one hour by the wall clock.
func TestF14_ClockSetBack(t *testing.T) {
	params := newParams(judge.Liveness)
	params.InitialDelay = 5 * time.Second
	p, c := judge.New(params), newContainer("a")
	c.StartedAt = noon.Add(time.Hour)
	p, due, retryAt := p.Due(c, noon)
	if due || !retryAt.Equal(noon.Add(5*time.Second)) {
		t.Fatalf("got due %v, retry at %v, want the delay from the first observation", due, retryAt)
	}
	if _, due, retryAt = p.Due(c, noon.Add(5*time.Second)); !due {
		t.Fatalf("got retry at %v, want due", retryAt)
	}
}

func TestPRB15_DelayFromStart(t *testing.T) {
	params := newParams(judge.Liveness)
	params.InitialDelay = 5 * time.Second
	p, c := judge.New(params), newContainer("a")
	c.State, c.StartedAt = observed.Created, time.Time{}
	p, _, _ = p.Due(c, noon)
	c.State, c.StartedAt = observed.Running, noon.Add(time.Minute)
	_, due, retryAt := p.Due(c, noon.Add(time.Minute+time.Second))
	if due || !retryAt.Equal(noon.Add(time.Minute+5*time.Second)) {
		t.Fatalf("got due %v, retry at %v, want later", due, retryAt)
	}
}

func TestNewParams_Defaults(t *testing.T) {
	want := judge.Params{Kind: judge.Liveness, Period: 10 * time.Second, FailureThreshold: 3, SuccessThreshold: 1}
	if got := judge.NewParams(judge.Liveness, &v1.Probe{}); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if got := judge.Timeout(&v1.Probe{}); got != time.Second {
		t.Fatalf("got timeout %v, want 1s", got)
	}
}

// simulator drives a probe and records what happens to it.
type simulator struct {
	*rapid.T
	params    judge.Params
	probe     judge.Probe
	now       time.Time
	container judge.Container
	results   []judge.Result // of this container, without errors
	checkedAt []time.Time    // of this container
	serial    int
}

func (h *simulator) replace() {
	h.serial++
	h.container = newContainer(strconv.Itoa(h.serial))
	h.container.StartedAt = h.now
	h.container.Started = h.params.Kind != judge.Startup && rapid.Bool().Draw(h.T, "started")
	h.results, h.checkedAt = nil, nil
}

// evaluate evaluates the probe and records a random result if a check is due.
func (h *simulator) evaluate() {
	next, due, retryAt := h.probe.Due(h.container, h.now)
	h.probe = next
	if !due {
		if !retryAt.After(h.now) {
			h.Fatalf("got retry at %v, want after %v", retryAt, h.now)
		}
		return
	}
	h.requireDue()
	h.checkedAt = append(h.checkedAt, h.now)
	found := rapid.SampledFrom([]judge.Result{judge.Success, judge.Success, judge.Failure, judge.Failure, judge.Error}).Draw(h.T, "result")
	before := h.result()
	next, changed := h.probe.Record(h.container.ID, found)
	h.probe = next
	if changed != (h.result() != before) {
		h.Fatalf("got changed %v, but the result went from %v to %v", changed, before, h.result())
	}
	if found != judge.Error {
		h.results = append(h.results, found)
	}
	h.requireThreshold(before)
}

func (h *simulator) result() derive.ProbeResult { return h.probe.Result(h.container.ID) }

func (h *simulator) requireDue() {
	switch result := h.result(); {
	case h.container.State != observed.Running || !h.container.Reachable:
		h.Fatalf("got a check in state %v", h.container.State)
	case h.now.Before(h.container.StartedAt.Add(h.params.InitialDelay)):
		h.Fatal("got a check before the initial delay was over")
	case h.params.Kind != judge.Startup && !h.container.Started:
		h.Fatal("got a check before the startup probe succeeded")
	case h.params.Kind == judge.Startup && result != derive.ProbeUnknown, h.params.Kind == judge.Liveness && result == derive.ProbeFailure:
		h.Fatal("got a check of a probe on hold")
	case len(h.checkedAt) > 0 && h.now.Sub(h.checkedAt[len(h.checkedAt)-1]) < h.params.Period:
		h.Fatalf("got a check %v after the last one", h.now.Sub(h.checkedAt[len(h.checkedAt)-1]))
	}
}

// requireThreshold checks that a changed result has its threshold of results at the end.
func (h *simulator) requireThreshold(before derive.ProbeResult) {
	ends := func(n int, with judge.Result) bool {
		return len(h.results) >= n && !slices.ContainsFunc(h.results[len(h.results)-n:], func(r judge.Result) bool { return r != with })
	}
	passes, fails := ends(h.params.SuccessThreshold, judge.Success), ends(h.params.FailureThreshold, judge.Failure)
	switch result := h.result(); {
	case result == before:
	case result == derive.ProbeSuccess && !passes:
		h.Fatalf("got success after %v", h.results)
	case result == derive.ProbeFailure && !fails && h.params.Kind != judge.Readiness:
		h.Fatalf("got failure after %v", h.results)
	}
}

func TestBUG36_Simulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &simulator{T: t, now: noon, params: judge.Params{
			Kind:             rapid.SampledFrom([]judge.Kind{judge.Startup, judge.Readiness, judge.Liveness}).Draw(t, "kind"),
			InitialDelay:     time.Duration(rapid.IntRange(0, 5).Draw(t, "delay")) * time.Second,
			Period:           time.Duration(rapid.IntRange(1, 5).Draw(t, "period")) * time.Second,
			FailureThreshold: rapid.IntRange(1, 4).Draw(t, "failures"),
			SuccessThreshold: rapid.IntRange(1, 4).Draw(t, "successes"),
		}}
		h.probe = judge.New(h.params)
		h.replace()
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"time passes": func(t *rapid.T) {
				h.now = h.now.Add(time.Duration(rapid.IntRange(1, 6000).Draw(t, "ms")) * time.Millisecond)
			},
			"evaluate": func(*rapid.T) { h.evaluate() },
			"replace":  func(*rapid.T) { h.replace() },
			"state": func(t *rapid.T) {
				h.container.State = rapid.SampledFrom([]observed.State{observed.Running, observed.Created, observed.Exited}).Draw(t, "state")
			},
			"start":   func(*rapid.T) { h.container.Started = h.params.Kind != judge.Startup },
			"address": func(t *rapid.T) { h.container.Reachable = rapid.Bool().Draw(t, "reachable") },
		})
	})
}

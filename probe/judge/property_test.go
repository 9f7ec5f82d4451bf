package judge_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/probe/judge"
)

// history is a probe's whole life as an observer would write it down.
type history struct {
	*rapid.T
	rules     judge.Params
	probe     judge.Probe
	now       time.Time
	container judge.Container
	results   []judge.Result // of this container, errors aside
	checked   []time.Time    // of this container
	serial    int
}

func (h *history) replace() {
	h.serial++
	h.container = running(strconv.Itoa(h.serial))
	h.container.StartedAt = h.now
	h.container.Started = h.rules.Kind != judge.Startup && rapid.Bool().Draw(h.T, "started")
	h.results, h.checked = nil, nil
}

// look is followed by what a check finds.
func (h *history) look() {
	next, check, again := h.probe.Due(h.container, h.now)
	h.probe = next
	if !check {
		if !again.After(h.now) {
			h.Fatalf("nothing to do, and look again at once: %v at %v", again, h.now)
		}
		return
	}
	h.mayCheck()
	h.checked = append(h.checked, h.now)
	found := rapid.SampledFrom([]judge.Result{judge.Success, judge.Success, judge.Failure, judge.Failure, judge.Error}).Draw(h.T, "found")
	before := h.verdict()
	next, changed := h.probe.Record(h.container.ID, found)
	h.probe = next
	if changed != (h.verdict() != before) {
		h.Fatalf("changed %v, but the verdict went from %v to %v", changed, before, h.verdict())
	}
	if found != judge.Error {
		h.results = append(h.results, found)
	}
	h.explained(before)
}

func (h *history) verdict() derive.ProbeResult { return h.probe.Result(h.container.ID) }

func (h *history) mayCheck() {
	switch verdict := h.verdict(); {
	case h.container.State != observed.Running || !h.container.Reachable:
		h.Fatalf("a container in state %v was checked", h.container.State)
	case h.now.Before(h.container.StartedAt.Add(h.rules.InitialDelay)):
		h.Fatal("checked before its delay was over")
	case h.rules.Kind != judge.Startup && !h.container.Started:
		h.Fatal("checked before it had started")
	case h.rules.Kind == judge.Startup && verdict != derive.ProbeUnknown, h.rules.Kind == judge.Liveness && verdict == derive.ProbeFailure:
		h.Fatal("checked although all was said")
	case len(h.checked) > 0 && h.now.Sub(h.checked[len(h.checked)-1]) < h.rules.Period:
		h.Fatalf("checked %v after the last time", h.now.Sub(h.checked[len(h.checked)-1]))
	}
}

// explained: a verdict that came by results has its threshold of them at the end.
func (h *history) explained(before derive.ProbeResult) {
	ends := func(n int, with judge.Result) bool {
		return len(h.results) >= n && !slices.ContainsFunc(h.results[len(h.results)-n:], func(r judge.Result) bool { return r != with })
	}
	passes, fails := ends(h.rules.SuccessThreshold, judge.Success), ends(h.rules.FailureThreshold, judge.Failure)
	switch verdict := h.verdict(); {
	case verdict == before:
	case verdict == derive.ProbeSuccess && !passes:
		h.Fatalf("passed after %v", h.results)
	case verdict == derive.ProbeFailure && !fails && h.rules.Kind != judge.Readiness:
		h.Fatalf("failed after %v", h.results)
	}
}

func TestBUG36WhateverHappensNoProbeIsCheckedTooOftenOrDecidesTooEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{T: t, now: noon, rules: judge.Params{
			Kind:             rapid.SampledFrom([]judge.Kind{judge.Startup, judge.Readiness, judge.Liveness}).Draw(t, "kind"),
			InitialDelay:     time.Duration(rapid.IntRange(0, 5).Draw(t, "delay")) * time.Second,
			Period:           time.Duration(rapid.IntRange(1, 5).Draw(t, "period")) * time.Second,
			FailureThreshold: rapid.IntRange(1, 4).Draw(t, "failures"),
			SuccessThreshold: rapid.IntRange(1, 4).Draw(t, "successes"),
		}}
		h.probe = judge.New(h.rules)
		h.replace()
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"time passes": func(t *rapid.T) {
				h.now = h.now.Add(time.Duration(rapid.IntRange(1, 6000).Draw(t, "ms")) * time.Millisecond)
			},
			"look":    func(*rapid.T) { h.look() },
			"replace": func(*rapid.T) { h.replace() },
			"state": func(t *rapid.T) {
				h.container.State = rapid.SampledFrom([]observed.State{observed.Running, observed.Created, observed.Exited}).Draw(t, "state")
			},
			"start":   func(*rapid.T) { h.container.Started = h.rules.Kind != judge.Startup },
			"address": func(t *rapid.T) { h.container.Reachable = rapid.Bool().Draw(t, "reachable") },
		})
	})
}

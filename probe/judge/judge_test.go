package judge_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/probe/judge"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func named(id string) observed.ContainerID { return observed.ContainerID{Runtime: "test", ID: id} }

// running is a container that can be checked since an hour.
func running(id string) judge.Container {
	return judge.Container{
		ID: named(id), State: observed.Running, StartedAt: noon.Add(-time.Hour), Started: true, Reachable: true,
	}
}

func rules(kind judge.Kind) judge.Params {
	return judge.Params{Kind: kind, Period: 10 * time.Second, FailureThreshold: 3, SuccessThreshold: 1}
}

// seeing is a probe that has seen the container. That of a startup probe has not started.
func seeing(r judge.Params, id string) judge.Probe {
	c := running(id)
	c.Started = r.Kind != judge.Startup
	p, _, _ := judge.New(r).Due(c, noon)
	return p
}

// learn feeds results, one letter each, and shows the verdicts after each.
func learn(p judge.Probe, id, results string) (judge.Probe, string) {
	found := map[rune]judge.Result{'+': judge.Success, '-': judge.Failure, 'e': judge.Error, 'g': judge.NotFound}
	verdicts := map[derive.ProbeResult]byte{derive.ProbeUnknown: '?', derive.ProbeSuccess: 'P', derive.ProbeFailure: 'F'}
	var shown []byte
	for _, letter := range results {
		p, _ = p.Record(named(id), found[letter])
		shown = append(shown, verdicts[p.Result(named(id))])
	}
	return p, string(shown)
}

func TestPRB19AVerdictNeedsItsThresholdInARow(t *testing.T) {
	tests := map[string]struct {
		kind             judge.Kind
		failure, success int
		results, want    string
	}{
		"three failures": {judge.Readiness, 3, 1, "---", "??F"},
		"PRB-22: a success in between restarts the count":  {judge.Readiness, 3, 1, "+--+---", "PPPPPPF"},
		"successes in a row":                               {judge.Readiness, 1, 3, "++-++++", "??FFFPP"},
		"PRB-18: an error neither counts nor interrupts":   {judge.Readiness, 3, 1, "+-e-e-", "PPPPPF"},
		"errors do not interrupt successes":                {judge.Readiness, 3, 2, "+e+", "??P"},
		"BUG-24: who errs for long is not ready":           {judge.Readiness, 1, 1, "+eee", "PPPF"},
		"BUG-24: for as long as failures would have taken": {judge.Readiness, 5, 1, "+eeeee", "PPPPPF"},
		"BUG-24: errors must come in a row":                {judge.Readiness, 1, 1, "+ee+ee", "PPPPPP"},
		"BUG-24: after errors successes are counted anew":  {judge.Readiness, 1, 2, "++eee++", "?PPPFFP"},
		"BUG-24: who is gone is not ready":                 {judge.Readiness, 3, 1, "+g", "PF"},
		"BUG-24: errors restart nobody":                    {judge.Liveness, 1, 1, "+eeeeeeg", "PPPPPPPP"},
		"errors do not fail a start":                       {judge.Startup, 1, 1, "eeeeg+", "?????P"},
		"PRB-20: liveness that failed rests":               {judge.Liveness, 2, 1, "+--+++", "PPFFFF"},
		"PRB-20: startup that passed rests":                {judge.Startup, 1, 1, "+---", "PPPP"},
		"PRB-20: startup that failed rests":                {judge.Startup, 2, 1, "--+", "?FF"},
		"PRB-20: readiness never rests":                    {judge.Readiness, 1, 1, "-+-+", "FPFP"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := judge.Params{
				Kind: test.kind, Period: time.Second, FailureThreshold: test.failure, SuccessThreshold: test.success,
			}
			if _, got := learn(seeing(r, "a"), "a", test.results); got != test.want {
				t.Fatalf("after %s the verdicts were %s, want %s", test.results, got, test.want)
			}
		})
	}
}

func TestPRB12WhatIsSeenDecidesWhetherToCheck(t *testing.T) {
	tests := map[string]struct {
		kind  judge.Kind
		seen  func(*judge.Container)
		check bool
		again time.Duration
	}{
		"a running container":                             {kind: judge.Readiness, check: true},
		"PRB-11: none":                                    {kind: judge.Readiness, seen: func(c *judge.Container) { c.ID = observed.ContainerID{} }, again: 10 * time.Second},
		"PRB-14: one that waits":                          {kind: judge.Readiness, seen: func(c *judge.Container) { c.State = observed.Created }, again: 10 * time.Second},
		"PRB-14: one that ended":                          {kind: judge.Liveness, seen: func(c *judge.Container) { c.State = observed.Exited }, again: 10 * time.Second},
		"PRB-14: one in an unknown state":                 {kind: judge.Liveness, seen: func(c *judge.Container) { c.State = observed.Unknown }, again: 10 * time.Second},
		"PRB-15: one that has just begun":                 {kind: judge.Liveness, seen: func(c *judge.Container) { c.StartedAt = noon.Add(-4 * time.Second) }, again: time.Second},
		"PRB-15: one whose delay is over":                 {kind: judge.Liveness, seen: func(c *judge.Container) { c.StartedAt = noon.Add(-5 * time.Second) }, check: true},
		"PRB-17: readiness waits for startup":             {kind: judge.Readiness, seen: func(c *judge.Container) { c.Started = false }, again: 10 * time.Second},
		"PRB-17: liveness waits for startup":              {kind: judge.Liveness, seen: func(c *judge.Container) { c.Started = false }, again: 10 * time.Second},
		"PRB-16: startup that passed under another agent": {kind: judge.Startup, again: 10 * time.Second},
		"startup that did not":                            {kind: judge.Startup, seen: func(c *judge.Container) { c.Started = false }, check: true},
		"PRB-30: one without an address":                  {kind: judge.Readiness, seen: func(c *judge.Container) { c.Reachable = false }, again: 10 * time.Second},
		"PRB-4: one that is to wait":                      {kind: judge.Readiness, seen: func(c *judge.Container) { c.Delay = 7 * time.Second }, again: 7 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := rules(test.kind)
			r.InitialDelay = 5 * time.Second
			c := running("a")
			if test.seen != nil {
				test.seen(&c)
			}
			_, check, again := judge.New(r).Due(c, noon)
			if check != test.check || (!check && again.Sub(noon) != test.again) {
				t.Fatalf("check %v, again after %v; want %v, %v", check, again.Sub(noon), test.check, test.again)
			}
		})
	}
}

func TestPRB14AContainerThatEndedIsNotReady(t *testing.T) {
	p, _ := learn(seeing(rules(judge.Readiness), "a"), "a", "+")
	c := running("a")
	c.State = observed.Exited
	p, _, _ = p.Due(c, noon)
	if p.Result(named("a")) != derive.ProbeFailure {
		t.Fatal("it is")
	}
	if p, changed := p.Record(named("a"), judge.Success); changed || p.Result(named("a")) != derive.ProbeFailure {
		t.Fatal("a check that was under way when it ended has made it ready")
	}
}

func TestPRB12AContainerThatHadStartedUnderAnotherAgentHasStarted(t *testing.T) {
	p, _, _ := judge.New(rules(judge.Startup)).Due(running("a"), noon)
	if p.Result(named("a")) != derive.ProbeSuccess {
		t.Fatal("it has not")
	}
}

func TestBUG22ANewContainerIsCountedAnew(t *testing.T) {
	r := rules(judge.Readiness)
	r.SuccessThreshold = 4
	p, _ := learn(seeing(r, "a"), "a", "++++")
	p, check, _ := p.Due(running("b"), noon)
	if !check || p.Result(named("a")) != derive.ProbeUnknown || p.Result(named("b")) != derive.ProbeUnknown {
		t.Fatal("something was carried over")
	}
	if _, got := learn(p, "b", "++++"); got != "???P" {
		t.Fatalf("verdicts %s, want ???P", got)
	}
}

func TestSM14AResultOfAContainerThatWasReplacedMeansNothing(t *testing.T) {
	p := seeing(rules(judge.Readiness), "b")
	if _, got := learn(p, "a", "----"); got != "????" {
		t.Fatalf("verdicts %s", got)
	}
}

func TestBUG36LookingOftenDoesNotCheckOften(t *testing.T) {
	p := seeing(rules(judge.Readiness), "a")
	_, check, again := p.Due(running("a"), noon.Add(3*time.Second))
	if check || !again.Equal(noon.Add(10*time.Second)) {
		t.Fatalf("check %v, again at %v", check, again)
	}
	if _, check, _ = p.Due(running("a"), noon.Add(10*time.Second)); !check {
		t.Fatal("not checked after a period")
	}
}

func TestPRB3UnderOtherRulesTheVerdictStandsAndCountingStartsAnew(t *testing.T) {
	p, _ := learn(seeing(rules(judge.Readiness), "a"), "a", "+--")
	if _, got := learn(p.WithParams(rules(judge.Readiness)), "a", "---"); got != "PPF" {
		t.Fatalf("verdicts %s, want PPF", got)
	}
}

func TestPRB3UnderAnotherPeriodTheNextCheckComesAfterThat(t *testing.T) {
	slow, fast := rules(judge.Readiness), rules(judge.Readiness)
	slow.Period = time.Hour
	p := seeing(slow, "a").WithParams(fast)
	_, check, again := p.Due(running("a"), noon.Add(3*time.Second))
	if check || !again.Equal(noon.Add(10*time.Second)) {
		t.Fatalf("check %v, again at %v", check, again)
	}
}

// TestF14AClockThatIsSetBackHoldsNoProbeBack has a container that began in an hour, by the wall clock.
func TestF14AClockThatIsSetBackHoldsNoProbeBack(t *testing.T) {
	r := rules(judge.Liveness)
	r.InitialDelay = 5 * time.Second
	p, c := judge.New(r), running("a")
	c.StartedAt = noon.Add(time.Hour)
	p, check, again := p.Due(c, noon)
	if check || !again.Equal(noon.Add(5*time.Second)) {
		t.Fatalf("check %v, again at %v: want the whole delay, from when it was first seen to run", check, again)
	}
	if _, check, again = p.Due(c, noon.Add(5*time.Second)); !check {
		t.Fatalf("not checked when the delay was over, but at %v", again)
	}
}

func TestPRB15TheDelayIsCountedFromTheStartNotFromTheCreation(t *testing.T) {
	r := rules(judge.Liveness)
	r.InitialDelay = 5 * time.Second
	p, c := judge.New(r), running("a")
	c.State, c.StartedAt = observed.Created, time.Time{}
	p, _, _ = p.Due(c, noon)
	c.State, c.StartedAt = observed.Running, noon.Add(time.Minute)
	_, check, again := p.Due(c, noon.Add(time.Minute+time.Second))
	if check || !again.Equal(noon.Add(time.Minute+5*time.Second)) {
		t.Fatalf("check %v, again at %v", check, again)
	}
}

func TestRulesAreFilledInAsTheAPIServerWould(t *testing.T) {
	want := judge.Params{Kind: judge.Liveness, Period: 10 * time.Second, FailureThreshold: 3, SuccessThreshold: 1}
	if got := judge.NewParams(judge.Liveness, &v1.Probe{}); got != want {
		t.Fatalf("%+v", got)
	}
	if got := judge.Timeout(&v1.Probe{}); got != time.Second {
		t.Fatalf("timeout %v", got)
	}
}

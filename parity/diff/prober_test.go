package diff_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/plan"
	probejudge "github.com/heraldnode/herald/probe/judge"
)

var (
	probeSeed  = flag.Uint64("probe.seed", 1, "seed of the prober histories")
	probeCases = flag.Int("probe.cases", 150, "number of prober histories")
)

// settleTime is longer than a startup probe takes to decide.
const settleTime = 90 * time.Second

// probeAction is something that happens to a container or to the agents.
type probeAction struct {
	name  string
	apply func(h *proberHarness, container string)
}

// probeActions has starting a container twice, which makes it twice as likely. Nothing starts in a terminating pod.
var probeActions = []probeAction{
	{"crash", (*proberHarness).exit},
	{"start", startUnlessTerminating},
	{"start", startUnlessTerminating},
	{"agents restart", func(h *proberHarness, _ string) {
		unlessTerminating(h, func() { h.advance(settleTime); h.restart() })
	}},
	{"terminate pod", func(h *proberHarness, _ string) { h.advance(settleTime); h.terminate() }},
	{"sync", func(h *proberHarness, _ string) { h.sync() }},
	{"wait", func(*proberHarness, string) {}},
}

func startUnlessTerminating(h *proberHarness, container string) {
	unlessTerminating(h, func() { h.start(container) })
}

func unlessTerminating(h *proberHarness, do func()) {
	if !h.isTerminating() {
		do()
	}
}

// probeEvent is an action and the time until the next one.
type probeEvent struct {
	Action    probeAction
	Container string
	Delay     time.Duration
}

func (e probeEvent) String() string {
	return fmt.Sprintf("%s: %s, then %v", e.Container, e.Action.name, e.Delay)
}

var probeEventGen = rapid.Custom(func(t *rapid.T) probeEvent {
	return probeEvent{
		Action:    rapid.SampledFrom(probeActions).Draw(t, "action"),
		Container: rapid.SampledFrom([]string{"app", "proxy"}).Draw(t, "container"),
		Delay: rapid.SampledFrom([]time.Duration{
			0, 300 * time.Millisecond, 1500 * time.Millisecond, 7 * time.Second, time.Minute,
		}).Draw(t, "delay"),
	}
})

// probeSettings are the fields of a probe. Without a period there is no probe.
type probeSettings struct{ Delay, Period, Timeout, Failures, Successes int32 }

func (s probeSettings) probe(kind probejudge.Kind) *v1.Probe {
	if s.Period == 0 {
		return nil
	}
	p := execProbe(kind)
	p.InitialDelaySeconds, p.PeriodSeconds, p.TimeoutSeconds = s.Delay, s.Period, s.Timeout
	p.FailureThreshold, p.SuccessThreshold = s.Failures, s.Successes
	if kind != probejudge.Readiness {
		p.SuccessThreshold = 1 // the only value that the API server allows
	}
	return p
}

// maxPeriod is the longest period, in seconds.
const maxPeriod = 4

var probeSettingsGen = rapid.Custom(func(t *rapid.T) probeSettings {
	if rapid.IntRange(0, 3).Draw(t, "none") == 3 {
		return probeSettings{}
	}
	period := rapid.Int32Range(1, maxPeriod).Draw(t, "period")
	return probeSettings{
		Delay: rapid.Int32Range(0, 5).Draw(t, "delay"), Period: period, Timeout: rapid.Int32Range(1, period).Draw(t, "timeout"),
		Failures: rapid.Int32Range(1, 4).Draw(t, "failures"), Successes: rapid.Int32Range(1, 3).Draw(t, "successes"),
	}
})

// podWithProbes returns a pod with a regular container and a sidecar, each with up to three probes.
func podWithProbes(settings []probeSettings) *v1.Pod {
	container := func(name string, settings []probeSettings) v1.Container {
		return v1.Container{
			Name: name, StartupProbe: settings[0].probe(probejudge.Startup), ReadinessProbe: settings[1].probe(probejudge.Readiness),
			LivenessProbe: settings[2].probe(probejudge.Liveness),
		}
	}
	app, proxy := container("app", settings[:3]), container("proxy", settings[3:])
	proxy.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	pod := podWith(v1.RestartPolicyAlways)
	pod.Spec.Containers, pod.Spec.InitContainers = []v1.Container{app}, []v1.Container{proxy}
	return pod
}

func TestPRB19_SameResults(t *testing.T) {
	checkSeeded(t, "probe", *probeSeed, *probeCases, func(rt *rapid.T) {
		pod := podWithProbes(rapid.SliceOfN(probeSettingsGen, 6, 6).Draw(rt, "probes"))
		history := rapid.SliceOfN(probeEventGen, 1, 15).Draw(rt, "history")
		seed := rapid.Uint64().Draw(rt, "answers")
		var violation string // rt.Fatal must not be called from the bubble's goroutine
		synctest.Test(t, func(t *testing.T) {
			runProberHarness(t, pod, seed, func(h *proberHarness) { violation = h.runHistory(history) })
		})
		if violation != "" {
			rt.Fatal(violation)
		}
	})
}

// runHistory applies the history to both sides and returns how they differ.
func (h *proberHarness) runHistory(history []probeEvent) string {
	h.start("proxy")
	h.start("app")
	for i, event := range history {
		event.Action.apply(h, event.Container)
		h.advance(event.Delay)
		if violation := h.compare(); violation != "" {
			return fmt.Sprintf("after %d events: %s", i+1, violation)
		}
	}
	h.advance(settleTime)
	return h.compare()
}

// advance lets time pass and records the state of both sides.
func (h *proberHarness) advance(d time.Duration) {
	checkPace := h.checkReadinessPace(d)
	time.Sleep(d)
	synctest.Wait()
	checkPace()
	for _, inst := range h.instances() {
		if inst.state != observed.Running {
			continue
		}
		for _, kind := range allKinds {
			if h.probeSpec(inst, kind) != nil && (kind == probejudge.Readiness || !h.isTerminating()) {
				h.kubelet.recordState(probeKey{h.generation, inst.id, kind})
				h.herald.recordState(probeKey{h.generation, inst.id, kind})
			}
		}
	}
}

// checkReadinessPace returns a function that checks, after d, that each side probed readiness once per period.
func (h *proberHarness) checkReadinessPace(d time.Duration) func() {
	answered := map[*probeRecorder]map[*instance]int{h.kubelet.probeRecorder: {}, h.herald.probeRecorder: {}}
	for _, inst := range h.instances() {
		spec := h.probeSpec(inst, probejudge.Readiness)
		started := h.probeSpec(inst, probejudge.Startup) == nil ||
			h.kubelet.currentState(inst.id, probejudge.Startup).Passed && h.herald.currentState(inst.id, probejudge.Startup).Passed
		delayed := spec != nil && time.Since(inst.startedAt) < time.Duration(spec.InitialDelaySeconds)*time.Second
		if spec == nil || !started || delayed || inst.state != observed.Running {
			continue
		}
		for side, counts := range answered {
			counts[inst] = side.countAnswers(probeKey{h.generation, inst.id, probejudge.Readiness})
		}
	}
	return func() {
		for side, counts := range answered {
			for inst, count := range counts {
				minimum := int(d/time.Second)/int(h.probeSpec(inst, probejudge.Readiness).PeriodSeconds) - 2
				if got := side.countAnswers(probeKey{h.generation, inst.id, probejudge.Readiness}) - count; got < minimum {
					side.addViolation("readiness of %s: got %d probes in %v, want at least %d", inst.id, got, d, minimum)
				}
			}
		}
	}
}

// compare returns how the agents of the current generation differ.
func (h *proberHarness) compare() string {
	for _, side := range []*probeRecorder{h.kubelet.probeRecorder, h.herald.probeRecorder} {
		if len(side.violations) > 0 {
			return fmt.Sprintf("kubelet: %q, Herald: %q", h.kubelet.violations, h.herald.violations)
		}
	}
	for e, theirs := range h.kubelet.states {
		for n, theirState := range theirs {
			if ourState, known := h.herald.states[e][n]; known && ourState != theirState {
				return fmt.Sprintf("%v of %s after answers %q: kubelet %+v, Herald %+v", e.kind, e.id, h.answers[e][:n], theirState, ourState)
			}
		}
	}
	for _, inst := range h.instances() {
		if inst.state == observed.Running {
			if violation := h.herald.checkReported(inst); violation != "" {
				return violation
			}
			if violation := h.comparePace(inst); violation != "" {
				return violation
			}
		}
	}
	return ""
}

// comparePace reports an agent that probes less often than it should. The kubelet notices a new or a started container
// at the next tick of each of its workers, but probes readiness more often (BUG-36).
func (h *proberHarness) comparePace(inst *instance) string {
	for _, kind := range allKinds {
		spec := h.probeSpec(inst, kind)
		if spec == nil {
			continue
		}
		const ticks = 2 * maxPeriod // the startup probe's worker, then this one
		tolerance := attemptsPerRound * (2 + ticks/int(spec.PeriodSeconds))
		e := probeKey{h.generation, inst.id, kind}
		theirs, ours := h.kubelet.countAnswers(e), h.herald.countAnswers(e)
		if ours-theirs > tolerance || theirs-ours > tolerance && kind != probejudge.Readiness && !h.isTerminating() {
			return fmt.Sprintf("%v of %s: got %d probes by the kubelet, %d by Herald", kind, inst.id, theirs, ours)
		}
	}
	return ""
}

// attemptsPerRound is how often both sides try a probe that returns an error.
const attemptsPerRound = 3

// graceCase is a container whose probe failed.
type graceCase struct {
	Pod     *v1.Pod
	Startup bool
}

// compareGrace uses pods as the API server defaults them: each has a grace period.
var compareGrace = newComparison(
	func(g *generator) graceCase {
		seconds := func() *int64 { return oneOf(g, nil, new(int64(1)), new(int64(5)), new(int64(30)), new(int64(600))) }
		c := graceCase{podWith(v1.RestartPolicyAlways, "app"), g.chance(50)}
		c.Pod.DeletionGracePeriodSeconds = seconds()
		c.Pod.Spec.TerminationGracePeriodSeconds = oneOf(g, new(int64(0)), new(int64(10)), new(int64(30)))
		app := &c.Pod.Spec.Containers[0]
		app.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: seconds()}
		if c.Startup {
			app.StartupProbe = &v1.Probe{TerminationGracePeriodSeconds: seconds()}
		}
		return c
	},
	func(c graceCase) string {
		if c.Pod.Spec.TerminationGracePeriodSeconds == nil {
			return ""
		}
		seen, reason := runtimeWith(observedInstance("app", 1, observed.Running)), plan.StopLivenessProbe
		if c.Startup {
			reason = plan.StopStartupProbe
		}
		ours := plan.ComputeActions(plan.Input{
			Pod: c.Pod, Observed: seen, Now: time.Now(), Unhealthy: map[observed.ContainerID]string{containerID("app", 1): ""},
		}).Stop
		if len(ours) != 1 || ours[0].Reason != reason {
			return describeMismatch(reason, ours)
		}
		if theirs := kubelet.GracePeriod(c.Pod, &c.Pod.Spec.Containers[0], string(reason)); theirs != ours[0].Grace {
			return describeMismatch(theirs.String(), ours[0].Grace.String())
		}
		return ""
	},
)

func TestPRB39_SameGracePeriod(t *testing.T) { compareGrace.run(t) }

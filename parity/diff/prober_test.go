package diff_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
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
	probeSeed  = flag.Uint64("probe.seed", 1, "the first of the seeds that the histories of probers are made from")
	probeCases = flag.Int("probe.cases", 150, "how many histories probers are led through")
)

// settled is longer than a startup probe takes to decide, whatever it is told.
const settleTime = 90 * time.Second

// treatments are what befalls containers and agents. In a pod that ends nothing is started.
var probeEvents = map[string]func(h *proberHarness, container string){
	"it is started anew":  func(h *proberHarness, c string) { unlessTerminating(h, func() { h.start(c) }) },
	"it crashes":          func(h *proberHarness, c string) { h.exit(c) },
	"the worker syncs":    func(h *proberHarness, _ string) { h.sync() },
	"time passes":         func(*proberHarness, string) {},
	"the agents restart":  func(h *proberHarness, _ string) { unlessTerminating(h, func() { h.advance(settleTime); h.restart() }) },
	"the pod is to end":   func(h *proberHarness, _ string) { h.advance(settleTime); h.terminate() },
	"it is started  anew": func(h *proberHarness, c string) { unlessTerminating(h, func() { h.start(c) }) },
}

func unlessTerminating(h *proberHarness, do func()) {
	if !h.isTerminating() {
		do()
	}
}

// treatment is one of them, and the time until the next.
type probeEvent struct {
	Name, Container string
	Delay           time.Duration
}

func (s probeEvent) String() string {
	return fmt.Sprintf("%s: %s, %v later", s.Container, s.Name, s.Delay)
}

var probeEventGen = rapid.Custom(func(t *rapid.T) probeEvent {
	return probeEvent{
		Name:      rapid.SampledFrom(slices.Sorted(maps.Keys(probeEvents))).Draw(t, "what"),
		Container: rapid.SampledFrom([]string{"app", "proxy"}).Draw(t, "container"),
		Delay: rapid.SampledFrom([]time.Duration{
			0, 300 * time.Millisecond, 1500 * time.Millisecond, 7 * time.Second, time.Minute,
		}).Draw(t, "then"),
	}
})

// regimen is what the spec says of a probe; without a period there is none.
type probeSettings struct{ Delay, Period, Timeout, Failures, Successes int32 }

func (r probeSettings) probe(kind probejudge.Kind) *v1.Probe {
	if r.Period == 0 {
		return nil
	}
	p := execProbe(kind)
	p.InitialDelaySeconds, p.PeriodSeconds, p.TimeoutSeconds = r.Delay, r.Period, r.Timeout
	p.FailureThreshold, p.SuccessThreshold = r.Failures, r.Successes
	if kind != probejudge.Readiness {
		p.SuccessThreshold = 1 // the API server allows no other
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

// podUnder has a regular container and a sidecar, each with three probes or less.
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
		var violation string // the bubble's goroutine must not end the property's
		synctest.Test(t, func(t *testing.T) {
			runProberHarness(t, pod, seed, func(h *proberHarness) { violation = h.runHistory(history) })
		})
		if violation != "" {
			rt.Fatal(violation)
		}
	})
}

// live leads both through the history and returns in what they differ.
func (h *proberHarness) runHistory(history []probeEvent) string {
	h.start("proxy")
	h.start("app")
	for i, event := range history {
		probeEvents[event.Name](h, event.Container)
		h.advance(event.Delay)
		if violation := h.compare(); violation != "" {
			return fmt.Sprintf("after %d treatments: %s", i+1, violation)
		}
	}
	h.advance(settleTime)
	return h.compare()
}

// rest lets time pass, and has both write down where they are.
func (h *proberHarness) advance(d time.Duration) {
	checkPace := h.checkReadinessPace(d)
	time.Sleep(d)
	synctest.Wait()
	checkPace()
	for _, p := range h.instances() {
		if p.state != observed.Running {
			continue
		}
		for _, kind := range allKinds {
			if h.probeSpec(p, kind) != nil && (kind == probejudge.Readiness || !h.isTerminating()) {
				h.kubelet.recordState(probeKey{h.generation, p.id, kind})
				h.herald.recordState(probeKey{h.generation, p.id, kind})
			}
		}
	}
}

// watchReadiness returns what finds out, after that time, whether each asked once in each period: readiness never rests.
func (h *proberHarness) checkReadinessPace(d time.Duration) func() {
	answered := map[*probeRecorder]map[*instance]int{h.kubelet.probeRecorder: {}, h.herald.probeRecorder: {}}
	for _, p := range h.instances() {
		spec := h.probeSpec(p, probejudge.Readiness)
		started := h.probeSpec(p, probejudge.Startup) == nil ||
			h.kubelet.currentState(p.id, probejudge.Startup).Passed && h.herald.currentState(p.id, probejudge.Startup).Passed
		delayed := spec != nil && time.Since(p.startedAt) < time.Duration(spec.InitialDelaySeconds)*time.Second
		if spec == nil || !started || delayed || p.state != observed.Running {
			continue
		}
		for side, counts := range answered {
			counts[p] = side.countAnswers(probeKey{h.generation, p.id, probejudge.Readiness})
		}
	}
	return func() {
		for side, counts := range answered {
			for p, count := range counts {
				minimum := int(d/time.Second)/int(h.probeSpec(p, probejudge.Readiness).PeriodSeconds) - 2
				if got := side.countAnswers(probeKey{h.generation, p.id, probejudge.Readiness}) - count; got < minimum {
					side.addViolation("readiness of %s was asked %d times in %v, want %d", p.id, got, d, minimum)
				}
			}
		}
	}
}

// compare says where the agents of this shift differ.
func (h *proberHarness) compare() string {
	for _, side := range []*probeRecorder{h.kubelet.probeRecorder, h.herald.probeRecorder} {
		if len(side.violations) > 0 {
			return fmt.Sprintf("kubelet: %q, Herald: %q", h.kubelet.violations, h.herald.violations)
		}
	}
	for e, theirs := range h.kubelet.states {
		for n, level := range theirs {
			if ours, known := h.herald.states[e][n]; known && ours != level {
				return fmt.Sprintf("%v of %s after %q: the kubelet says %+v, Herald %+v", e.kind, e.id, h.answers[e][:n], level, ours)
			}
		}
	}
	for _, p := range h.instances() {
		if p.state == observed.Running {
			if violation := h.herald.checkReported(p); violation != "" {
				return violation
			}
			if violation := h.comparePace(p); violation != "" {
				return violation
			}
		}
	}
	return ""
}

// comparePace finds the agent that asks less than it should. The kubelet sees a new container, and that one has started,
// at the next tick of each of its workers, but asks for readiness more often (BUG-36).
func (h *proberHarness) comparePace(p *instance) string {
	for _, kind := range allKinds {
		spec := h.probeSpec(p, kind)
		if spec == nil {
			continue
		}
		const ticks = 2 * maxPeriod // of the startup probe's worker, then of this one
		tolerance := attemptsPerRound * (2 + ticks/int(spec.PeriodSeconds))
		e := probeKey{h.generation, p.id, kind}
		theirs, ours := h.kubelet.countAnswers(e), h.herald.countAnswers(e)
		if ours-theirs > tolerance || theirs-ours > tolerance && kind != probejudge.Readiness && !h.isTerminating() {
			return fmt.Sprintf("%v of %s: the kubelet asked %d times, Herald %d", kind, p.id, theirs, ours)
		}
	}
	return ""
}

// attempts is how often each asks in a round in which nobody knows.
const attemptsPerRound = 3

// graceCase is a container whose probe gave up.
type graceCase struct {
	Pod     *v1.Pod
	Startup bool
}

// compareGrace gives pods as the API server fills them in: each has a grace period.
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

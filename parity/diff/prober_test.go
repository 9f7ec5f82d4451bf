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
const settled = 90 * time.Second

// treatments are what befalls containers and agents. In a pod that ends nothing is started.
var treatments = map[string]func(w *ward, container string){
	"it is started anew":  func(w *ward, c string) { unlessEnding(w, func() { w.start(c) }) },
	"it crashes":          func(w *ward, c string) { w.exit(c) },
	"the worker syncs":    func(w *ward, _ string) { w.sync() },
	"time passes":         func(*ward, string) {},
	"the agents restart":  func(w *ward, _ string) { unlessEnding(w, func() { w.rest(settled); w.restart() }) },
	"the pod is to end":   func(w *ward, _ string) { w.rest(settled); w.terminate() },
	"it is started  anew": func(w *ward, c string) { unlessEnding(w, func() { w.start(c) }) },
}

func unlessEnding(w *ward, do func()) {
	if !w.isEnding() {
		do()
	}
}

// treatment is one of them, and the time until the next.
type treatment struct {
	What, Container string
	Then            time.Duration
}

func (s treatment) String() string {
	return fmt.Sprintf("%s: %s, %v later", s.Container, s.What, s.Then)
}

var anyTreatment = rapid.Custom(func(t *rapid.T) treatment {
	return treatment{
		What:      rapid.SampledFrom(slices.Sorted(maps.Keys(treatments))).Draw(t, "what"),
		Container: rapid.SampledFrom([]string{"app", "proxy"}).Draw(t, "container"),
		Then: rapid.SampledFrom([]time.Duration{
			0, 300 * time.Millisecond, 1500 * time.Millisecond, 7 * time.Second, time.Minute,
		}).Draw(t, "then"),
	}
})

// regimen is what the spec says of a probe; without a period there is none.
type regimen struct{ Delay, Period, Timeout, Failures, Successes int32 }

func (r regimen) probe(kind probejudge.Kind) *v1.Probe {
	if r.Period == 0 {
		return nil
	}
	p := asking(kind)
	p.InitialDelaySeconds, p.PeriodSeconds, p.TimeoutSeconds = r.Delay, r.Period, r.Timeout
	p.FailureThreshold, p.SuccessThreshold = r.Failures, r.Successes
	if kind != probejudge.Readiness {
		p.SuccessThreshold = 1 // the API server allows no other
	}
	return p
}

// maxPeriod is the longest period, in seconds.
const maxPeriod = 4

var anyRegimen = rapid.Custom(func(t *rapid.T) regimen {
	if rapid.IntRange(0, 3).Draw(t, "none") == 3 {
		return regimen{}
	}
	period := rapid.Int32Range(1, maxPeriod).Draw(t, "period")
	return regimen{
		Delay: rapid.Int32Range(0, 5).Draw(t, "delay"), Period: period, Timeout: rapid.Int32Range(1, period).Draw(t, "timeout"),
		Failures: rapid.Int32Range(1, 4).Draw(t, "failures"), Successes: rapid.Int32Range(1, 3).Draw(t, "successes"),
	}
})

// podUnder has a regular container and a sidecar, each with three probes or less.
func podUnder(regimens []regimen) *v1.Pod {
	container := func(name string, r []regimen) v1.Container {
		return v1.Container{
			Name: name, StartupProbe: r[0].probe(probejudge.Startup), ReadinessProbe: r[1].probe(probejudge.Readiness),
			LivenessProbe: r[2].probe(probejudge.Liveness),
		}
	}
	app, proxy := container("app", regimens[:3]), container("proxy", regimens[3:])
	proxy.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	pod := podWith(v1.RestartPolicyAlways)
	pod.Spec.Containers, pod.Spec.InitContainers = []v1.Container{app}, []v1.Container{proxy}
	return pod
}

func TestPRB19BothProbersMakeTheSameOfTheSameAnswers(t *testing.T) {
	checkSeeded(t, "probe", *probeSeed, *probeCases, func(rt *rapid.T) {
		pod := podUnder(rapid.SliceOfN(anyRegimen, 6, 6).Draw(rt, "probes"))
		history := rapid.SliceOfN(anyTreatment, 1, 15).Draw(rt, "history")
		seed := rapid.Uint64().Draw(rt, "answers")
		var wrong string // the bubble's goroutine must not end the property's
		synctest.Test(t, func(t *testing.T) {
			newWard(t, pod, seed, func(w *ward) { wrong = w.live(history) })
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// live leads both through the history and returns in what they differ.
func (w *ward) live(history []treatment) string {
	w.start("proxy")
	w.start("app")
	for i, next := range history {
		treatments[next.What](w, next.Container)
		w.rest(next.Then)
		if wrong := w.compare(); wrong != "" {
			return fmt.Sprintf("after %d treatments: %s", i+1, wrong)
		}
	}
	w.rest(settled)
	return w.compare()
}

// rest lets time pass, and has both write down where they are.
func (w *ward) rest(d time.Duration) {
	lazy := w.watchReadiness(d)
	time.Sleep(d)
	synctest.Wait()
	lazy()
	for _, p := range w.patients() {
		if p.state != observed.Running {
			continue
		}
		for _, kind := range kinds {
			if w.probeOf(p, kind) != nil && (kind == probejudge.Readiness || !w.isEnding()) {
				w.kubelet.note(exam{w.shift, p.id, kind})
				w.herald.note(exam{w.shift, p.id, kind})
			}
		}
	}
}

// watchReadiness returns what finds out, after that time, whether each asked once in each period: readiness never rests.
func (w *ward) watchReadiness(d time.Duration) func() {
	before := map[*chart]map[*patient]int{w.kubelet.chart: {}, w.herald.chart: {}}
	for _, p := range w.patients() {
		spec := w.probeOf(p, probejudge.Readiness)
		started := w.probeOf(p, probejudge.Startup) == nil ||
			w.kubelet.level(p.id, probejudge.Startup).Passed && w.herald.level(p.id, probejudge.Startup).Passed
		delayed := spec != nil && time.Since(p.since) < time.Duration(spec.InitialDelaySeconds)*time.Second
		if spec == nil || !started || delayed || p.state != observed.Running {
			continue
		}
		for side, counts := range before {
			counts[p] = side.count(exam{w.shift, p.id, probejudge.Readiness})
		}
	}
	return func() {
		for side, counts := range before {
			for p, count := range counts {
				least := int(d/time.Second)/int(w.probeOf(p, probejudge.Readiness).PeriodSeconds) - 2
				if asked := side.count(exam{w.shift, p.id, probejudge.Readiness}) - count; asked < least {
					side.complain("readiness of %s was asked %d times in %v, want %d", p.id, asked, d, least)
				}
			}
		}
	}
}

// compare says where the agents of this shift differ.
func (w *ward) compare() string {
	for _, side := range []*chart{w.kubelet.chart, w.herald.chart} {
		if len(side.wrong) > 0 {
			return fmt.Sprintf("kubelet: %q, Herald: %q", w.kubelet.wrong, w.herald.wrong)
		}
	}
	for e, theirs := range w.kubelet.levels {
		for n, level := range theirs {
			if ours, known := w.herald.levels[e][n]; known && ours != level {
				return fmt.Sprintf("%v of %s after %q: the kubelet says %+v, Herald %+v", e.kind, e.id, w.answers[e][:n], level, ours)
			}
		}
	}
	for _, p := range w.patients() {
		if p.state == observed.Running {
			if wrong := w.herald.isTold(p); wrong != "" {
				return wrong
			}
			if wrong := w.comparePace(p); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// comparePace finds the agent that asks less than it should. The kubelet sees a new container, and that one has started,
// at the next tick of each of its workers, but asks for readiness more often (BUG-36).
func (w *ward) comparePace(p *patient) string {
	for _, kind := range kinds {
		spec := w.probeOf(p, kind)
		if spec == nil {
			continue
		}
		const ticks = 2 * maxPeriod // of the startup probe's worker, then of this one
		late := attempts * (2 + ticks/int(spec.PeriodSeconds))
		e := exam{w.shift, p.id, kind}
		theirs, ours := w.kubelet.count(e), w.herald.count(e)
		if ours-theirs > late || theirs-ours > late && kind != probejudge.Readiness && !w.isEnding() {
			return fmt.Sprintf("%v of %s: the kubelet asked %d times, Herald %d", kind, p.id, theirs, ours)
		}
	}
	return ""
}

// attempts is how often each asks in a round in which nobody knows.
const attempts = 3

// graceCase is a container whose probe gave up.
type graceCase struct {
	Pod     *v1.Pod
	Startup bool
}

// compareGrace gives pods as the API server fills them in: each has a grace period.
var compareGrace = compared(
	func(d *drawer) graceCase {
		seconds := func() *int64 { return oneOf(d, nil, new(int64(1)), new(int64(5)), new(int64(30)), new(int64(600))) }
		c := graceCase{podWith(v1.RestartPolicyAlways, "app"), d.chance(50)}
		c.Pod.DeletionGracePeriodSeconds = seconds()
		c.Pod.Spec.TerminationGracePeriodSeconds = oneOf(d, new(int64(0)), new(int64(10)), new(int64(30)))
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
		seen, reason := sights(sight("app", 1, observed.Running)), plan.StopLivenessProbe
		if c.Startup {
			reason = plan.StopStartupProbe
		}
		ours := plan.ComputeActions(plan.Input{
			Pod: c.Pod, Observed: seen, Now: time.Now(), Unhealthy: map[observed.ContainerID]string{containerID("app", 1): ""},
		}).Stop
		if len(ours) != 1 || ours[0].Reason != reason {
			return unlike(reason, ours)
		}
		if theirs := kubelet.GracePeriod(c.Pod, &c.Pod.Spec.Containers[0], string(reason)); theirs != ours[0].Grace {
			return unlike(theirs.String(), ours[0].Grace.String())
		}
		return ""
	},
)

func TestPRB39BothGiveTheSameGraceAfterAFailedProbe(t *testing.T) { compareGrace.run(t) }

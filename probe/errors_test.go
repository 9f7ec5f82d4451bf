package probe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// count is how many series a metric has.
func (w *world) count(metric string) int {
	w.Helper()
	return len(gather(w.T, w.metrics)[metric])
}

// gather are the labels and values of all series, by metric.
func gather(t *testing.T, from prometheus.Gatherer) map[string]map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]float64{}
	for _, family := range families {
		series := map[string]float64{}
		for _, metric := range family.Metric {
			var labels []string
			for _, label := range metric.Label {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			value := metric.GetCounter().GetValue()
			if metric.Histogram != nil {
				value = float64(metric.Histogram.GetSampleCount())
			}
			series[strings.Join(labels, " ")] = value
		}
		all[family.GetName()] = series
	}
	return all
}

func TestPRB18ARoundThatFindsNothingOutTriesThreeTimesAndTellsOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", LivenessProbe: command("live")})
		w.answer("live", errs)
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(1500 * time.Millisecond)
		if diff := cmp.Diff([]float64{1, 1, 1}, w.times("live")); diff != "" {
			t.Fatal(diff)
		}
		want := []string{"event spec.containers{app} Warning Unhealthy: Liveness probe errored and resulted in unknown state: the runtime is away"}
		if diff := cmp.Diff(want, w.heard("")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestBUG24AContainerThatCannotBeCheckedIsNotReadyForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready"), LivenessProbe: command("live")})
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(500 * time.Millisecond)
		w.heard("")
		w.answer("ready", errs)
		w.answer("live", errs)
		w.after(2 * time.Second)
		if got := w.heard("ready"); got != nil {
			t.Fatalf("a runtime that is away for a moment has changed readiness: %q", got)
		}
		w.after(time.Second)
		if got := w.heard("ready"); !cmp.Equal(got, []string{"ready a1 false"}) {
			t.Fatalf("told %q", got)
		}
		w.after(time.Minute)
		if _, unhealthy := w.Results("u"); len(unhealthy) > 0 {
			t.Fatal("a container is restarted because its runtime is away")
		}
	})
}

func TestBUG24AContainerThatIsGoneIsNotReadyAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		pod.Spec.Containers[0].ReadinessProbe.FailureThreshold = 10
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(500 * time.Millisecond)
		w.answer("ready", func(context.Context) (int, error) { return 0, status.Error(codes.NotFound, "no such container") })
		w.after(time.Second)
		if got := w.heard(""); !cmp.Equal(got, []string{"ready a1 true", "wake u", "ready a1 false", "wake u"}) {
			t.Fatalf("told %q", got)
		}
	})
}

func TestAnEventNeverShowsTheIDOfAContainer(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		w.run(pod, "app", "a1")
		w.answer("ready", func(context.Context) (int, error) { return 0, errors.New("container a1 is in trouble") })
		w.AddPod(pod)
		w.after(500 * time.Millisecond)
		want := []string{"event spec.containers{app} Warning Unhealthy: Readiness probe errored and resulted in unknown state: " +
			"container app is in trouble"}
		if diff := cmp.Diff(want, w.heard("event")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestBUG37ACommandThatTakesTooLongIsKilledAndCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		w.answer("ready", hangs)
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(1500 * time.Millisecond)
		if facts, _ := w.Results("u"); facts[named("a1")].Readiness != derive.ProbeFailure {
			t.Fatal("it is not a failure")
		}
		if got := gather(t, w.metrics)["herald_probe_exec_timeouts_total"][""]; got != 1 {
			t.Fatalf("%v were counted", got)
		}
	})
}

func TestPRB7ACheckThatPanicsIsAnErrorAndNoMore(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", LivenessProbe: command("live")})
		w.answer("live", func(context.Context) (int, error) { panic("broken") })
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(2500 * time.Millisecond)
		w.answer("live", fails)
		w.after(time.Second)
		if got := len(w.times("live")); got != 7 {
			t.Fatalf("asked %d times", got)
		}
		if _, unhealthy := w.Results("u"); len(unhealthy) != 1 {
			t.Fatal("the probe is dead")
		}
	})
}

func TestPRB30APodWithoutAnAddressIsNotAsked(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("")})
		pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}
		w.seen[podid.UID(pod.UID)] = &observed.Pod{Containers: []observed.Container{{Name: "app", ID: named("a1"), State: observed.Running}}}
		w.AddPod(pod)
		w.after(5 * time.Second)
		if told := w.heard(""); told != nil || w.count("prober_probe_total") > 0 {
			t.Fatalf("it was: %q", told)
		}
	})
}

func TestPRB42RoundsAreCountedByWhatTheyFound(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		for _, answer := range []func(context.Context) (int, error){succeeds, fails, fails, errs} {
			w.answer("ready", answer)
			w.after(time.Second)
		}
		labels := "namespace=shop pod=web pod_uid=u probe_type=Readiness result="
		want := map[string]float64{"container=app " + labels + "successful": 2, "container=app " + labels + "failed": 2, "container=app " + labels + "unknown": 1}
		got := gather(t, w.metrics)
		if diff := cmp.Diff(want, got["prober_probe_total"]); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]float64{"container=app namespace=shop pod=web probe_type=Readiness": 3}, got["prober_probe_duration_seconds"]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPRB42APodThatGoesTakesNoSeriesOfItsNamesakeAlong(t *testing.T) {
	inWorld(t, func(w *world) {
		gone := podOf(v1.Container{Name: "app", ReadinessProbe: command("gone")})
		next := podOf(v1.Container{Name: "app", ReadinessProbe: command("next")})
		next.UID = "v"
		for pod, id := range map[*v1.Pod]string{gone: "a1", next: "b1"} {
			w.run(pod, "app", id)
			w.AddPod(pod)
		}
		w.after(500 * time.Millisecond)
		w.RemovePod("u")
		w.after(time.Second)
		for _, metric := range []string{"prober_probe_total", "prober_probe_duration_seconds"} {
			if got := w.count(metric); got != 1 {
				t.Errorf("%s has %d series of the pod that stays", metric, got)
			}
		}
		w.RemovePod("v")
		if got := w.count("prober_probe_total") + w.count("prober_probe_duration_seconds"); got != 0 {
			t.Errorf("%d series of no pod", got)
		}
	})
}

func TestWhatAContainerSaysIsMadeFitForATerminal(t *testing.T) {
	inWorld(t, func(w *world) {
		word := "\x1b[2J\a" + strings.Repeat("long ", 1000) + "\xff"
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command(word)})
		w.answer(word, fails)
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(time.Millisecond)
		told := w.heard("event")
		if len(told) != 1 || len(told[0]) > 1200 || strings.ContainsAny(told[0], "\x1b\a") || !utf8.ValidString(told[0]) {
			t.Fatalf("%q", told)
		}
	})
}

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

// countSeries returns the number of series of a metric.
func (h *harness) countSeries(metric string) int {
	h.Helper()
	return len(gatherMetrics(h.T, h.metrics)[metric])
}

// gatherMetrics returns the values of all series by metric and labels.
func gatherMetrics(t *testing.T, from prometheus.Gatherer) map[string]map[string]float64 {
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

func TestPRB18_ErrorRetries(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", LivenessProbe: newExecProbe("live")})
		h.handle("live", errs)
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(1500 * time.Millisecond)
		if diff := cmp.Diff([]float64{1, 1, 1}, h.executedAt("live")); diff != "" {
			t.Fatal(diff)
		}
		want := []string{"event spec.containers{app} Warning Unhealthy: Liveness probe errored and resulted in unknown state: runtime not available"}
		if diff := cmp.Diff(want, h.takeRecorded("")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestBUG24_RuntimeErrors(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready"), LivenessProbe: newExecProbe("live")})
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(500 * time.Millisecond)
		h.takeRecorded("")
		h.handle("ready", errs)
		h.handle("live", errs)
		h.advance(2 * time.Second)
		if got := h.takeRecorded("ready"); got != nil {
			t.Fatalf("got %q after a short outage of the runtime, want none", got)
		}
		h.advance(time.Second)
		if got := h.takeRecorded("ready"); !cmp.Equal(got, []string{"ready a1 false"}) {
			t.Fatalf("got %q", got)
		}
		h.advance(time.Minute)
		if _, unhealthy := h.Results("u"); len(unhealthy) > 0 {
			t.Fatal("got an unhealthy container during an outage of the runtime")
		}
	})
}

func TestBUG24_ContainerNotFound(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		pod.Spec.Containers[0].ReadinessProbe.FailureThreshold = 10
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(500 * time.Millisecond)
		h.handle("ready", func(context.Context) (int, error) { return 0, status.Error(codes.NotFound, "no such container") })
		h.advance(time.Second)
		if got := h.takeRecorded(""); !cmp.Equal(got, []string{"ready a1 true", "wake u", "ready a1 false", "wake u"}) {
			t.Fatalf("got %q", got)
		}
	})
}

func TestProber_EventWithoutContainerID(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		h.setRunning(pod, "app", "a1")
		h.handle("ready", func(context.Context) (int, error) { return 0, errors.New("container a1 is in trouble") })
		h.AddPod(pod)
		h.advance(500 * time.Millisecond)
		want := []string{"event spec.containers{app} Warning Unhealthy: Readiness probe errored and resulted in unknown state: " +
			"container app is in trouble"}
		if diff := cmp.Diff(want, h.takeRecorded("event")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestBUG37_ExecTimeout(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		h.handle("ready", hangs)
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(1500 * time.Millisecond)
		if results, _ := h.Results("u"); results[containerID("a1")].Readiness != derive.ProbeFailure {
			t.Fatal("got no failure, want failure")
		}
		if got := gatherMetrics(t, h.metrics)["herald_probe_exec_timeouts_total"][""]; got != 1 {
			t.Fatalf("got %v timeouts, want 1", got)
		}
	})
}

func TestPRB7_Panic(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", LivenessProbe: newExecProbe("live")})
		h.handle("live", func(context.Context) (int, error) { panic("broken") })
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(2500 * time.Millisecond)
		h.handle("live", fails)
		h.advance(time.Second)
		if got := len(h.executedAt("live")); got != 7 {
			t.Fatalf("got %d checks, want 7", got)
		}
		if _, unhealthy := h.Results("u"); len(unhealthy) != 1 {
			t.Fatal("got no unhealthy container after the panic")
		}
	})
}

func TestPRB30_NoAddress(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("")})
		pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}
		h.pods[podid.UID(pod.UID)] = &observed.Pod{Containers: []observed.Container{{Name: "app", ID: containerID("a1"), State: observed.Running}}}
		h.AddPod(pod)
		h.advance(5 * time.Second)
		if recorded := h.takeRecorded(""); recorded != nil || h.countSeries("prober_probe_total") > 0 {
			t.Fatalf("got %q, want none", recorded)
		}
	})
}

func TestPRB42_Metrics(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		for _, handler := range []func(context.Context) (int, error){succeeds, fails, fails, errs} {
			h.handle("ready", handler)
			h.advance(time.Second)
		}
		labels := "namespace=shop pod=web pod_uid=u probe_type=Readiness result="
		want := map[string]float64{"container=app " + labels + "successful": 2, "container=app " + labels + "failed": 2, "container=app " + labels + "unknown": 1}
		got := gatherMetrics(t, h.metrics)
		if diff := cmp.Diff(want, got["prober_probe_total"]); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]float64{"container=app namespace=shop pod=web probe_type=Readiness": 3}, got["prober_probe_duration_seconds"]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPRB42_SamePodName(t *testing.T) {
	runTest(t, func(h *harness) {
		gone := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("gone")})
		next := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("next")})
		next.UID = "v"
		for pod, id := range map[*v1.Pod]string{gone: "a1", next: "b1"} {
			h.setRunning(pod, "app", id)
			h.AddPod(pod)
		}
		h.advance(500 * time.Millisecond)
		h.RemovePod("u")
		h.advance(time.Second)
		for _, metric := range []string{"prober_probe_total", "prober_probe_duration_seconds"} {
			if got := h.countSeries(metric); got != 1 {
				t.Errorf("%s: got %d series, want 1", metric, got)
			}
		}
		h.RemovePod("v")
		if got := h.countSeries("prober_probe_total") + h.countSeries("prober_probe_duration_seconds"); got != 0 {
			t.Errorf("got %d series, want 0", got)
		}
	})
}

func TestProber_SanitizedEvent(t *testing.T) {
	runTest(t, func(h *harness) {
		command := "\x1b[2J\a" + strings.Repeat("long ", 1000) + "\xff"
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe(command)})
		h.handle(command, fails)
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(time.Millisecond)
		recorded := h.takeRecorded("event")
		if len(recorded) != 1 || len(recorded[0]) > 1200 || strings.ContainsAny(recorded[0], "\x1b\a") || !utf8.ValidString(recorded[0]) {
			t.Fatalf("got %q", recorded)
		}
	})
}

package source_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// fakeRecorder records events. The goroutine of the reporting source writes, tests read after synctest.Wait.
type fakeRecorder struct{ events []string }

func (r *fakeRecorder) Event(object runtime.Object, eventType, reason, message string) {
	name := ""
	switch o := object.(type) {
	case *v1.Pod:
		name = "pod " + o.Name
	case *v1.ObjectReference:
		name = o.Kind + " " + o.Name
	}
	r.events = append(r.events, strings.Join([]string{name, eventType, reason, message}, "|"))
}

func TestMux_ProblemReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var told []string
		recorder := &fakeRecorder{}
		registry := prometheus.NewRegistry()
		m := newMuxHarness(t, func(c *source.MuxConfig) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.Events, c.NodeName, c.Metrics = recorder, node, registry
			c.OnProblem = func(problem source.Problem, isResolved bool) {
				told = append(told, fmt.Sprint(problem.Line, " ", isResolved))
			}
		}, podid.File, podid.HTTP)
		file := m.sinks[podid.File]
		problem := source.Problem{Location: "/m/a.yaml", Line: 3, Field: "spec.x", Message: "unknown field"}
		start := time.Now()
		for range 3 {
			file.Report([]source.Problem{problem})
			time.Sleep(20 * time.Second)
		}
		want := problem
		want.Source, want.Since = podid.File, start
		if got := m.mux.Problems(); len(got) != 1 || got[0] != want {
			t.Fatalf("problems: got %v, want %v", got, want)
		}
		expectMetrics(t, registry, 1, 1)
		problem.Line = 4
		file.Report([]source.Problem{problem})
		file.Report(nil)
		if want := []string{"3 false", "4 false", "3 true", "4 true"}; !slices.Equal(told, want) {
			t.Errorf("OnProblem: got %v, want %v", told, want)
		}
		file.Report(nil)
		expectMetrics(t, registry, 2, 0)
		warnings, resolved := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "Problem with pod source resolved")
		if warnings != 2 || resolved != 2 {
			t.Fatalf("got %d warnings and %d resolved, want 2 and 2:\n%s", warnings, resolved, log.String())
		}
		event := "Node n1|Warning|FailedValidation|/m/a.yaml:3: spec.x: unknown field"
		if len(recorder.events) != 2 || recorder.events[0] != event {
			t.Fatalf("events: got %q, want 2 with %q first", recorder.events, event)
		}
		m.sinks[podid.HTTP].Replace([]*v1.Pod{newPod("web", "u1"), newPod("web", "u2")})
		m.expectUpdates("http ADD web/u1")
		m.sinks[podid.File].Replace(nil)
		m.expectUpdates("file ADD")
		if len(recorder.events) != 3 || !strings.HasPrefix(recorder.events[2], "pod web|Warning|FailedValidation|web_d") {
			t.Fatalf("events: got %q, want a third of pod web", recorder.events)
		}
	})
}

// The kubelet only logs that a source cannot be read. An outage of the API server must not look like an invalid pod, and an
// event about it would be sent when it is over.
func TestMux_UnavailableSourceEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := &fakeRecorder{}
		m := newMuxHarness(t, func(c *source.MuxConfig) { c.Events, c.NodeName = recorder, node }, podid.HTTP, podid.API)
		m.sinks[podid.API].Report([]source.Problem{{Location: "API server", Message: "cannot list pods", Unavailable: true}})
		if problems := m.mux.Problems(); len(problems) != 1 || len(recorder.events) != 0 {
			t.Fatalf("got problems %v and events %q, want one problem and no event", problems, recorder.events)
		}
		m.sinks[podid.HTTP].Report([]source.Problem{{Location: "https://h/x", Message: "connection refused", Unavailable: true}})
		want := []string{"Node n1|Warning|PodSourceUnavailable|https://h/x: connection refused"}
		if !slices.Equal(recorder.events, want) {
			t.Fatalf("events: got %q, want %q", recorder.events, want)
		}
	})
}

func expectMetrics(t *testing.T, registry *prometheus.Registry, errors, problems int) {
	t.Helper()
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP herald_manifest_errors_total Problems that appeared in the input of a pod source. A problem that persists is counted once.
# TYPE herald_manifest_errors_total counter
herald_manifest_errors_total{source="file"} `+string(rune('0'+errors))+`
herald_manifest_errors_total{source="http"} 0
# HELP herald_manifest_problems Current problems in the input of a pod source.
# TYPE herald_manifest_problems gauge
herald_manifest_problems{source="file"} `+string(rune('0'+problems))+`
herald_manifest_problems{source="http"} 0
`))
	if err != nil {
		t.Fatal(err)
	}
}

func TestMux_ProblemLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File)
		many := make([]source.Problem, 5000)
		long := strings.Repeat("é", 10_000) + "\xff"
		for i := range many {
			many[i] = source.Problem{Location: "a\x1b[2Jb\nc", Line: i, Message: long}
		}
		m.sinks[podid.File].Report(many)
		problems := m.mux.Problems()
		if len(problems) != 1001 || problems[0].Message != "4000 more problems are not listed" {
			t.Fatalf("got %d problems, the first %v; want 1001 that start with the rest", len(problems), problems[0])
		}
		if p := problems[1]; p.Location != "a\ufffd[2Jb c" || len(p.Message) > 1100 {
			t.Fatalf("got location %q and a message of %d bytes, want printable and at most 1100", p.Location, len(p.Message))
		}
	})
}

func TestMux_LogsStaticPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		withLogger := func(c *source.MuxConfig) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		m := newMuxHarness(t, withLogger, podid.File, podid.API)
		m.sinks[podid.File].Replace([]*v1.Pod{newPod("web", "u1", withAnnotation(podid.HashAnnotation, "h1"))})
		m.sinks[podid.API].Replace([]*v1.Pod{newPod("api", "u2")})
		m.receiveUpdates()
		if got := log.String(); !strings.Contains(got, "podSource=file op=ADD pod=default/web podUID=u1 hash=h1") ||
			strings.Contains(got, "default/api") {
			t.Fatalf("log: got\n%s\nwant the static pod only", got)
		}
	})
}

func TestMux_MetricsRegistrationFails(t *testing.T) {
	registry := prometheus.NewRegistry()
	taken := prometheus.NewGauge(prometheus.GaugeOpts{Name: "herald_manifest_problems"})
	registry.MustRegister(taken)
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{newFakeSource(podid.File)}, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	if err := mux.Run(t.Context()); err == nil {
		t.Fatal("Run: got no error, want one")
	}
	if _, open := <-mux.Updates(); open {
		t.Fatal("Updates: got open, want closed")
	}
}

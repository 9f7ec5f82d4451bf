package source_test

import (
	"bytes"
	"log/slog"
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

// events keeps what an event.Recorder was told. The goroutine of the reporting source writes; tests read after synctest.Wait.
type events struct{ all []string }

func (e *events) Event(object runtime.Object, eventType, reason, message string) {
	name := ""
	switch o := object.(type) {
	case *v1.Pod:
		name = "pod " + o.Name
	case *v1.ObjectReference:
		name = o.Kind + " " + o.Name
	}
	e.all = append(e.all, strings.Join([]string{name, eventType, reason, message}, "|"))
}

func TestAProblemIsToldOnceAndItsEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		recorder := &events{}
		registry := prometheus.NewRegistry()
		m := merge(t, func(c *source.MuxConfig) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.Events, c.NodeName, c.Metrics = recorder, node, registry
		}, podid.File, podid.HTTP)
		file := m.sinks[podid.File]
		bad := source.Problem{Location: "/m/a.yaml", Line: 3, Field: "spec.x", Message: "unknown field"}
		began := time.Now()
		for range 3 {
			file.Report([]source.Problem{bad})
			time.Sleep(20 * time.Second)
		}
		want := bad
		want.Source, want.Since = podid.File, began
		if got := m.mux.Problems(); len(got) != 1 || got[0] != want {
			t.Fatalf("problems %v, want %v", got, want)
		}
		metricsAre(t, registry, 1, 1)
		bad.Line = 4
		file.Report([]source.Problem{bad})
		file.Report(nil)
		file.Report(nil)
		metricsAre(t, registry, 2, 0)
		warned, ended := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "is over")
		if warned != 2 || ended != 2 {
			t.Fatalf("%d warnings and %d ends, want 2 and 2:\n%s", warned, ended, log.String())
		}
		event := "Node n1|Warning|FailedValidation|/m/a.yaml:3: spec.x: unknown field"
		if len(recorder.all) != 2 || recorder.all[0] != event {
			t.Fatalf("events: %q", recorder.all)
		}
		m.sinks[podid.HTTP].Replace([]*v1.Pod{pod("web", "u1"), pod("web", "u2")})
		m.expect("http ADD web/u1")
		m.sinks[podid.File].Replace(nil)
		m.expect("file ADD")
		if len(recorder.all) != 3 || !strings.HasPrefix(recorder.all[2], "pod web|Warning|FailedValidation|web_d") {
			t.Fatalf("events: %q", recorder.all)
		}
	})
}

func metricsAre(t *testing.T, registry *prometheus.Registry, errors, problems int) {
	t.Helper()
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP herald_manifest_errors_total Problems that appeared in what a pod source reads; a problem that stays counts once.
# TYPE herald_manifest_errors_total counter
herald_manifest_errors_total{source="file"} `+string(rune('0'+errors))+`
herald_manifest_errors_total{source="http"} 0
# HELP herald_manifest_problems Problems in what a pod source reads, now.
# TYPE herald_manifest_problems gauge
herald_manifest_problems{source="file"} `+string(rune('0'+problems))+`
herald_manifest_problems{source="http"} 0
`))
	if err != nil {
		t.Fatal(err)
	}
}

func TestHostileProblemsAreBoundedAndPrintable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File)
		many := make([]source.Problem, 5000)
		long := strings.Repeat("é", 10_000) + "\xff"
		for i := range many {
			many[i] = source.Problem{Location: "a\x1b[2Jb\nc", Line: i, Message: long}
		}
		m.sinks[podid.File].Report(many)
		problems := m.mux.Problems()
		if len(problems) != 1001 || problems[0].Message != "4000 more problems are not listed" {
			t.Fatalf("%d problems, the first: %v", len(problems), problems[0])
		}
		if p := problems[1]; p.Location != "a\ufffd[2Jb c" || len(p.Message) > 1100 {
			t.Fatalf("location %q, %d bytes of text", p.Location, len(p.Message))
		}
	})
}

func TestStaticPodsThatComeAndGoLeaveATrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logged := func(c *source.MuxConfig) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		m := merge(t, logged, podid.File, podid.API)
		m.sinks[podid.File].Replace([]*v1.Pod{pod("web", "u1", annotated(podid.HashAnnotation, "h1"))})
		m.sinks[podid.API].Replace([]*v1.Pod{pod("api", "u2")})
		m.receive()
		if got := log.String(); !strings.Contains(got, "source=file op=ADD pod=web_default uid=u1 hash=h1") ||
			strings.Contains(got, "api_default") {
			t.Fatalf("log:\n%s", got)
		}
	})
}

func TestMetricsThatCannotBeRegisteredEndTheRun(t *testing.T) {
	registry := prometheus.NewRegistry()
	taken := prometheus.NewGauge(prometheus.GaugeOpts{Name: "herald_manifest_problems"})
	registry.MustRegister(taken)
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{newScripted(podid.File)}, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	if err := mux.Run(t.Context()); err == nil {
		t.Fatal("Run has no error")
	}
	if _, open := <-mux.Updates(); open {
		t.Fatal("updates stay open")
	}
}

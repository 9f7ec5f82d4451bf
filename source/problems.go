package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/podid"
)

// Limits against hostile input: problems per reporter, and bytes of each text.
const (
	maxProblems     = 1000
	maxProblemBytes = 1024
)

// Event reasons. FailedValidation is the kubelet's, for an invalid pod of a source (CFG-36). The kubelet only logs that a
// source cannot be read.
const (
	reasonFailedValidation  = "FailedValidation"
	reasonSourceUnavailable = "PodSourceUnavailable"
)

// podProblem is a problem with the pod that it concerns, if there is one.
type podProblem struct {
	Problem
	pod *v1.Pod
}

// reporter identifies a list of problems. A source has several, each replaced independently.
type reporter struct {
	source podid.Source
	kind   reportKind
}

type reportKind int

const (
	reportedInput     reportKind = iota // by the source, through Sink.Report
	reportedSet                         // found in a set passed to Sink.Replace
	reportedChange                      // found in a change passed to Sink.Apply
	reportedConflicts                   // found while merging the sources
)

// problemSet holds the current problems. It logs, counts and records an event once for each problem, and logs when it is
// resolved. It is safe for concurrent use. Each reporter must be used by one goroutine at a time.
type problemSet struct {
	logger  *slog.Logger
	metrics *metrics
	events  event.Recorder
	node    runtime.Object // object of events without a pod
	notify  func(problem Problem, isResolved bool)
	mu      sync.Mutex // guards current
	current map[reporter][]Problem
}

func newProblemSet(config MuxConfig, metrics *metrics) *problemSet {
	return &problemSet{
		logger:  config.Logger,
		metrics: metrics,
		events:  config.Events,
		notify:  config.OnProblem,
		node:    &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: config.NodeName, UID: types.UID(config.NodeName)},
		current: map[reporter][]Problem{},
	}
}

// report replaces the problems of one reporter. A problem that was reported before keeps its Since.
func (s *problemSet) report(by reporter, problems []podProblem, now time.Time) {
	problems = limit(problems)
	s.mu.Lock()
	previous := s.current[by]
	if len(previous) == 0 && len(problems) == 0 {
		s.mu.Unlock()
		return
	}
	since := make(map[Problem]time.Time, len(previous))
	for _, problem := range previous {
		since[problem.withoutSince()] = problem.Since
	}
	var added []podProblem
	current := make([]Problem, 0, len(problems))
	for _, problem := range problems {
		key := problem.withoutSince()
		_, known := since[key]
		if !known {
			since[key] = now
		}
		problem.Since = since[key]
		if !known {
			added = append(added, problem)
		}
		current = append(current, problem.Problem)
	}
	s.current[by] = current
	s.metrics.set(by.source, len(added), s.countLocked(by.source))
	s.mu.Unlock()
	s.announce(added, subtract(previous, current))
}

// announce logs what changed and records events. It must be called without the lock: handlers and recorders are foreign
// code.
func (s *problemSet) announce(added []podProblem, resolved []Problem) {
	ctx := context.Background()
	for _, problem := range added {
		s.logger.LogAttrs(ctx, slog.LevelWarn, "Problem with pod source", problemAttrs(problem.Problem)...)
		s.recordEvent(problem)
		s.notify(problem.Problem, false)
	}
	for _, problem := range resolved {
		s.logger.LogAttrs(ctx, slog.LevelInfo, "Problem with pod source resolved", problemAttrs(problem)...)
		s.notify(problem, true)
	}
}

// recordEvent records an event of the pod, or of the node. An outage of the API server is none: it could only be sent after
// the outage.
func (s *problemSet) recordEvent(problem podProblem) {
	reason := reasonFailedValidation
	if problem.Unavailable {
		if problem.Source == podid.API {
			return
		}
		reason = reasonSourceUnavailable
	}
	object := s.node
	if problem.pod != nil {
		object = problem.pod
	}
	s.events.Event(object, v1.EventTypeWarning, reason, problem.String())
}

func problemAttrs(problem Problem) []slog.Attr {
	attrs := []slog.Attr{slog.String("podSource", string(problem.Source)), slog.String("location", problem.Location)}
	if problem.Line != 0 {
		attrs = append(attrs, slog.Int("line", problem.Line))
	}
	if problem.Field != "" {
		attrs = append(attrs, slog.String("field", problem.Field))
	}
	return append(attrs, slog.String("problem", problem.Message))
}

// list returns the current problems, sorted by source, location and line.
func (s *problemSet) list() []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Problem
	for _, problems := range s.current {
		all = append(all, problems...)
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Location, b.Location), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return all
}

func (s *problemSet) countLocked(source podid.Source) int {
	count := 0
	for by, problems := range s.current {
		if by.source == source {
			count += len(problems)
		}
	}
	return count
}

// subtract returns the problems of previous that are not in current.
func subtract(previous, current []Problem) []Problem {
	isCurrent := make(map[Problem]bool, len(current))
	for _, problem := range current {
		isCurrent[problem] = true
	}
	return slices.DeleteFunc(slices.Clone(previous), func(problem Problem) bool { return isCurrent[problem] })
}

// limit truncates the list and each text, and replaces characters that are not printable.
func limit(problems []podProblem) []podProblem {
	limited := make([]podProblem, 0, min(len(problems), maxProblems+1))
	for i, problem := range problems {
		if i == maxProblems {
			rest := Problem{Source: problem.Source, Message: fmt.Sprintf("%d more problems are not listed", len(problems)-i)}
			limited = append(limited, podProblem{Problem: rest})
			break
		}
		problem.Location, problem.Field, problem.Message = sanitize(problem.Location), sanitize(problem.Field), sanitize(problem.Message)
		limited = append(limited, problem)
	}
	return limited
}

func sanitize(text string) string {
	if len(text) > maxProblemBytes {
		text = text[:maxProblemBytes] + "…"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		default:
			return unicode.ReplacementChar
		}
	}, text)
}

// metrics counts problems by source.
type metrics struct {
	errors   *prometheus.CounterVec
	problems *prometheus.GaugeVec
}

func newMetrics(sources []Source) *metrics {
	m := &metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_manifest_errors_total",
			Help: "Problems that appeared in the input of a pod source. A problem that persists is counted once.",
		}, []string{"source"}),
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "herald_manifest_problems",
			Help: "Current problems in the input of a pod source.",
		}, []string{"source"}),
	}
	for _, source := range sources {
		m.set(source.Name(), 0, 0) // alerts need the series before the first problem
	}
	return m
}

func (m *metrics) set(source podid.Source, added, total int) {
	m.errors.WithLabelValues(string(source)).Add(float64(added))
	m.problems.WithLabelValues(string(source)).Set(float64(total))
}

// register registers the metrics until unregister is called.
func (m *metrics) register(registerer prometheus.Registerer) (unregister func(), err error) {
	if registerer == nil {
		return func() {}, nil
	}
	unregister = func() {
		registerer.Unregister(m.errors)
		registerer.Unregister(m.problems)
	}
	if err := errors.Join(registerer.Register(m.errors), registerer.Register(m.problems)); err != nil {
		unregister()
		return nil, err
	}
	return unregister, nil
}

package source

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/podid"
)

// What bad input may cost: so many problems are kept of each reporter, and so much text of each.
const (
	maxProblems     = 1000
	maxProblemBytes = 1024
)

// failedValidation is the kubelet's event reason for a pod that a source may not have (CFG-36).
const failedValidation = "FailedValidation"

// complaint is a problem and, when it is about a pod that is known, that pod.
type complaint struct {
	Problem
	pod *v1.Pod
}

// reporter tells one list of problems from another: a source's own from what was found when its pods were taken in.
type reporter struct {
	source podid.Source
	part   string
}

// registry holds what is wrong now, and speaks once when that changes: a log line, a count, an event. Any goroutine may
// use it; each reporter is one goroutine at a time.
type registry struct {
	logger   *slog.Logger
	metrics  *metrics
	recorder event.Recorder // nil: none
	node     runtime.Object // what events are about when there is no pod
	mu       sync.Mutex     // guards current
	current  map[reporter][]Problem
}

func newRegistry(config MuxConfig, metrics *metrics) *registry {
	return &registry{
		logger:   config.Logger,
		metrics:  metrics,
		recorder: config.Events,
		node:     &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: config.NodeName, UID: types.UID(config.NodeName)},
		current:  map[reporter][]Problem{},
	}
}

// report replaces what is wrong according to one reporter. A problem that stays keeps the time since when it is known.
func (r *registry) report(by reporter, found []complaint, now time.Time) {
	found = bound(found)
	r.mu.Lock()
	before := r.current[by]
	if len(before) == 0 && len(found) == 0 {
		r.mu.Unlock()
		return
	}
	known := make(map[Problem]time.Time, len(before))
	for _, p := range before {
		known[timeless(p)] = p.Since
	}
	var appeared []complaint
	current := make([]Problem, 0, len(found))
	for _, c := range found {
		since, old := known[timeless(c.Problem)]
		if !old {
			since = now
			appeared = append(appeared, c)
		}
		c.Since = since
		current = append(current, c.Problem)
		known[timeless(c.Problem)] = since
	}
	r.current[by] = current
	r.metrics.problemsChanged(by.source, len(appeared), r.countLocked(by.source))
	r.mu.Unlock()
	r.speak(appeared, ended(before, current))
}

// speak tells the operator what changed. It holds no lock: handlers and recorders are not ours.
func (r *registry) speak(appeared []complaint, over []Problem) {
	ctx := context.Background()
	for _, c := range appeared {
		r.logger.LogAttrs(ctx, slog.LevelWarn, "problem with a pod source", problemAttrs(c.Problem)...)
		if r.recorder != nil {
			object := r.node
			if c.pod != nil {
				object = c.pod
			}
			r.recorder.Event(object, v1.EventTypeWarning, failedValidation, c.String())
		}
	}
	for _, p := range over {
		r.logger.LogAttrs(ctx, slog.LevelInfo, "problem with a pod source is over", problemAttrs(p)...)
	}
}

func problemAttrs(p Problem) []slog.Attr {
	attrs := []slog.Attr{slog.String("source", string(p.Source)), slog.String("location", p.Location)}
	if p.Line != 0 {
		attrs = append(attrs, slog.Int("line", p.Line))
	}
	if p.Field != "" {
		attrs = append(attrs, slog.String("field", p.Field))
	}
	return append(attrs, slog.String("problem", p.Message))
}

// all lists what is wrong now, by source, location and line.
func (r *registry) all() []Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Problem
	for _, problems := range r.current {
		all = append(all, problems...)
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Location, b.Location), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return all
}

func (r *registry) countLocked(source podid.Source) int {
	count := 0
	for by, problems := range r.current {
		if by.source == source {
			count += len(problems)
		}
	}
	return count
}

func timeless(p Problem) Problem {
	p.Since = time.Time{}
	return p
}

// ended lists the problems of before that are not among the current ones.
func ended(before, current []Problem) []Problem {
	still := make(map[Problem]bool, len(current))
	for _, p := range current {
		still[p] = true
	}
	return slices.DeleteFunc(slices.Clone(before), func(p Problem) bool { return still[p] })
}

// bound keeps hostile input from filling memory or a terminal: the list and each text are cut, and what a terminal
// would obey is replaced.
func bound(found []complaint) []complaint {
	bounded := make([]complaint, 0, min(len(found), maxProblems+1))
	for i, c := range found {
		if i == maxProblems {
			rest := Problem{Source: c.Source, Message: fmt.Sprintf("%d more problems are not listed", len(found)-i)}
			bounded = append(bounded, complaint{Problem: rest})
			break
		}
		c.Location, c.Field, c.Message = printable(c.Location), printable(c.Field), printable(c.Message)
		bounded = append(bounded, c)
	}
	return bounded
}

func printable(text string) string {
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

package rule_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/view"
)

func TestEval_Value(t *testing.T) {
	tests := map[string]struct {
		fields string
		want   *float64
	}{
		"int":                {"expr: 'true'\nvalue: pod.restarts", new(4.)},
		"double":             {"expr: 'true'\nvalue: pod.load.cpu_limit", new(.1)},
		"false":              {"expr: 'false'\nvalue: pod.restarts", nil},
		"unknown":            {"expr: 'true'\nvalue: pod.load.psi_cpu", nil},
		"error":              {"expr: 'true'\nvalue: 1 / (pod.restarts - 4)", nil},
		"not finite":         {"expr: 'true'\nvalue: node.load.hours_to_full", nil},
		"without expression": {"expr: 'true'", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := newInput()
			in.Pod.Local.Status.ContainerStatuses[0].RestartCount = 4
			got := parse(t, "alert: X\non: pod\n"+test.fields).Eval(in)
			if got.Err != nil || (got.Value == nil) != (test.want == nil) || got.Value != nil && *got.Value != *test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestA4_Unknown checks what makes the answer of a rule unknown, and why.
func TestA4_Unknown(t *testing.T) {
	tests := map[string]struct {
		fields string
		edit   change
		reason string
	}{
		"runtime, container":      {"on: container\nexpr: 'true'", isStale, "the container runtime does not answer"},
		"runtime, pod.containers": {"on: pod\nexpr: pod.containers.all(c, c.ready)", isStale, "the container runtime does not answer"},
		"runtime, pod":            {"on: pod\nexpr: pod.ready", isStale, ""},
		"container load":          {"on: container\nexpr: container.load.cpu > 1.0", onPod(noPodLoad), "not known: load.cpu"},
		"node load":               {"on: node\nexpr: node.load.disk > 0.5", onNode(noLoad), "not known: node.load.disk"},
		"decided without load":    {"on: container\nexpr: container.load.cpu > 1.0 || container.ready", onPod(noPodLoad), ""},
		"no node":                 {"on: pod\nexpr: node.ready", noNode, "not known: node"},
		"no pod":                  {"on: pod\nexpr: pod.label('x') == ''", noPod, "not known: pod"},
		"no such container":       {"on: container\nexpr: container.ready", func(in *rule.Input) { in.Container = "x" }, "not known: container"},
		"no counts":               {"on: pod\nexpr: pod.flipped('Ready', '1h') > 0", noRecent, "not known: what happened recently"},
		"error":                   {"on: pod\nexpr: pod.containers[7].ready", healthy, "evaluation failed: index out of bounds: 7"},
		"panic":                   {"on: pod\nexpr: pod.flipped('Ready', '1h') > 0", func(in *rule.Input) { in.Recent = panicking{} }, "evaluation failed: internal error: broken"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := newInput()
			test.edit(&in)
			got := parse(t, "alert: X\n"+test.fields).Eval(in)
			if (got.Truth == rule.Unknown) != (test.reason != "") || got.Reason != test.reason {
				t.Errorf("got %+v", got)
			}
			if (got.Err != nil) != strings.HasPrefix(test.reason, "evaluation failed") {
				t.Errorf("got %v", got.Err)
			}
		})
	}
}

type panicking struct{}

func (panicking) Count(recent.Object, string, time.Duration, time.Time) (int, time.Time) {
	panic("broken")
}

// TestEval_IdleLoad checks that the load of what does not run, or has no limit, is 0.
func TestEval_IdleLoad(t *testing.T) {
	ended := func(in *rule.Input) {
		in.Pod.Load = nil
		in.Pod.Local.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	}
	unlimited := func(in *rule.Input) {
		usage := &in.Pod.Load.Containers[0].UsageLoad
		usage.CPU.LimitCores, usage.CPU.OfLimit, usage.Memory.LimitBytes, usage.Memory.OfLimit = nil, nil, nil, nil
		usage.CPU.Throttled = nil
	}
	tests := map[string]struct {
		expr string
		edit change
	}{
		"ended":        {"container.load.memory == 0.0 && container.load.throttled == 0.0 && container.load.cpu_limit == 0.0", ended},
		"ended pod":    {"pod.load.memory == 0.0 && pod.load.pids == 0", ended},
		"unlimited":    {"container.load.memory_limit == 0.0 && container.load.cpu_limit + container.load.throttled == 0.0", unlimited},
		"has no limit": {"has(container.load.memory_limit)", unlimited},
	}
	for name, test := range tests {
		in := newInput()
		test.edit(&in)
		if got := parse(t, "alert: X\non: container\nexpr: "+test.expr).Eval(in); got.Truth != rule.True {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestEval_Saturates(t *testing.T) {
	in := newInput()
	in.Recent = many{}
	if got := parse(t, "alert: X\non: container\nexpr: container.restarted('24h') == 64").Eval(in); got.Truth != rule.True {
		t.Errorf("got %+v", got)
	}
}

type many struct{}

func (many) Count(recent.Object, string, time.Duration, time.Time) (int, time.Time) {
	return 1000, time.Time{}
}

func TestAllows(t *testing.T) {
	r := parse(t, `
alert: X
on: container
expr: container.ready
actions:
- type: snapshot
- {type: restart-container, only_if: container.restarts < 20 && !pod.critical}
- {type: restart-container, only_if: container.load.cpu > 0.05}
- {type: restart-container, only_if: 'pod.containers[7].ready'}
`)
	tests := map[string]struct {
		action int
		edit   change
		want   bool
		err    string
	}{
		"none":         {0, healthy, true, ""},
		"true":         {1, healthy, true, ""},
		"false":        {1, onPod(func(v *view.PodView) { v.Spec.Priority = 2_000_000_000 }), false, ""},
		"known load":   {2, healthy, true, ""},
		"unknown load": {2, onPod(noPodLoad), false, "only_if: not known: load.cpu"},
		"stale":        {1, isStale, false, "only_if: the container runtime does not answer"},
		"error":        {3, healthy, false, "only_if: index out of bounds: 7"},
		"no action":    {4, healthy, false, "rule X has no action 4"},
	}
	for name, test := range tests {
		in := newInput()
		test.edit(&in)
		got, err := r.Allows(test.action, in)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// TestA8_RuntimeCost checks that an evaluation ends at the limit. No expression that is compiled reaches it.
func TestA8_RuntimeCost(t *testing.T) {
	for _, r := range rule.Default().Rules {
		if r.MaxCost > expression.MaxRuleCost {
			t.Errorf("%s costs up to %d", r.Name, r.MaxCost)
		}
		if got := r.Eval(newInput()); got.Cost == 0 || got.Cost > r.MaxCost || errors.Is(got.Err, expression.ErrCost) {
			t.Errorf("%s: got cost %d, at most %d", r.Name, got.Cost, r.MaxCost)
		}
	}
}

package expression_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/view"
)

var now = time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC)

func newPod() *view.PodView {
	return &view.PodView{
		Metadata: view.Metadata{
			Namespace: "shop", Name: "cart", Labels: map[string]string{"app": "cart"}, OwnerKind: "ReplicaSet",
			DeletionTimestamp: view.NewTime(now.Add(-time.Second)),
		},
		Source: "api",
		Spec: view.Spec{Priority: 2_000_000_000, Containers: []view.Container{
			{Name: "web", Kind: "regular", Image: "example.test/web:1"}, {Name: "new", Kind: "ephemeral"},
		}},
		Local: view.Status{Status: v1.PodStatus{
			Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
				Name: "web", RestartCount: 14,
				State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: strings.Repeat("é", 1000)}},
				LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
			}},
		}},
		Lag:    view.Lag{State: explain.SyncWaiting, Behind: 2},
		Probes: []view.Probe{{Container: "web", Verdict: explain.Failing, Streak: 4, StreakFailed: true, Errors: 1}},
		Why:    view.Why{Code: "CrashLoopBackOff"},
	}
}

func newEnvironment(tb testing.TB) *expression.Environment {
	tb.Helper()
	environment, err := expression.NewEnvironment()
	if err != nil {
		tb.Fatal(err)
	}
	return environment
}

func node() *view.NodeView {
	return &view.NodeView{
		Metadata: view.Metadata{Name: "n1"}, Pods: view.PodCounts{Total: 3, Max: 110},
		Sources: []view.Source{{Name: "file", Problems: []view.Problem{{Message: "x"}}}},
		Local: view.NodeStatus{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionTrue}, {Type: v1.NodeDiskPressure, Status: v1.ConditionTrue},
		}}},
	}
}

func TestMatch(t *testing.T) {
	tests := map[string]bool{
		"true":                          true,
		"pod.namespace == 'shop'":       true,
		"pod.label('app') == 'cart'":    true,
		"pod.label('none') == ''":       true,
		"pod.annotation('none') != ''":  false,
		"pod.restarts > 10":             true,
		"pod.critical && pod.deleting":  true,
		"pod.overdue":                   true,
		"pod.ready || pod.static":       false,
		"pod.behind > 0":                true,
		"pod.refused":                   false,
		"pod.why == 'CrashLoopBackOff'": true,
		"pod.owner_kind == 'Job'":       false,
		"pod.containers.exists(c, c.last_reason == 'OOMKilled' && c.last_exit_code == 137)":   true,
		"pod.containers.exists(c, c.probe_failing && c.probe_erroring && c.probe_streak > 3)": true,
		"pod.containers.all(c, c.state == 'waiting')":                                         true, // also that without a status
		"pod.containers.exists(c, c.kind == 'ephemeral' && c.exit_code == 0 && !c.started)":   true,
		"pod.containers.exists(c, c.image.startsWith('example.test/'))":                       true,
		"pod.containers[0].name.matches('^w.b$')":                                             true,
		"pod.containers.exists(c, size(c.message) == 128)":                                    true, // cut at 256 bytes
		"node.name == 'n1' && node.ready && node.pods < node.max_pods":                        true,
		"node.pressure('Disk') && !node.pressure('Memory')":                                   true,
		"node.sources_bad == 1 && !node.api_reachable":                                        true,
		"has(pod.reason)": true,
	}
	environment := newEnvironment(t)
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			compiled, err := environment.Compile(text)
			if err != nil {
				t.Fatal(err)
			}
			got, cost, err := compiled.Match(expression.Input{Now: now, Pod: newPod(), Node: node})
			if err != nil || got != want {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
			if cost > expression.MaxCost {
				t.Errorf("got cost %d", cost)
			}
		})
	}
}

// TestMatch_EveryField evaluates every field of an object without values: the environment is total.
func TestMatch_EveryField(t *testing.T) {
	environment := newEnvironment(t)
	for variable, fields := range expression.Fields() {
		for _, field := range fields {
			text := variable + "." + field + " == " + variable + "." + field
			if field == "load" { // objects cannot be compared, and its fields follow
				text = "has(" + variable + ".load)"
			}
			if strings.HasPrefix(variable, "container") {
				text = "pod.containers.all(container, " + text + ")"
			}
			compiled, err := environment.Compile(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			pods := []*view.PodView{{}, {Spec: view.Spec{Containers: []view.Container{{Name: "web"}}}}, newPod()}
			for _, pod := range pods {
				matches, _, err := compiled.Match(expression.Input{Pod: pod, Node: func() *view.NodeView { return &view.NodeView{} }})
				isUnknown := strings.HasSuffix(variable, ".load") // nothing was measured
				if err != nil || !matches && field != "containers" && !isUnknown {
					t.Errorf("%s: got %v, %v", text, matches, err)
				}
			}
		}
	}
}

func TestCompile_Errors(t *testing.T) {
	tests := map[string]string{
		"":                        "column 1:",
		"pod.redy":                "column 4: undefined field 'redy'",
		"pod.ready &&\n pod.redy": "line 2, column 5: undefined field 'redy'",
		"pods.ready":              "column 1: undeclared reference to 'pods'",
		"pod.restarts":            "column 1: the expression is of type int, it must be bool",
		"pod.name == 3":           "column 10: found no matching overload",
		"pod.name.matches('(')":   "error parsing regexp",
		"pod.labels['x'] == 'y'":  "column 4: undefined field 'labels'",
		"pod.ready && (":          "column 15: Syntax error",
		"now == now":              "column 1: undeclared reference to 'now'",
	}
	environment := newEnvironment(t)
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			_, err := environment.Compile(text)
			var positioned *expression.Error
			if !errors.As(err, &positioned) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// TestA8_CostLimit checks that neither a compiled nor an evaluated expression exceeds the limit.
func TestA8_CostLimit(t *testing.T) {
	environment := newEnvironment(t)
	nested := "pod.containers.all(a, pod.containers.all(b, pod.containers.all(c, a.name + b.name == c.name)))"
	if _, err := environment.Compile(nested); !errors.Is(err, expression.ErrCost) {
		t.Errorf("got %v, want an error about the cost", err)
	}
	if _, err := environment.Compile("true" + strings.Repeat(" || true", 1000)); err == nil {
		t.Error("a long expression was compiled")
	}
	if _, err := environment.Compile(strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200)); err == nil {
		t.Error("a deep expression was compiled")
	}
}

func TestMatch_RuntimeError(t *testing.T) {
	compiled, err := newEnvironment(t).Compile("pod.containers[7].ready")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := compiled.Match(expression.Input{Pod: newPod(), Node: node}); err == nil {
		t.Error("an index out of range is no error")
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{"pod.ready", "pod.containers.exists(c, c.name.matches('a+'))", "pod.label('x') == \"\\u0000\"", "[1][0] == 1"} {
		f.Add(seed)
	}
	environment := newEnvironment(f)
	f.Fuzz(func(t *testing.T, text string) {
		compiled, err := environment.Compile(text)
		if err != nil {
			return
		}
		if _, cost, err := compiled.Match(expression.Input{Now: now, Pod: newPod(), Node: node}); cost > expression.MaxCost && err == nil {
			t.Errorf("cost %d", cost)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	compiled, err := newEnvironment(b).Compile("!pod.ready && pod.containers.exists(c, c.last_reason == 'OOMKilled')")
	if err != nil {
		b.Fatal(err)
	}
	pod := newPod()
	for b.Loop() {
		if _, _, err := compiled.Match(expression.Input{Now: now, Pod: pod, Node: node}); err != nil {
			b.Fatal(err)
		}
	}
}

package expression_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/view"
)

func newRuleEnvironment(tb testing.TB) *expression.RuleEnvironment {
	tb.Helper()
	environment, err := expression.NewRuleEnvironment(expression.ContainerScope)
	if err != nil {
		tb.Fatal(err)
	}
	return environment
}

func compileRule(tb testing.TB, environment *expression.RuleEnvironment, text string, result expression.Result) *expression.RuleExpression {
	tb.Helper()
	compiled, errs := environment.Compile(text, result)
	if len(errs) > 0 {
		tb.Fatalf("%s: %v", text, errs[0])
	}
	return compiled
}

// TestRule_EveryField evaluates every field of a rule for objects without values and for objects with them: it has a value or is unknown,
// and which it is does not depend on how it is asked.
func TestRule_EveryField(t *testing.T) {
	environment := newRuleEnvironment(t)
	inputs := map[string]expression.RuleInput{
		"nothing": {},
		"empty":   {Pod: &view.PodView{Spec: view.Spec{Containers: []view.Container{{Name: "web"}}}}, Container: "web", Node: &view.NodeView{}},
		"full":    {Now: now, Pod: newLoadedPod(), Container: "web", Node: loadedNode(), Recent: &recent.Counter{}},
	}
	for variable, fields := range expression.RuleFields() {
		for _, field := range fields {
			if field == "load" || field == "containers" { // objects are not compared, and their fields follow
				continue
			}
			path := variable + "." + field
			equal := compileRule(t, environment, path+" == "+path, expression.Bool)
			has := compileRule(t, environment, "has("+path+")", expression.Bool)
			for name, in := range inputs {
				got, known := equal.Eval(in), has.Eval(in)
				if got.Err != nil || got.IsKnown && !got.IsTrue || (got.Missing == "") != got.IsKnown {
					t.Errorf("%s: %s: got %+v", name, path, got)
				}
				if known.Err != nil || known.IsKnown && known.IsTrue != got.IsKnown || name == "nothing" && got.IsKnown {
					t.Errorf("%s: has(%s): got %+v, want %v", name, path, known, got.IsKnown)
				}
			}
		}
	}
}

// TestFacts_EveryField checks that templates have the same fields and values as expressions.
func TestFacts_EveryField(t *testing.T) {
	environment := newRuleEnvironment(t)
	in := expression.RuleInput{Now: now, Pod: newLoadedPod(), Container: "web", Node: loadedNode(), Recent: &recent.Counter{}}
	for variable, fields := range expression.RuleFields() {
		facts := any(expression.Facts(in))
		for part := range strings.SplitSeq(variable, ".") {
			facts = facts.(map[string]any)[part]
		}
		values, _ := facts.(map[string]any)
		extra := 0
		if variable == "pod" {
			extra = 2 // labels and annotations
		}
		if len(values) != len(fields)+extra {
			t.Errorf("%s: got %d fields, want %d", variable, len(values), len(fields)+extra)
		}
		for _, field := range fields {
			value, found := values[field]
			if !found || value == nil {
				t.Errorf("%s has no field %s", variable, field)
			}
			if number, isNumber := value.(int64); isNumber {
				got := compileRule(t, environment, variable+"."+field, expression.Number).Eval(in)
				if got.Number != float64(number) {
					t.Errorf("%s.%s: got %v, want %v", variable, field, number, got.Number)
				}
			}
		}
	}
}

func TestRule_CertificateDays(t *testing.T) {
	compiled := compileRule(t, newRuleEnvironment(t), "node.cert_days", expression.Number)
	const day = 24 * time.Hour
	tests := map[time.Duration]struct {
		days float64
		next time.Duration // before the end of the certificate
	}{
		8 * day: {7, 7 * day}, 8*day - 1: {7, 7 * day}, 8*day + 1: {8, 8 * day}, day + 1: {1, day}, day: {0, -1}, 1: {0, -1}, 0: {0, -1}, -1: {0, -1}, -day: {0, -1},
	}
	for left, want := range tests {
		expires := now.Add(left)
		got := compiled.Eval(expression.RuleInput{
			Now: now, Node: &view.NodeView{Connection: view.Connection{CertificateExpires: view.NewTime(expires)}},
		})
		next := time.Time{}
		if want.next >= 0 {
			next = expires.Add(-want.next)
		}
		if got.Number != want.days || !got.Next.Equal(next) {
			t.Errorf("%s: got %v, %v, want %v, %v", left, got.Number, got.Next, want.days, next)
		}
	}
	if got := compiled.Eval(expression.RuleInput{Now: now, Node: &view.NodeView{}}); got.Number != -1 || !got.Next.IsZero() {
		t.Errorf("without a certificate: got %+v", got)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour, "2w": 14 * 24 * time.Hour,
		"1y": 365 * 24 * time.Hour, "1d12h": 36 * time.Hour, "500ms": 500 * time.Millisecond, "1m500ms": time.Minute + 500*time.Millisecond,
	} {
		if got, err := expression.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "m", "5x", "5 m", "-5m", "5m5m", "5m1h", "1.5h", "1ms1s", "300y", "99999999999999999999s", "5M", "1h 30m"} {
		if got, err := expression.ParseDuration(text); err == nil {
			t.Errorf("%s: got %v", text, got)
		}
	}
}

// largePod returns a pod whose lists and texts are as large as the environment allows, or larger.
func largePod() *view.PodView {
	long := strings.Repeat("a", 10_000)
	pod := &view.PodView{Metadata: view.Metadata{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253), Labels: map[string]string{"x": long}}}
	for i := range 100 {
		name := strings.Repeat("c", 60) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		pod.Spec.Containers = append(pod.Spec.Containers, view.Container{Name: name, Kind: "regular", Image: long})
		pod.Local.Status.ContainerStatuses = append(pod.Local.Status.ContainerStatuses, v1.ContainerStatus{
			Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: long, Message: long}},
		})
	}
	return pod
}

// FuzzA8_Rule checks that what an expression costs never exceeds what was estimated when it was compiled, whatever the input is.
func FuzzA8_Rule(f *testing.F) {
	for _, seed := range []string{
		"pod.ready", "pod.containers.exists(c, c.name.matches('a+'))", "pod.containers.all(c, c.image == pod.label('x'))",
		"container.restarted('1h') >= 3 && container.ended('OOMKilled', '10m') > 0", "older(pod, '1d') || pod.flipped('Ready', '5m') > 2",
		"pod.containers.map(c, c.message + c.reason).exists(m, m.contains('b'))", "node.load.cpu > 0.5 ? pod.overdue : node.cert_days < 3",
		"['Memory', 'Disk'].exists(k, node.pressure(k))", "pod.containers.filter(c, c.ready).size() > 1", "1 / pod.restarts > 0",
		"pod.containers[5].name + 'x' == ''", "{'a': pod}['a'].name == 'x'", "[[1], [2]].all(l, l.exists(n, n == 1))",
		"quantity('1Mi') > 3.0", "string(pod.restarts) + '1' == '01'", "size(pod.name) > 3 && pod.name.startsWith('a')",
		"pod.containers.exists_one(c, c.image.endsWith('a'))", "bytes(pod.name) == b'x'", "dyn(pod).name == 'x'", "timestamp('2026-01-01T00:00:00Z').getFullYear() > 1",
	} {
		f.Add(seed)
	}
	environment := newRuleEnvironment(f)
	large := largePod()
	inputs := []expression.RuleInput{
		{}, {Now: now, Pod: newLoadedPod(), Container: "web", Node: loadedNode(), Recent: &recent.Counter{}},
		{Now: now, Pod: large, Container: large.Spec.Containers[0].Name, Node: loadedNode(), Recent: &recent.Counter{}},
	}
	f.Fuzz(func(t *testing.T, text string) {
		compiled, errs := environment.Compile(text, expression.Bool)
		for _, err := range errs {
			if err.Line < 1 || err.Column < 1 || err.Message == "" || strings.Contains(err.Message, "\n") {
				t.Errorf("got %+v", err)
			}
		}
		if len(errs) > 0 {
			return
		}
		for i, in := range inputs {
			got := compiled.Eval(in)
			if got.Cost > compiled.MaxCost() || got.Cost > expression.MaxRuleCost {
				t.Errorf("input %d: cost %d, estimated %d", i, got.Cost, compiled.MaxCost())
			}
			if !got.Next.IsZero() && !got.Next.After(in.Now) {
				t.Errorf("input %d: the next instant %s is not later than %s", i, got.Next, in.Now)
			}
		}
	})
}

// TestA3_Reads checks for every field that a change of its value is among what an expression with that field reads.
func TestA3_Reads(t *testing.T) {
	changes := map[expression.Reads]func(*expression.RuleInput){
		expression.ReadsPod: func(in *expression.RuleInput) {
			metadata, spec, status := &in.Pod.Metadata, &in.Pod.Spec, &in.Pod.Local.Status
			*metadata = view.Metadata{Name: "x", Namespace: "x", UID: "x", OwnerKind: "x"}
			spec.Priority, spec.HostNetwork, spec.Static = 1, true, true
			in.Pod.Source, in.Pod.Worker.Stage, in.Pod.Lag.Behind = "x", "x", 7
			status.Phase, status.Reason, status.PodIP, status.ContainerStatuses[0].RestartCount = "x", "x", "x", 99
			status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		},
		expression.ReadsContainer: func(in *expression.RuleInput) {
			in.Pod.Spec.Containers[0] = view.Container{Name: "web", Kind: "x", Image: "x"}
			in.Pod.Local.Status.ContainerStatuses[0] = v1.ContainerStatus{
				Name: "web", Ready: true, Started: new(true), RestartCount: 99,
				State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 9, Reason: "x", Message: "x"}},
			}
		},
		expression.ReadsProbe: func(in *expression.RuleInput) { in.Pod.Probes = nil },
		expression.ReadsSync:  func(in *expression.RuleInput) { in.Pod.Lag = view.Lag{State: "refused", Behind: 99} },
		expression.ReadsLoad:  func(in *expression.RuleInput) { in.Pod.Load, in.Node.Load = nil, nil },
		expression.ReadsNode: func(in *expression.RuleInput) {
			in.Node.Metadata.Name, in.Node.Spec.Unschedulable, in.Node.Runtime, in.Node.Pods = "x", true, view.Runtime{Problem: "x", Network: "x"}, view.PodCounts{}
			in.Node.Local.Status.Conditions, in.Node.History.Problem = nil, "x"
			in.Node.Connection = view.Connection{Cluster: "x", CertificateExpires: view.NewTime(now)}
			in.Node.Alerting = &view.Alerting{
				RulesBroken: 1, RulesUnknown: 1, Suppressed: 1, SinksFailing: 1, FilesBroken: 1, RemediesExhausted: 1, ActionsSuspended: true,
			}
		},
		expression.ReadsSource: func(in *expression.RuleInput) { in.Node.Sources = nil },
		expression.ReadsTime:   func(in *expression.RuleInput) { in.Now = now.Add(1000 * time.Hour) },
	}
	newInput := func() expression.RuleInput {
		in := expression.RuleInput{Now: now.Add(-time.Minute), Pod: newLoadedPod(), Container: "web", Node: loadedNode(), Recent: &recent.Counter{}}
		in.Node.CertificateExpires = view.NewTime(now.Add(100 * time.Hour))
		return in
	}
	environment := newRuleEnvironment(t)
	changed := map[string]bool{}
	for read, edit := range changes {
		in := newInput()
		edit(&in)
		for variable, fields := range expression.RuleFields() {
			for _, field := range fields {
				path := variable + "." + field
				if field == "load" || field == "containers" {
					continue
				}
				if fact(newInput(), path) == fact(in, path) {
					continue
				}
				changed[path] = true
				compiled := compileRule(t, environment, path+" == "+path, expression.Bool)
				reads := compiled.Reads()
				if strings.HasPrefix(path, "container.") && read == expression.ReadsPod {
					reads |= expression.ReadsPod // a status of the pod has those of its containers: both are OnStatus
				}
				if strings.HasPrefix(path, "pod.") && read == expression.ReadsContainer {
					reads |= expression.ReadsContainer
				}
				if reads&read == 0 {
					t.Errorf("%s changes with %b, but reads only %b", path, read, compiled.Reads())
				}
			}
		}
	}
	for variable, fields := range expression.RuleFields() {
		for _, field := range fields {
			isLoad := strings.HasSuffix(variable, "load") // many are not known in the sample
			if path := variable + "." + field; !isLoad && path != "container.name" && field != "load" && field != "containers" && !changed[path] {
				t.Errorf("no change changed %s", path)
			}
		}
	}
}

// fact returns the value of a field.
func fact(in expression.RuleInput, path string) any {
	value := any(expression.Facts(in))
	for part := range strings.SplitSeq(path, ".") {
		value = value.(map[string]any)[part]
	}
	return value
}

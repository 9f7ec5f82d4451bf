package rule_test

import (
	"os"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
)

func crashLooping() rule.Input {
	in := newInput()
	counter := &recent.Counter{}
	for i := range 5 {
		counter.Add(web, recent.Restart, now.Add(-time.Duration(i)*time.Minute))
	}
	in.Recent = counter
	status := &in.Pod.Local.Status.ContainerStatuses[0]
	status.State.Running, status.State.Waiting = nil, waiting("CrashLoopBackOff")
	status.RestartCount = 5
	return in
}

// BenchmarkEval_OneRule evaluates the rule PodCrashLooping, which is true.
func BenchmarkEval_OneRule(b *testing.B) {
	r, in := findDefault(b, "PodCrashLooping"), crashLooping()
	b.ReportAllocs()
	for b.Loop() {
		if r.Eval(in).Truth != rule.True {
			b.Fatal("not true")
		}
	}
}

// BenchmarkEval_Pack evaluates all default rules that a new status of a pod with one container triggers.
func BenchmarkEval_Pack(b *testing.B) {
	in := crashLooping()
	b.ReportAllocs()
	count := 0
	for b.Loop() {
		count = 0
		for _, r := range rule.Default().Rules {
			if r.Scope != rule.Node && r.Triggers&rule.OnStatus != 0 {
				r.Eval(in)
				count++
			}
		}
	}
	b.ReportMetric(float64(count), "rules")
}

// BenchmarkParse parses and compiles the default rules.
func BenchmarkParse(b *testing.B) {
	data, err := os.ReadFile("default.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := rule.Parse(data, ""); err != nil {
			b.Fatal(err)
		}
	}
}

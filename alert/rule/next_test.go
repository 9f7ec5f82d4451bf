package rule_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/view"
)

// timeRules have answers that change by time alone.
var timeRules = []string{
	"on: container\nexpr: container.restarted('1s') >= 2",
	"on: container\nexpr: container.ended('Error', '500ms') >= 1 && container.restarted('2s') < 3",
	"on: container\nexpr: container.restarted('1s') == 1 || container.ended('Error', '2s') == 2",
	"on: container\nexpr: container.restarted('2s') > container.ended('Error', '1s')",
	"on: container\nexpr: \"!older(pod, '1s') && container.restarted('1s') > 0\"",
	"on: container\nexpr: 'pod.overdue ? container.restarted(\"1s\") > 1 : older(pod, \"2s\")'",
	"on: container\nexpr: container.load.cpu > 0.5 || container.ended('Error', '1s') > 0",
	"on: pod\nexpr: pod.flipped('Ready', '1500ms') >= 2 && !pod.overdue",
	"on: pod\nexpr: pod.overdue || older(pod, '1s')",
	"on: pod\nexpr: pod.containers.exists(c, c.restarted('1s') >= 2)",
	"on: pod\nexpr: \"[1, 2, 3].exists(n, pod.flipped('Ready', '2s') == n && older(pod, '1s'))\"",
	"on: node\nexpr: node.count('clock', '1s') >= 1 && node.cert_days < 7",
	"on: node\nexpr: node.cert_days >= 0 && node.cert_days < 2 || node.count('boot', '2s') == 1",
	"on: node\nexpr: node.load.hours_to_full > 5.0",
}

// drawInput draws an input in which something changes in the first seconds after now.
func drawInput(t *rapid.T) rule.Input {
	in := newInput()
	moment := func(name string) time.Time {
		return now.Add(time.Duration(rapid.IntRange(-3000, 4000).Draw(t, name)) * time.Millisecond)
	}
	counter := &recent.Counter{}
	kinds := map[string]recent.Object{
		recent.Restart: web, recent.Ended("Error"): web, recent.Flip("Ready"): thePod, "clock": {}, "boot": {},
	}
	for _, kind := range []string{recent.Restart, recent.Ended("Error"), recent.Flip("Ready"), "clock", "boot"} {
		for range rapid.IntRange(0, 4).Draw(t, kind) {
			at := moment("at")
			if at.After(now) {
				at = now
			}
			counter.Add(kinds[kind], kind, at)
		}
	}
	in.Recent = counter
	in.Pod.Local.Status.StartTime = &metav1.Time{Time: moment("start")}
	if rapid.Bool().Draw(t, "deleting") {
		in.Pod.Metadata.DeletionTimestamp = view.NewTime(moment("deletion"))
	}
	days := time.Duration(rapid.IntRange(-1, 8).Draw(t, "days")) * 24 * time.Hour
	in.Node.CertificateExpires = view.NewTime(moment("expires").Add(days))
	in.Node.Agent.StartedAt = view.NewTime(moment("agent").Add(-20 * time.Minute))
	if rapid.Bool().Draw(t, "unknown load") {
		in.Pod.Load = nil
	}
	return in
}

// TestA3_Next evaluates rules at every millisecond, and compares that with evaluating them only at the instants that they name.
func TestA3_Next(t *testing.T) {
	rules := make([]*rule.Rule, len(timeRules))
	for i, fields := range timeRules {
		if rules[i] = parse(t, "alert: X\n"+fields); rules[i].Triggers&(rule.OnTime) == 0 {
			t.Errorf("%s: got triggers %s", fields, rules[i].Triggers)
		}
	}
	changes := 0
	rapid.Check(t, func(t *rapid.T) {
		r := rules[rapid.IntRange(0, len(rules)-1).Draw(t, "rule")]
		in := drawInput(t)
		last := r.Eval(in)
		for ms := 1; ms <= 4000; ms++ {
			in.Now = now.Add(time.Duration(ms) * time.Millisecond)
			every := r.Eval(in)
			if !last.Next.IsZero() && !in.Now.Before(last.Next) {
				if !in.Now.Equal(last.Next) {
					t.Fatalf("%s: at %d ms: the instant %s is not a millisecond", r.Text.Expr, ms, last.Next)
				}
				if last.Truth != every.Truth {
					changes++
				}
				last = every
			}
			if every.Truth != last.Truth {
				t.Fatalf("%s: at %d ms: got %s, want %s; the instant was %s", r.Text.Expr, ms, last.Truth, every.Truth, last.Next)
			}
			if !every.Next.IsZero() && !every.Next.After(in.Now) {
				t.Fatalf("%s: at %d ms: the next instant %s is not later", r.Text.Expr, ms, every.Next)
			}
		}
	})
	if changes == 0 {
		t.Error("no answer changed")
	}
}

// TestA3_NextDays is the same every 30 seconds for a rule with days.
func TestA3_NextDays(t *testing.T) {
	r := findDefault(t, "ClientCertExpires")
	in := newInput()
	in.Node.CertificateExpires = view.NewTime(now.Add(8*24*time.Hour + 90*time.Second))
	last := r.Eval(in)
	evaluations, truths := 0, []rule.Truth{last.Truth}
	for step := range 9 * 24 * 120 {
		in.Now = now.Add(time.Duration(step) * 30 * time.Second)
		every := r.Eval(in)
		if !last.Next.IsZero() && !in.Now.Before(last.Next) {
			last = every
			evaluations++
		}
		if every.Truth != last.Truth {
			t.Fatalf("at %s: got %s, want %s", in.Now, last.Truth, every.Truth)
		}
		if truths[len(truths)-1] != every.Truth {
			truths = append(truths, every.Truth)
		}
	}
	if evaluations != 8 || len(truths) != 2 || truths[1] != rule.True {
		t.Errorf("got %d evaluations, answers %v", evaluations, truths)
	}
}

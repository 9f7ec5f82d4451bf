package ruletest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/alert/ruletest"
)

// runFile runs the tests of a file, with the rule files that it names.
func runFile(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := ruletest.Parse(data, path)
	if err != nil {
		t.Fatal(err)
	}
	var files []*rule.File
	if file.UsesDefaults() {
		files = append(files, rule.Default())
	}
	for _, name := range file.RuleFiles {
		name = filepath.Join(filepath.Dir(path), name)
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := rule.Parse(data, name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, parsed)
	}
	set, err := rule.Merge(file.Disable, files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range ruletest.Run(file, set) {
		t.Run(result.Test.Name, func(t *testing.T) {
			for _, failure := range result.Failures {
				t.Error(failure)
			}
		})
	}
}

// TestExamples runs the examples of deploy/alerts.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../deploy/alerts/*_test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { runFile(t, file) })
	}
}

// TestDocs runs the example of docs/alerts.md.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(text), "```yaml\nrule_files:")
	example, _, _ = strings.Cut(example, "```")
	rules, err := os.ReadFile("../../deploy/alerts/shop.yaml")
	if !found || err != nil {
		t.Fatalf("no example, or no rules: %v", err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"shop_test.yaml": "rule_files:" + example, "shop.yaml": string(rules)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runFile(t, filepath.Join(dir, "shop_test.yaml"))
}

const defaultTests = "testdata/default_test.yaml"

// TestA10_DefaultRules runs timelines of the default rules.
func TestA10_DefaultRules(t *testing.T) { runFile(t, defaultTests) }

// TestA10_EveryDefaultRule checks that the timelines have each default rule firing and not firing.
func TestA10_EveryDefaultRule(t *testing.T) {
	data, err := os.ReadFile(defaultTests)
	if err != nil {
		t.Fatal(err)
	}
	file, err := ruletest.Parse(data, defaultTests)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, test := range file.Tests {
		for _, expect := range test.Expect {
			seen[expect.Alert+" "+expect.State] = true
		}
	}
	for _, r := range rule.Default().Rules {
		if !seen[r.Name+" firing"] {
			t.Errorf("no timeline has %s firing", r.Name)
		}
		if !seen[r.Name+" inactive"] && !seen[r.Name+" pending"] && !seen[r.Name+" resolved"] {
			t.Errorf("no timeline has %s not firing", r.Name)
		}
	}
}

func parse(t *testing.T, text string) (*ruletest.File, error) {
	t.Helper()
	return ruletest.Parse([]byte(text), "x_test.yaml")
}

func TestParse_Errors(t *testing.T) {
	const pod = "  pod: {name: web, containers: [{name: main}]}\n"
	const expect = "  expect: [{at: 1s, alert: A, state: firing}]\n"
	for name, test := range map[string]struct{ text, want string }{
		"empty":             {"", "x_test.yaml: is empty"},
		"syntax":            {"tests: [", "x_test.yaml: line 1: did not find expected node content"},
		"no tests":          {"rule_files: [a.yaml]\n", "x_test.yaml: tests: there are none"},
		"unknown field":     {"tests:\n- name: a\n" + pod + "  timeline:\n  - {at: 0s, runnin: main}\n" + expect, "x_test.yaml:5: tests[0].timeline[0].runnin: unknown field; did you mean running?"},
		"duration":          {"tests:\n- name: a\n" + pod + "  timeline:\n  - {at: 10, running: main}\n" + expect, `x_test.yaml:5: tests[0].timeline[0].at: "10" must be a duration, like 90s or 10m9s`},
		"integer":           {"tests:\n- name: a\n" + pod + "  timeline:\n  - {at: 0s, ended: main, code: x}\n" + expect, `x_test.yaml:5: tests[0].timeline[0].code: "x" must be an integer`},
		"unknown container": {"tests:\n- name: a\n" + pod + "  timeline:\n  - {at: 0s, running: web}\n" + expect, `x_test.yaml:5: tests[0].timeline[0]: pod web has no container "web"`},
		"unknown pod":       {"tests:\n- name: a\n" + pod + "  timeline:\n  - {at: 0s, pod: db, running: web}\n" + expect, `x_test.yaml:5: tests[0].timeline[0].pod: "db" is none of the pods of the test`},
		"order":             {"tests:\n- name: a\n" + pod + "  timeline:\n  - {at: 2s, running: main}\n  - {at: 1s, ended: main}\n" + expect, "x_test.yaml:6: tests[0].timeline[1].at: 1s is before the step above, at 2s"},
		"state":             {"tests:\n- name: a\n" + pod + "  expect: [{at: 1s, alert: A, state: angry}]\n", `x_test.yaml:4: tests[0].expect[0].state: "angry" must be one of`},
		"twice":             {"tests:\n- name: a\n  name: b\n" + pod + expect, "x_test.yaml:3: tests[0].name: is there twice"},
		"no expectation":    {"tests:\n- name: a\n" + pod, "x_test.yaml:2: tests[0].expect: at least one expectation is required"},
		"agent":             {"tests:\n- name: a\n" + pod + "  timeline:\n  - {at: 0s, agent: dance}\n" + expect, `x_test.yaml:5: tests[0].timeline[0].agent: "dance" must be one of`},
		"unnamed":           {"tests:\n- {}\n", "x_test.yaml:2: tests[0].name: must be set and unique"},
	} {
		if _, err := parse(t, test.text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

// TestRun_Failures checks that expectations which do not hold are reported, with what happened instead.
func TestRun_Failures(t *testing.T) {
	file, err := parse(t, `
tests:
- name: wrong
  pod: {namespace: shop, name: web, containers: [{name: web}]}
  timeline:
  - {at: 0s, running: web}
  - {at: 10s, ended: web, code: 137, reason: OOMKilled}
  - {at: 11s, running: web}
  expect:
  - {at: 10s, alert: ContainerOOMKilled, state: pending}
  - {at: 10s, alert: ContainerOOMKilled, state: firing, labels: {container: other}}
  - {at: 10s, alert: ContainerOOMKilled, state: firing, value: 7, muted: true, unknown: true, annotations: {summary: x}}
  - {at: 10s, alert: ContainerOOMKilled, count: 2, state: firing}
  - {at: 11m, alert: ContainerOOMKilled, state: resolved, sent: 3}
  - {at: 11m, alert: Nothing, state: firing}
  - {at: 11m, alert: Nothing, state: inactive}
`)
	if err != nil {
		t.Fatal(err)
	}
	set, err := rule.Merge(nil, rule.Default())
	if err != nil {
		t.Fatal(err)
	}
	results := ruletest.Run(file, set)
	var got []string
	for _, failure := range results[0].Failures {
		line, _, _ := strings.Cut(failure.Error(), "\n")
		got = append(got, strings.TrimPrefix(line, "x_test.yaml:"))
	}
	want := []string{
		"10: wrong: at 10s ContainerOOMKilled: it is firing, want pending",
		`11: wrong: at 10s ContainerOOMKilled{container="other"}: it is inactive, want firing`,
		`12: wrong: at 10s ContainerOOMKilled: its value is 1, want 7; that its answer is unknown is false, want true; muted is false, want true; ` +
			`annotation summary is "shop/web: container web was killed because it reached its memory limit (times in 24 hours: 1); ` +
			`raise the limit or reduce what it uses", want "x"`,
		"13: wrong: at 10s ContainerOOMKilled: 1 alerts are firing, want 2",
		"14: wrong: at 11m0s ContainerOOMKilled: 2 messages were sent, want 3",
		"15: wrong: at 11m0s Nothing: it is inactive, want firing",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if summary := results[0].Summary(); !strings.Contains(summary, "FAIL  wrong\n") || !strings.Contains(summary, "10s firing, 10m10s resolved") {
		t.Errorf("got %s", summary)
	}
}

// BenchmarkRun runs a year in which a pod is killed every hour.
func BenchmarkRun(b *testing.B) {
	test := &ruletest.Test{
		Name: "year", Pods: []*ruletest.Pod{{Namespace: "shop", Name: "web", Containers: []ruletest.Container{{Name: "web"}}}},
		Expect: []*ruletest.Expect{{At: 8760 * time.Hour, Alert: "ContainerOOMKilled", State: "resolved", Sent: new(2 * 8759)}},
	}
	for hour := range 8760 {
		at := time.Duration(hour) * time.Hour
		if hour > 0 {
			ended := &ruletest.Step{At: at, Pod: "web"}
			ended.Ended, ended.Code, ended.Reason = []string{"web"}, 137, "OOMKilled"
			test.Timeline = append(test.Timeline, ended)
		}
		started := &ruletest.Step{At: at + time.Millisecond, Pod: "web"}
		started.Running = []string{"web"}
		test.Timeline = append(test.Timeline, started)
	}
	set, err := rule.Merge(nil, rule.Default())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if results := ruletest.Run(&ruletest.File{Tests: []*ruletest.Test{test}}, set); len(results[0].Failures) > 0 {
			b.Fatal(results[0].Failures)
		}
	}
}

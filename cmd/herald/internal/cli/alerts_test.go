package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const ruleHeader = "apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: g\n  rules:\n"

// writeFiles writes files to a new directory and returns it.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAlertsCheck(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"good.yaml": ruleHeader + `  - {alert: PodFailed, on: pod, expr: "pod.phase == 'Failed' && pod.label('app') == 'x'"}
  - alert: Hangs
    on: container
    expr: "!container.ready"
    actions: [{type: restart-container}]
`,
		"bad.yaml":       ruleHeader + "  - {alert: A, on: pod, expr: pod.redy, fro: 5m}\n",
		"duplicate.yaml": ruleHeader + "  - {alert: Hangs, on: pod, expr: pod.ready}\n",
		"good_test.yaml": "tests: []\n",
	})
	for name, test := range map[string]struct {
		args   []string
		status int
		want   []string
	}{
		"good": {[]string{"good.yaml"}, 0, []string{
			"good.yaml: 2 rules are valid", "PodFailed   pod", "replaces the default rule", `of the cost is pod.phase == "Failed"`,
			"Hangs       container", "a liveness probe could decide this", "EVALUATED AFTER", "status ",
		}},
		"bad":       {[]string{"bad.yaml", "good.yaml"}, 1, []string{"bad.yaml:6:", "fro", "redy", "1 of 2 rule files failed the check", "2 rules are valid"}},
		"duplicate": {[]string{"good.yaml", "duplicate.yaml"}, 1, []string{"alert Hangs has the name and labels of the rule at"}},
		"missing":   {[]string{"none.yaml"}, 1, []string{"none.yaml: no such file"}},
	} {
		args := []string{"alerts", "check"}
		for _, file := range test.args {
			args = append(args, filepath.Join(dir, file))
		}
		got := runHerald(args...)
		for _, want := range test.want {
			if got.status != test.status || !strings.Contains(got.stdout+got.stderr, want) {
				t.Errorf("%s: got %v, want %d, %q", name, got, test.status, want)
			}
		}
	}
	if got := runHerald("alerts", "check"); got.status != 2 {
		t.Errorf("without a file: got %v", got)
	}
}

func TestAlertsTest(t *testing.T) {
	const timeline = `rule_files: [rules.yaml]
tests:
- name: it fires
  pod: {namespace: shop, name: web, containers: [{name: web}]}
  timeline:
  - {at: 0s, running: web}
  - {at: 1s, unready: web}
  expect:
  - {at: 1s, alert: NotReady, state: STATE}
`
	dir := writeFiles(t, map[string]string{
		"rules.yaml":       ruleHeader + "  - {alert: NotReady, on: pod, expr: \"!pod.ready\", for: 1m}\n",
		"good_test.yaml":   strings.ReplaceAll(timeline, "STATE", "pending"),
		"bad_test.yaml":    strings.ReplaceAll(timeline, "STATE", "firing"),
		"broken_test.yaml": strings.ReplaceAll(timeline, "running", "walking"),
	})
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"good":      {[]string{"good_test.yaml"}, 0, "1 test passed\n"},
		"verbose":   {[]string{"-v", "good_test.yaml"}, 0, "ok    it fires\n1 test passed\n"},
		"bad":       {[]string{"bad_test.yaml", "good_test.yaml"}, 1, "bad_test.yaml:9: it fires: at 1s NotReady: it is pending, want firing"},
		"broken":    {[]string{"broken_test.yaml"}, 1, "broken_test.yaml:6: tests[0].timeline[0].walking: unknown field"},
		"rule file": {[]string{"rules.yaml"}, 1, "is a rule file"},
		"for":       {[]string{"--for", "5m", "good_test.yaml"}, 2, "--for needs --replay"},
		"no files":  {nil, 2, "at least one FILE"},
		"replay":    {[]string{"--replay", "soon"}, 2, "must be a duration"},
	} {
		args := []string{"alerts", "test"}
		for _, arg := range test.args {
			if strings.HasSuffix(arg, ".yaml") {
				arg = filepath.Join(dir, arg)
			}
			args = append(args, arg)
		}
		if got := runHerald(args...); got.status != test.status || !strings.Contains(got.stdout+got.stderr, test.want) {
			t.Errorf("%s: got %v, want %d, %q", name, got, test.status, test.want)
		}
	}
}

func TestAlerts_Usage(t *testing.T) {
	for args, want := range map[string]string{
		"alerts liste":                            "unknown command",
		"alerts -o xml":                           "--output xml",
		"alerts silence --for 2h --comment x":     "at least one matcher is required",
		"alerts silence pod=x --comment x":        "--for is required",
		"alerts silence pod=x --for 2h":           "--comment is required",
		"alerts silence pod --for 2h --comment x": "want name, operator and value",
		"alerts silence expire":                   "the ID of a silence is required",
		"actions resum":                           "did you mean \"resume\"?",
		"actions --limit 0":                       "--limit 0",
		"alerts rules all":                        "unexpected argument",
	} {
		if got := runHerald(strings.Fields(args)...); got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %v, want %q", args, got, want)
		}
	}
}

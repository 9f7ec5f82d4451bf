package metrics_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/parity/internal/needs"
)

const (
	rulesDir      = "../../deploy/prometheus"
	dashboardFile = "../../deploy/grafana/herald.json"
)

type rule struct{ Record, Alert, Expr string }

func readRules(t *testing.T) []rule {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(rulesDir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	var rules []rule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

// dashboardExpressions returns what the panels of the dashboard ask for.
func dashboardExpressions(t *testing.T) []expression {
	t.Helper()
	content, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	var found []expression
	for _, panel := range file.Panels {
		for _, target := range panel.Targets {
			found = append(found, expression{Title: panel.Title, Expr: target.Expr})
		}
	}
	return found
}

// TestRules checks and tests the rules with promtool.
func TestRules(t *testing.T) {
	needs.Prometheus(t)
	for _, args := range [][]string{
		{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}, {"check", "config", "--syntax-only", "scrape.yaml"},
	} {
		promtool := exec.CommandContext(t.Context(), "promtool", args...)
		promtool.Dir = rulesDir
		if output, err := promtool.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
}

// TestRules_AllTested finds alerts and records that rules_test.yaml does not name.
func TestRules_AllTested(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(rulesDir, "rules_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readRules(t) {
		if !strings.Contains(string(content), r.Record+r.Alert) {
			t.Errorf("%s%s is not tested by rules_test.yaml", r.Record, r.Alert)
		}
	}
}

// metricName matches the names of metrics. Functions and labels do not begin like this.
var metricName = regexp.MustCompile(`\b(?:herald|kubelet|prober|rest_client|process|go)_\w+`)

// checkDeployedNames finds metrics that the rules or the dashboard name and the agent does not have.
func checkDeployedNames(t *testing.T, herald map[string]family) {
	t.Helper()
	expressions := dashboardExpressions(t)
	var records []string
	for _, r := range readRules(t) {
		expressions = append(expressions, expression{Title: r.Record + r.Alert, Expr: r.Expr})
		records = append(records, r.Record)
	}
	occasional := readNames(t).Occasional
	for _, e := range expressions {
		for _, record := range records {
			if record != "" {
				e.Expr = strings.ReplaceAll(e.Expr, record, "")
			}
		}
		for _, name := range metricName.FindAllString(e.Expr, -1) {
			if _, found := herald[strings.TrimSuffix(name, "_bucket")]; found {
				continue
			}
			if !slices.ContainsFunc(occasional, func(r row) bool { return r.Herald && r.Name == name }) {
				t.Errorf("%s: the agent has no metric %s", e.Title, name)
			}
		}
	}
	if len(expressions) < 40 {
		t.Errorf("found only %d expressions", len(expressions))
	}
}

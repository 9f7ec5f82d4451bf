package rule_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/expression"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/alerts.md")

const docs = "../../docs/alerts.md"

// TestDocs_Tables checks that the tables of fields and default rules are those of the code.
func TestDocs_Tables(t *testing.T) {
	content, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	text := replaceSection(t, string(content), "fields", fieldTable())
	text = replaceSection(t, text, "default rules", ruleTable())
	if text == string(content) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the code; run go test ./alert/rule -run Docs -update", docs)
	}
	if err := os.WriteFile(docs, []byte(text), 0o644); err != nil { //nolint:gosec // a file of the repository
		t.Fatal(err)
	}
}

// replaceSection replaces what stands between two comments.
func replaceSection(t *testing.T, text, name, section string) string {
	t.Helper()
	before, rest, found := strings.Cut(text, "<!-- begin "+name+" -->\n")
	_, after, foundEnd := strings.Cut(rest, "<!-- end "+name+" -->\n")
	if !found || !foundEnd {
		t.Fatalf("%s has no section %s", docs, name)
	}
	return before + "<!-- begin " + name + " -->\n" + section + "<!-- end " + name + " -->\n" + after
}

func fieldTable() string {
	var b strings.Builder
	b.WriteString("| object | fields |\n| --- | --- |\n")
	fields := expression.RuleFields()
	for _, object := range []string{"pod", "container", "node", "pod.load", "node.load"} {
		name := "`" + object + "`"
		if object == "container" {
			name += ", an element of `pod.containers`"
		}
		if object == "pod.load" {
			name += ", `container.load`"
		}
		fmt.Fprintf(&b, "| %s | `%s` |\n", name, strings.Join(fields[object], " "))
	}
	return b.String()
}

func ruleTable() string {
	var b strings.Builder
	b.WriteString("| alert | on | expression | for | keep | severity | condition |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rule.Default().Rules {
		condition := ""
		if r.Condition != nil {
			condition = "`" + r.Condition.Type + "`"
		}
		expr := strings.ReplaceAll(strings.Join(strings.Fields(r.Text.Expr), " "), "|", `\|`)
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s | %s | %s |\n", r.Name, r.Scope, expr, shortDuration(r.For), shortDuration(r.KeepFiring), r.Labels["severity"], condition)
	}
	return b.String()
}

func shortDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strings.TrimSuffix(d.String(), "0s")
}

var codeBlock = regexp.MustCompile("(?s)```yaml\n(apiVersion.*?)```")

// TestDocs_Examples parses the rule files of the documentation.
func TestDocs_Examples(t *testing.T) {
	content, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	blocks := codeBlock.FindAllStringSubmatch(string(content), -1)
	for _, block := range blocks {
		if _, err := rule.Parse([]byte(block[1]), docs); err != nil {
			t.Error(err)
		}
	}
	if len(blocks) == 0 {
		t.Error("there is no example")
	}
}

// TestDocs_MixinNames checks that no default rule has a name of kubernetes-mixin.
func TestDocs_MixinNames(t *testing.T) {
	for _, r := range rule.Default().Rules {
		if strings.HasPrefix(r.Name, "Kube") {
			t.Errorf("%s has a name of kubernetes-mixin", r.Name)
		}
	}
}

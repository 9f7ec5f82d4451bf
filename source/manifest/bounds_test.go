package manifest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/heraldnode/herald/source/manifest"
)

// laughs is the classic bomb: each line stands for ten of the line before.
func laughs(levels int) string {
	text := "a0: &a0 ha\n"
	for i := 1; i <= levels; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return text
}

func TestF20HostileInputsAreRefusedAtOnce(t *testing.T) {
	fits := func(line string) string { return strings.Repeat(line, manifest.MaxBytes/len(line)) }
	long := strings.Repeat("x", manifest.MaxBytes/2)
	tests := map[string]struct{ text, want string }{
		"too large":             {strings.Repeat(" ", manifest.MaxBytes+1), "x.yaml: 1048577 bytes are more than the 1048576 that a manifest may have"},
		"billion laughs":        {laughs(9), "x.yaml:6: too many values; aliases count as often as they are used"},
		"a long text, repeated": {"a: &a " + long + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n", "x.yaml:2: too many values; aliases count as often as they are used"},
		"an alias of itself":    {"a: &a [*a]\n", "x.yaml:1: the alias *a is part of what it stands for"},
		"a merge of itself":     {"a: &a\n  b:\n    <<: *a\n", "x.yaml:3: the alias *a is part of what it stands for"},
		"nested brackets":       {strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), "x.yaml:1: nested more than 100 levels deep"},
		"nested braces":         {strings.Repeat("{a: ", 5000) + strings.Repeat("}", 5000), "x.yaml:1: nested more than 100 levels deep"},
		"open brackets":         {fits("["), "x.yaml:1: not valid YAML: exceeded max depth of 10000"},
		"nested lists":          {fits("- "), "x.yaml:1: not valid YAML: exceeded max depth of 10000"},
		"NUL":                   {web + "  hostname: a\x00b\n", "x.yaml:6: not a text: it has a NUL byte or is not in UTF-8"},
		"bad UTF-8":             {web + container + "# \xff\n", "x.yaml:7: not a text: it has a NUL byte or is not in UTF-8"},
		"UTF-16":                {"\xff\xfea\x00", "x.yaml:1: not a text: it has a NUL byte or is not in UTF-8"},
		"many values":           {"a: [" + fits("1,") + "]", "x.yaml: 1048581 bytes are more than the 1048576 that a manifest may have"},
		"many short values":     {"a: [" + strings.Repeat("1,", 500_000) + "]", "x.yaml:1: too many values; aliases count as often as they are used"},
		"many documents":        {fits("a\n---\n"), "x.yaml:2001: more than 1000 documents"},
		"many markers":          {fits("---\n"), "x.yaml: no pod and no list of pods is written here"},
		"an endless quantity":   {web + container + "  overhead: {cpu: '1e-100000000'}\n", "x.yaml:7: spec.overhead[cpu]: 1e-100000000 is not a quantity; write 500m, 2 or 64Mi, for example"},
		"a long quantity":       {web + container + "  overhead: {cpu: '" + strings.Repeat("9", 500_000) + "'}\n", "x.yaml:7: spec.overhead[cpu]: " + strings.Repeat("9", 80) + "... is not a quantity; write 500m, 2 or 64Mi, for example"},
		"an endless page":       {web + container + "  overhead: {cpu: 1, hugepages-1e-100000000: 1}\n", `x.yaml:7: spec.overhead[hugepages-1e-100000000]: Invalid value: "1": must be a whole number of pages of hugepages-1e-100000000`},
		"a long field":          {web + "  " + long[:1000] + ": 1\n", "x.yaml:6: spec." + strings.Repeat("x", 80) + "...: unknown field"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := manifest.Decode([]byte(test.text), fromFile)
			runtime.ReadMemStats(&after)
			if err == nil || strings.Split(err.Error(), "\n")[0] != test.want {
				t.Fatalf("says %.300v\nwant %s", err, test.want)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 1024 {
				t.Fatalf("%d MiB were allocated", used)
			}
		})
	}
}

func TestF20AMessageIsNeverLong(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	_, err := manifest.Decode([]byte(web+"  containers: [{name: c, image: i}]\n  hostname: "+long+"\n"), fromFile)
	if err == nil || len(err.Error()) > 1000 {
		t.Fatalf("a message of %d bytes", len(fmt.Sprint(err)))
	}
}

func TestAliasesInModerationWork(t *testing.T) {
	text := web + "  containers:\n  - &c {name: c, image: i, env: &e [{name: A, value: b}]}\n"
	for i := range 50 {
		text += fmt.Sprintf("  - {<<: *c, name: c%d, args: [a]}\n", i)
	}
	pod := decodeOne(t, text, fromFile)
	last := pod.Spec.Containers[50]
	if last.Name != "c49" || last.Image != "i" || len(last.Env) != 1 || last.Args[0] != "a" {
		t.Fatalf("the last container is %+v", last)
	}
}

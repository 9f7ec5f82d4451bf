package manifest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/heraldnode/herald/source/manifest"
)

func TestDecode_SyntaxErrors(t *testing.T) {
	expectErrors(t, map[string]invalidInput{
		"tab":                     {web + "\tcontainers: []\n", []string{"x.yaml:6: not valid YAML: found character that cannot start any token"}},
		"missing bracket":         {web + "  containers: [{name: c\n", []string{"x.yaml:7: not valid YAML: did not find expected ',' or '}'"}},
		"on the first line":       {"a: b: c\n", []string{"x.yaml:1: not valid YAML: mapping values are not allowed in this context"}},
		"in the second document":  {web + container + "---\n" + web + "  a: b: c\n", []string{"x.yaml:13: not valid YAML: mapping values are not allowed in this context"}},
		"unknown alias":           {web + "  containers: *c\n", []string{"x.yaml:1: not valid YAML: unknown anchor 'c' referenced"}},
		"wrong indentation":       {web + "  containers:\n  - name: c\n   image: i\n  restartPolicy: Never\n", []string{"x.yaml:8: not valid YAML: did not find expected key"}},
		"wrong indentation later": {web + "  containers:\n    - name: c\n      image: i\n   volumes: []\n", []string{"x.yaml:9: not valid YAML: did not find expected key"}},
		"bracket too many":        {web + container + "  volumes: []]\n  hostPID: true\n", []string{"x.yaml:7: not valid YAML: did not find expected key"}},
		"missing comma":           {web + container + "  volumes: [{name: a} {name: b}]\n  hostPID: true\n", []string{"x.yaml:7: not valid YAML: did not find expected ',' or ']'"}},
		"two JSON documents":      {"{}\n{}\n", []string{"x.yaml:2: not valid YAML: did not find expected <document start>"}},
		"document after a return": {"a: 1\r---\rb: 2\n", []string{"x.yaml:2: another document starts here; write --- on a line of its own before it"}},
		"merge of a string":       {web + "  <<: a\n", []string{"x.yaml:6: << requires a mapping or a list of mappings"}},
		"merge of strings":        {web + "  <<: [{}, a]\n", []string{"x.yaml:6: << requires a mapping or a list of mappings"}},
		"too many aliases":        {"a: &a [" + strings.Repeat("1,", 1000) + "]\nb: [" + strings.Repeat("*a,", 150) + "]\n", []string{"x.yaml:1: not valid YAML: document contains excessive aliasing"}},
		"list as a key":           {"? [a]\n: b\n", []string{"x.yaml:1: a key must be a string"}},
		"null as a key":           {web + "  ~: b\n", []string{"x.yaml:6: a key must be a string"}},
		"tag":                     {web + "  hostname: !!binary aGk=\n", []string{"x.yaml:6: the tag !!binary is not supported"}},
		"tag of its own":          {web + "  hostname: !mine a\n", []string{"x.yaml:6: the tag !mine is not supported"}},
		"infinity":                {web + "  priority: -.inf\n", []string{"x.yaml:6: the number -.inf is not supported"}},
		"not a number":            {web + "  priority: .NaN\n", []string{"x.yaml:6: the number .NaN is not supported"}},
	})
}

// billionLaughs returns an alias bomb: each line expands to ten times the line before.
func billionLaughs(levels int) string {
	text := "a0: &a0 ha\n"
	for i := 1; i <= levels; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return text
}

func TestF20_HostileInput(t *testing.T) {
	fill := func(line string) string { return strings.Repeat(line, manifest.MaxBytes/len(line)) }
	long := strings.Repeat("x", manifest.MaxBytes/2)
	tests := map[string]struct{ text, want string }{
		"too large":          {strings.Repeat(" ", manifest.MaxBytes+1), "x.yaml: 1048577 bytes exceed the maximum of 1048576"},
		"billion laughs":     {billionLaughs(9), "x.yaml:6: too many values; each use of an alias counts"},
		"repeated long text": {"a: &a " + long + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n", "x.yaml:2: too many values; each use of an alias counts"},
		"alias of itself":    {"a: &a [*a]\n", "x.yaml:1: the alias *a contains itself"},
		"merge of itself":    {"a: &a\n  b:\n    <<: *a\n", "x.yaml:3: the alias *a contains itself"},
		"nested brackets":    {strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), "x.yaml:1: nested more than 100 levels deep"},
		"nested braces":      {strings.Repeat("{a: ", 5000) + strings.Repeat("}", 5000), "x.yaml:1: nested more than 100 levels deep"},
		"open brackets":      {fill("["), "x.yaml:1: not valid YAML: exceeded max depth of 10000"},
		"nested lists":       {fill("- "), "x.yaml:1: not valid YAML: exceeded max depth of 10000"},
		"NUL":                {web + "  hostname: a\x00b\n", "x.yaml:6: not text: contains a NUL byte or is not UTF-8"},
		"invalid UTF-8":      {web + container + "# \xff\n", "x.yaml:7: not text: contains a NUL byte or is not UTF-8"},
		"UTF-16":             {"\xff\xfea\x00", "x.yaml:1: not text: contains a NUL byte or is not UTF-8"},
		"many values":        {"a: [" + fill("1,") + "]", "x.yaml: 1048581 bytes exceed the maximum of 1048576"},
		"many short values":  {"a: [" + strings.Repeat("1,", 500_000) + "]", "x.yaml:1: too many values; each use of an alias counts"},
		"many documents":     {fill("a\n---\n"), "x.yaml:2001: more than 1000 documents"},
		"many markers":       {fill("---\n"), "x.yaml: contains no Pod or PodList"},
		"huge exponent":      {web + container + "  overhead: {cpu: '1e-100000000'}\n", "x.yaml:7: spec.overhead[cpu]: 1e-100000000 is not a quantity; write 500m, 2 or 64Mi, for example"},
		"long quantity":      {web + container + "  overhead: {cpu: '" + strings.Repeat("9", 500_000) + "'}\n", "x.yaml:7: spec.overhead[cpu]: " + strings.Repeat("9", 80) + "... is not a quantity; write 500m, 2 or 64Mi, for example"},
		"huge page size":     {web + container + "  overhead: {cpu: 1, hugepages-1e-100000000: 1}\n", `x.yaml:7: spec.overhead[hugepages-1e-100000000]: Invalid value: "1": must be a whole number of pages of hugepages-1e-100000000`},
		"long field":         {web + "  " + long[:1000] + ": 1\n", "x.yaml:6: spec." + strings.Repeat("x", 80) + "...: unknown field"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := manifest.Decode([]byte(test.text), fromFile)
			runtime.ReadMemStats(&after)
			if err == nil || strings.Split(err.Error(), "\n")[0] != test.want {
				t.Fatalf("got %.300v\nwant %s", err, test.want)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 1024 {
				t.Fatalf("got %d MiB allocated, want at most 1024", used)
			}
		})
	}
}

func TestF20_LongValue(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	_, err := manifest.Decode([]byte(web+"  containers: [{name: c, image: i}]\n  hostname: "+long+"\n"), fromFile)
	if err == nil || len(err.Error()) > 1000 {
		t.Fatalf("got a message of %d bytes, want at most 1000", len(fmt.Sprint(err)))
	}
}

func TestDecode_Aliases(t *testing.T) {
	text := web + "  containers:\n  - &c {name: c, image: i, env: &e [{name: A, value: b}]}\n"
	for i := range 50 {
		text += fmt.Sprintf("  - {<<: *c, name: c%d, args: [a]}\n", i)
	}
	pod := decodeOne(t, text, fromFile)
	last := pod.Spec.Containers[50]
	if last.Name != "c49" || last.Image != "i" || len(last.Env) != 1 || last.Args[0] != "a" {
		t.Fatalf("last container: got %+v, want c49 with the merged fields", last)
	}
}

package cli_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

var update = flag.Bool("update", false, "write docs/config.md")

// TestTheDocumentOfTheConfigurationIsTrue holds docs/config.md against the fields, their comments and defaults.
func TestTheDocumentOfTheConfigurationIsTrue(t *testing.T) {
	file := filepath.Join("..", "..", "..", "..", "docs", "config.md")
	want := document(t)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a document for everybody
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/config.md is not true any more: go test ./cmd/herald/internal/cli -update\n%s", diff)
	}
}

func document(t *testing.T) string {
	t.Helper()
	example, err := os.ReadFile(filepath.Join("..", "config", "testdata", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `# Configuring herald run

Written by `+"`go test ./cmd/herald/internal/cli -update`"+` from the code; do not edit. `+"`herald help config`"+` shows the list
of fields where there is no document at hand.

Everything can be left out but where pods come from: staticPodPath, staticPodURL or kubeconfig. A file looks like this:

`+"```yaml\n%s```"+`

## Files, drop-ins, flags

`+"`herald run --config FILE --config-dir FOLDER --flag...`"+` reads the file, then the files `+"`*.conf`"+` of the folder and of the folders in
it in the order of their names, then the flags. What comes later wins: a value and a list replace the one before, a map is
joined with it key by key, a field that is left empty says nothing. Every file begins with the apiVersion and the kind above.

Fields that the kubelet's configuration has too have its names and its meaning; those of it that are not listed here are not
known, and `+"`herald config convert`"+` says of each why. Reading is strict: an unknown field, a wrong type, a field that is
there twice or a value that cannot be are errors, all of which are named at once with their file, line, field and remedy. A path
in a file that is not absolute begins at the folder of that file, one in a flag at the current folder. A duration is written like
`+"`20s`, `1m30s` or `2h`, a quantity as in Kubernetes, like `10Mi` or `500m`"+`.

`+"`herald config show --config FILE --config-dir FOLDER --flag...`"+` prints what all of it comes to, without secrets, or what is wrong.

## From the kubelet's

`+"`herald config convert /var/lib/kubelet/config.yaml > /etc/herald/config.yaml`"+` makes a configuration of a KubeletConfiguration. It
names each field that it leaves out on the standard error, with its line and with why it would do nothing. What the kubelet is
told by flags is to be added by hand: kubeconfig, nodeName, nodeIP, nodeLabels.

## Fields

| field | type | default | flag | meaning |
| --- | --- | --- | --- | --- |
`, example)
	comments := fieldComments(t)
	for _, field := range config.Fields() {
		out.WriteString(line(t, field, comments[field.GoName]))
	}
	fmt.Fprintf(&out, "\n## Exit statuses\n\nOf all commands, also shown by `herald help exit`:\n\n```\n%s```\n", cli.ExitStatuses)
	return out.String()
}

// line is a field's row of the table. A default that the code does not know is said in the comment.
func line(t *testing.T, field config.Field, comment string) string {
	t.Helper()
	if comment == "" {
		t.Errorf("%s has no comment", field.GoName)
	}
	meaning, otherwise, said := strings.Cut(comment, " Default: ")
	otherwise = strings.TrimSuffix(otherwise, ".")
	if said && field.Default != "" {
		t.Errorf("the default of %s is said twice: in its comment, and by the code", field.GoName)
	}
	if !said {
		otherwise = "`" + field.Default + "`"
	}
	if otherwise == "``" {
		otherwise = map[string]string{"true or false": "`false`", "number": "`0`"}[field.Type]
	}
	option := ""
	if field.Flag != "" {
		option = "`--" + field.Flag + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", field.Path, field.Type, otherwise, option, meaning)
}

// fieldComments are the comments of the structs' fields, each in one line.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "config", "config.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	ast.Inspect(parsed, func(node ast.Node) bool {
		declared, isType := node.(*ast.TypeSpec)
		if !isType {
			return true
		}
		if structure, isStruct := declared.Type.(*ast.StructType); isStruct {
			for _, field := range structure.Fields.List {
				comments[declared.Name.Name+"."+field.Names[0].Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
			}
		}
		return false
	})
	return comments
}

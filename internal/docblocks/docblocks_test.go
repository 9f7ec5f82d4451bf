package docblocks_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/docblocks"
)

const root = "../.."

func TestParse(t *testing.T) {
	document := docblocks.Parse("a.md", "# A\n\n```sh\nx\n```\n\n1. one\n\n   ```yaml invalid\n   a: 1\n     b: 2\n   ```\n\nsay `herald get pods`, `herald`, `make test`.\n")
	want := []docblocks.Block{
		{File: "a.md", Line: 4, Language: "sh", Words: []string{""}, Text: "x\n"},
		{File: "a.md", Line: 10, Language: "yaml", Words: []string{"invalid", ""}, Text: "a: 1\n  b: 2\n"},
	}
	if !reflect.DeepEqual(document.Blocks, want) {
		t.Errorf("got %+v, want %+v", document.Blocks, want)
	}
	if got := fmt.Sprint(document.Mentions("herald")); got != "[{a.md:14 [herald get pods]}]" {
		t.Errorf("got %s", got)
	}
}

func TestCommands(t *testing.T) {
	block := docblocks.Parse("a.md", "```sh\n"+`# a comment
A=1 sudo .build/herald run --a 'b c' \
  --d "e \"f\""   # why
cat <<EOF | sudo tee /etc/x.yaml
a: 1
EOF
x > y 2>&1 && herald get $(date +%s) | grep '#'; cat > z.json <<'END'
{}
END
ssh -L 1:2 node sudo herald ui
systemctl enable herald
kubectl herald status
`+"```\n").Blocks[0]
	commands, inputs := block.Commands()
	var got []string
	for _, command := range commands {
		arguments, isHerald := command.Arguments("herald")
		got = append(got, fmt.Sprintf("%s %q %v %q", command.Position, command.Words, isHerald, arguments))
	}
	want := []string{
		`a.md:3 ["sudo" ".build/herald" "run" "--a" "b c" "--d" "e \"f\""] true ["run" "--a" "b c" "--d" "e \"f\""]`,
		`a.md:5 ["cat"] false []`,
		`a.md:5 ["sudo" "tee" "/etc/x.yaml"] false []`,
		`a.md:8 ["x"] false []`,
		`a.md:8 ["herald" "get" "(date +%s"] true ["get" "(date +%s"]`,
		`a.md:8 ["grep" "#"] false []`,
		`a.md:8 ["cat"] false []`,
		`a.md:11 ["ssh" "-L" "1:2" "node" "sudo" "herald" "ui"] true ["ui"]`,
		`a.md:12 ["systemctl" "enable" "herald"] false []`,
		`a.md:13 ["kubectl" "herald" "status"] true ["status"]`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := fmt.Sprint(inputs); got != "[{a.md:6 /etc/x.yaml a: 1\n} {a.md:9 z.json {}\n}]" {
		t.Errorf("got %q", got)
	}
}

func TestCommands_Console(t *testing.T) {
	block := docblocks.Parse("a.md", "```\n$ herald a \\\n  b\noutput\nExamples:\n  # c\n  herald d\n\nFlags:\n  herald e\n```\n").Blocks[0]
	commands, _ := block.Commands()
	if got := fmt.Sprint(commands); got != "[{a.md:2 [herald a b]} {a.md:7 [herald d]}]" {
		t.Errorf("got %s", got)
	}
}

// goText returns the text without indentation and empty lines, for a comparison.
func goText(text string) string {
	var lines strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines.WriteString(line + "\n")
		}
	}
	return lines.String()
}

// Every Go block of the documents is part of a Go file of this repository, which is compiled: an example or its test.
func TestDocuments_GoBlocks(t *testing.T) {
	documents, err := docblocks.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && name != root {
			return fs.SkipDir
		}
		if err == nil && !entry.IsDir() && (strings.HasSuffix(name, "example_test.go") || strings.Contains(name, "/examples/") && filepath.Ext(name) == ".go") {
			var data []byte
			data, err = os.ReadFile(name)
			sources.WriteString("\n" + goText(string(data)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range documents {
		for _, block := range document.Blocks {
			if block.Language == "go" && !strings.Contains(sources.String(), "\n"+goText(block.Text)) {
				t.Errorf("%s: the Go code is in no example_test.go and no file of examples", block.Position(0))
			}
		}
	}
}

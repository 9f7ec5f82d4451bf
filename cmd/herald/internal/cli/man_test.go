package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	commandInHelp = regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`)
	flagInHelp    = regexp.MustCompile(`(?m)^  (?:(-[a-zA-Z]), |    )(--[a-z-]+)`)
)

// allCommands returns the commands that the help names below parent, with theirs. Help itself is left out.
func allCommands(parent string) []string {
	_, help, _ := strings.Cut(runHerald(append(strings.Fields(parent), "--help")...).stdout, "\nUsage:\n")
	help, _, _ = strings.Cut(help, "\nFlags:\n")
	var commands []string
	for _, line := range commandInHelp.FindAllStringSubmatch(help, -1) {
		if command := strings.TrimSpace(parent + " " + line[1]); command != "help" {
			commands = append(append(commands, command), allCommands(command)...)
		}
	}
	return commands
}

// Every command of the help has a manual page with all its flags, and is in the page of its parent.
func TestMan(t *testing.T) {
	t.Setenv("HERALD_SERVER", "")
	dir := filepath.Join(t.TempDir(), "man")
	if got := runHerald("man", dir); got.status != 0 || got.stdout+got.stderr != "" {
		t.Fatalf("got exit status %d, output %s%s", got.status, got.stdout, got.stderr)
	}
	commands := allCommands("")
	if len(commands) < 30 {
		t.Fatalf("the help names only %q", commands)
	}
	pages := map[string]bool{"kubectl-herald.1": true}
	for _, command := range append(commands, "") {
		words := append([]string{"herald"}, strings.Fields(command)...)
		name := strings.Join(words, "-") + ".1"
		pages[name] = true
		page := readPage(t, dir, name)
		for _, flag := range flagInHelp.FindAllStringSubmatch(runHerald(append(words[1:], "--help")...).stdout, -1) {
			want := ".TP\n\\fB" + flag[2] + "\\fR"
			if flag[1] != "" {
				want = ".TP\n\\fB" + flag[1] + "\\fR, \\fB" + flag[2] + "\\fR"
			}
			if !strings.Contains(page, want) {
				t.Errorf("%s does not have the flag %s", name, flag[2])
			}
		}
		if last := len(words) - 1; last > 0 {
			parent := strings.Join(words[:last], "-") + ".1"
			if !strings.Contains(readPage(t, dir, parent), "\n.TP\n.B "+words[last]+"\n") {
				t.Errorf("%s does not have the command %s", parent, words[last])
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !pages[file.Name()] {
			t.Errorf("the help does not name the command of %s", file.Name())
		}
	}
}

// readPage returns a manual page with its hyphens unescaped.
func readPage(t *testing.T, dir, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(page), `\-`, "-")
}

func TestMan_UsageError(t *testing.T) {
	if got := runHerald("man"); got.status != 2 || !strings.Contains(got.stderr, "exactly one DIR is required") {
		t.Errorf("got exit status %d, error %q, want 2", got.status, got.stderr)
	}
}

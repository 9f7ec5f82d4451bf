package agent_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/heraldnode/herald/process"
)

var update = flag.Bool("update", false, "rewrite testdata/scenarios with the actual output")

func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	flag.Parse()
	if os.Getenv(nodeDirVariable) != "" {
		os.Exit(runProcessAgent())
	}
	goleak.VerifyTestMain(m)
}

// TestScenarios runs the transcripts in testdata/scenarios. A scenario is a text file with a description, steps and
// manifests. A step is a command behind ">", followed by what happened since the previous step: actions of the runtime,
// changes of pods in the API server, and events, each with its time since the start. The flag -update rewrites the files.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("got no scenarios: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	scenario := parseScenario(string(text))
	stateDir := t.TempDir()
	defer func() { compareOrUpdate(t, file, string(text), scenario.String()) }() // also if a step fails
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, scenario.manifests, stateDir)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.watchRuntime(ctx)
		for i := range scenario.steps {
			scenario.steps[i].output = h.execute(scenario.steps[i].command)
		}
		h.finish()
	})
}

func compareOrUpdate(t *testing.T, file, want, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Error(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("transcript differs (-want +got); run with -update to accept it:\n%s", diff)
	}
}

// scenario is a parsed scenario file.
type scenario struct {
	description   []string
	steps         []step
	manifests     map[string]string
	manifestNames []string // in the order of the file
}

// step is a command with the comments above it and its output.
type step struct {
	comments []string
	command  string
	output   []string
}

func parseScenario(text string) scenario {
	parsed := scenario{manifests: map[string]string{}}
	var comments []string
	manifest := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		header, isHeader := strings.CutPrefix(line, "-- ")
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case isHeader:
			manifest = strings.TrimSuffix(header, " --")
			parsed.manifestNames = append(parsed.manifestNames, manifest)
		case manifest != "":
			parsed.manifests[manifest] += line + "\n"
		case isCommand:
			parsed.steps = append(parsed.steps, step{comments: comments, command: command})
			comments = nil
		case strings.HasPrefix(line, "#"):
			comments = append(comments, line)
		case line == "" && len(parsed.steps) == 0 && len(parsed.description) == 0:
			parsed.description, comments = comments, nil
		}
	}
	return parsed
}

// String formats the scenario as a file.
func (s scenario) String() string {
	var b strings.Builder
	writeLines := func(lines []string) {
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	writeLines(s.description)
	for i, step := range s.steps {
		if i == 0 || len(s.steps[i-1].output) > 0 || len(step.comments) > 0 {
			b.WriteString("\n")
		}
		writeLines(step.comments)
		b.WriteString("> " + step.command + "\n")
		writeLines(step.output)
	}
	for _, name := range s.manifestNames {
		b.WriteString("\n-- " + name + " --\n" + strings.TrimRight(s.manifests[name], "\n") + "\n")
	}
	return b.String()
}

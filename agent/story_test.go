package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// A story is a text file: what it is about, commands behind ">", and below each command what happened since the one before,
// with the time on the story's clock. Manifests stand at the end. Rewritten with -update, it is to be read as prose: what
// the runtime was made to do, what a watcher of the API server saw of each pod, and the events.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no stories: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) { tell(t, file) })
	}
}

func tell(t *testing.T, file string) {
	t.Helper()
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	script := parseStory(string(written))
	state := t.TempDir()
	defer func() { publish(t, file, string(written), script.String()) }() // also when the story ends badly
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, script.manifests, state)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.overhear(ctx)
		for i := range script.scenes {
			script.scenes[i].happened = s.play(script.scenes[i].command)
		}
		s.end()
	})
}

func publish(t *testing.T, file, written, told string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(told), 0o600); err != nil {
			t.Error(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(written, "\n"), strings.Split(told, "\n")); diff != "" {
		t.Errorf("the story goes differently now (-written +told); if that is right, run with -update:\n%s", diff)
	}
}

// script is a story's file.
type script struct {
	title     []string
	scenes    []scene
	manifests map[string]string
	sections  []string // names of the manifests in their order
}

// scene is one command, with the remarks that stand above it and what happened.
type scene struct {
	remarks  []string
	command  string
	happened []string
}

func parseStory(text string) script {
	parsed := script{manifests: map[string]string{}}
	var remarks []string
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		name, isHeader := strings.CutPrefix(line, "-- ")
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case isHeader:
			section = strings.TrimSuffix(name, " --")
			parsed.sections = append(parsed.sections, section)
		case section != "":
			parsed.manifests[section] += line + "\n"
		case isCommand:
			parsed.scenes = append(parsed.scenes, scene{remarks: remarks, command: command})
			remarks = nil
		case strings.HasPrefix(line, "#"):
			remarks = append(remarks, line)
		case line == "" && len(parsed.scenes) == 0 && len(parsed.title) == 0:
			parsed.title, remarks = remarks, nil
		}
	}
	return parsed
}

// String is the file with all that happened.
func (s script) String() string {
	var b strings.Builder
	lines := func(lines []string) {
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	lines(s.title)
	for i, scene := range s.scenes {
		if i == 0 || len(s.scenes[i-1].happened) > 0 || len(scene.remarks) > 0 {
			b.WriteString("\n")
		}
		lines(scene.remarks)
		b.WriteString("> " + scene.command + "\n")
		lines(scene.happened)
	}
	for _, name := range s.sections {
		b.WriteString("\n-- " + name + " --\n" + strings.TrimRight(s.manifests[name], "\n") + "\n")
	}
	return b.String()
}

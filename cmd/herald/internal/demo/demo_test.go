package demo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/cmd/herald/internal/demo"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/process"
)

// commandVariable is set in the environment of a test binary that acts as the herald command.
const commandVariable = "HERALD_TEST_COMMAND"

// TestMain lets the test binary act as the herald command: shim, pod, reaper and a demo to be killed.
func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	if len(os.Args) > 1 && (os.Args[1] == "demo" || os.Getenv(commandVariable) != "") {
		os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// setTempDir sets TMPDIR to a new directory.
func setTempDir(t *testing.T) string {
	t.Helper()
	dir := newTempDir(t)
	t.Setenv("TMPDIR", dir)
	return dir
}

// newTempDir returns a new directory. Its path is short, because sockets are in it.
func newTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// outputWatcher calls a function once when the output matches a pattern.
type outputWatcher struct {
	output  []byte
	pattern *regexp.Regexp
	found   func()
}

func (w *outputWatcher) String() string { return string(w.output) }

func (w *outputWatcher) Write(output []byte) (int, error) {
	w.output = append(w.output, output...)
	if w.found != nil && w.pattern.Match(w.output) {
		w.found()
		w.found = nil
	}
	return len(output), nil
}

// webRunning matches a row of the table. On a slow machine the first row of the running pod may show it as ready, and column
// widths depend on the rows before.
var webRunning = regexp.MustCompile(`web-demo +[01]/1 +Running`)

func TestDemo_Interrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	dir := setTempDir(t)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &outputWatcher{pattern: webRunning, found: interrupt}
	if err := demo.Run(ctx, demo.Options{Out: out}); err != nil {
		t.Error(err)
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); len(first) > 80 {
		t.Errorf("line is wider than 80 columns: %s", first)
	}
	for _, part := range []string{dir, "http://127.0.0.1:", " get pods -w -s 127.0.0.1:", os.Args[0] + " get", "Everything is removed."} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("output does not contain %q: %s", part, out.String())
		}
	}
	if !webRunning.MatchString(out.String()) {
		t.Errorf("output does not match %v: %s", webRunning, out.String())
	}
	mustBeEmpty(t, dir)
}

func TestDemo_LongTempDir(t *testing.T) {
	dir := filepath.Join(setTempDir(t), strings.Repeat("x", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	if err := demo.Run(t.Context(), demo.Options{Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "TMPDIR") ||
		strings.Contains(err.Error(), "reaper") {
		t.Errorf("got error %v", err)
	}
	mustBeEmpty(t, dir)
}

func TestDemo_MissingStates(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	dir := setTempDir(t)
	ctx, interrupt := context.WithCancel(t.Context())
	err := demo.Run(ctx, demo.Options{For: time.Hour, Out: &outputWatcher{pattern: webRunning, found: interrupt}})
	if err == nil || !strings.Contains(err.Error(), "job completes; ") {
		t.Errorf("got error %v", err)
	}
	mustBeEmpty(t, dir)
}

// TestDemo_Lines runs the whole story as a pipe sees it. The demo itself checks that everything happened.
func TestDemo_Lines(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	t.Parallel()
	dir := newTempDir(t)
	command := exec.CommandContext(t.Context(), "/proc/self/exe", "demo", "--for", "1h")
	command.Env = append(os.Environ(), "TMPDIR="+dir)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	text := string(output)
	for _, line := range []string{
		`1/9 Four pods start`, `alert CrashBackOff snapshot dry-run`, `! cart-demo is not Ready: server is not started \(CrashLoopBackOff\)`,
		`\| cannot open the database at db\.example: no such host`, `alert WebNotReady firing  .+`, `alert WebNotReady resolved  .+`,
		`- +- \{name: DATABASE, value: db.example\}`, `manifest web\.yaml refused`,
		`! ` + dir + `/.+/web\.yaml:14: spec\.containers\[0\]\.readinessprobe: unknown field; did you mean readinessProbe\?`,
		`= the last good version runs: web-demo Running 1/1`, `manifest web\.yaml accepted`, `9/9 That was the story\.`,
		`All pods, alerts and manifests reached their expected states\.`, `Everything is removed\.`,
	} {
		found := regexp.MustCompile(`(?m)^(?: *[0-9.]+s  | *)` + line).FindStringIndex(text)
		if found == nil {
			t.Fatalf("no line %q after the previous one: %s", line, output)
		}
		text = text[found[0]:]
	}
	mustBeEmpty(t, dir)
}

func TestDemo_Killed(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	dir := setTempDir(t)
	command := exec.CommandContext(t.Context(), "/proc/self/exe", "demo")
	command.Stdout = &outputWatcher{pattern: webRunning, found: func() { _ = command.Process.Kill() }}
	if err := command.Run(); err == nil {
		t.Fatal("demo was not killed")
	}
	waitFor(t, "the reaper to clean up", func() bool { return len(entries(t, dir)) == 0 && len(processesOf(t, dir)) == 0 })
}

func TestDemo_OutputClosed(t *testing.T) {
	dir := setTempDir(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	_ = read.Close()
	if err := demo.Run(t.Context(), demo.Options{Out: write}); err == nil || !strings.Contains(err.Error(), "output was closed") {
		t.Errorf("got error %v", err)
	}
	mustBeEmpty(t, dir)
}

// runOnTerminal runs a demo on a pseudo terminal until its output matches, and returns the output.
func runOnTerminal(t *testing.T, columns, rows uint16, until *regexp.Regexp) string {
	t.Helper()
	master, terminal := openTerminal(t, columns, rows)
	ctx, interrupt := context.WithCancel(t.Context())
	output := &outputWatcher{pattern: until, found: interrupt}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(output, master)
	}()
	if err := demo.Run(ctx, demo.Options{Out: terminal}); err != nil {
		t.Error(err)
	}
	_ = terminal.Close()
	<-read
	return output.String()
}

func TestDemo_TerminalOfUnknownType(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	dir := setTempDir(t)
	t.Setenv("TERM", "")
	shown := runOnTerminal(t, 80, 24, webRunning)
	if strings.Contains(shown, "\x1b") {
		t.Errorf("%q", shown)
	}
	mustBeEmpty(t, dir)
}

func openTerminal(t *testing.T, columns, rows uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return master, terminal
}

func TestFit(t *testing.T) {
	header, pods, alerts := []string{"head"}, []string{"NAME", "web", "db"}, []string{"ALERT"}
	story, evidence, try := []string{"1/9"}, []string{"$ explain", "! web"}, []string{"try", "stop"}
	tests := map[string]struct {
		rows int
		want string
	}{
		"unknown height":     {0, "head||NAME|web|db||ALERT||1/9|$ explain|! web||try|stop"},
		"high":               {24, "head||NAME|web|db||ALERT||1/9|$ explain|! web||try|stop"},
		"some empty lines":   {12, "head||NAME|web|db||ALERT|1/9|$ explain|! web|try|stop"},
		"no empty lines":     {10, "head|NAME|web|db|ALERT|1/9|$ explain|! web|try|stop"},
		"evidence is cut":    {9, "head|NAME|web|db|ALERT|1/9|$ explain|try|stop"},
		"then what to try":   {7, "head|NAME|web|db|ALERT|1/9|try"},
		"then alerts":        {5, "head|NAME|web|db|1/9"},
		"then the header":    {4, "NAME|web|db|1/9"},
		"pods are the last":  {3, "NAME|web|db"},
		"room for two lines": {2, "NAME|web"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(demo.Fit(test.rows, header, pods, alerts, story, evidence, try), "|")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	tests := map[string]struct {
		text    string
		columns int
		indent  string
		want    []string
	}{
		"fits":         {"one two", 7, "", []string{"one two"}},
		"words":        {"one two three", 8, "", []string{"one two", "three"}},
		"indent":       {"one two three", 8, "  ", []string{"one two", "  three"}},
		"long word":    {"http://127.0.0.1/", 10, "", []string{"http://127", ".0.0.1/"}},
		"indented one": {"  http://127.0.0.1/", 10, "  ", []string{"  http://1", "  27.0.0.1", "  /"}},
		"unknown":      {"one two", 0, "", []string{"one two"}},
		"tiny":         {"one two", 2, "    ", []string{"one two"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, demo.Wrap(test.text, test.columns, test.indent)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEdit_OfUser checks that the story does not change what a user has written.
func TestEdit_OfUser(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "manifests", "web.yaml")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		content, want string
		err           error
	}{
		"other line": {"mine: 1\n    readinessProbe: {}\n", "mine: 1\n    readinessprobe: {}\n", nil},
		"same line":  {"    livenessProbe: {}\n", "    livenessProbe: {}\n", demo.ErrEdited},
		"second pod": {"    readinessProbe: {}\n    readinessProbe: {}\n", "    readinessProbe: {}\n    readinessProbe: {}\n", demo.ErrEdited},
		"empty file": {"", "", demo.ErrEdited},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := demo.ApplyBrokenEdit(dir); !errors.Is(err, test.err) {
				t.Errorf("got error %v, want %v", err, test.err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestProgress_Disturbance checks that the demo fails if a refused manifest does something to its pod.
func TestProgress_Disturbance(t *testing.T) {
	if got := demo.Disturbance("a", "a", 0); got != "" {
		t.Errorf("got %q", got)
	}
	if got := demo.Disturbance("a", "b", 0); !strings.Contains(got, "replaced") {
		t.Errorf("got %q", got)
	}
	if got := demo.Disturbance("a", "a", 1); !strings.Contains(got, "restarted") {
		t.Errorf("got %q", got)
	}
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// processesOf returns the processes whose command line contains the directory: shims and reapers.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(text, []byte{0}, []byte(" "))))
		}
	}
	return found
}

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
	if left := processesOf(t, dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	heraldtest.Eventually(t, func() error {
		if !condition() {
			return errors.New("waiting for " + what)
		}
		return nil
	})
}

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

// TestMain lets the test binary act as the herald command: shim, pod, reaper and a demo to be killed.
func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	if len(os.Args) > 1 && os.Args[1] == "demo" {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// setTempDir sets TMPDIR to a new directory. Its path is short, because sockets are in it.
func setTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
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

// TestDemo_Alerts runs the demo until an alert was resolved, which the recovery of web causes.
func TestDemo_Alerts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	dir := setTempDir(t)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &outputWatcher{pattern: regexp.MustCompile(`alert WebNotReady resolved`), found: interrupt}
	if err := demo.Run(ctx, demo.Options{Out: out}); err != nil {
		t.Error(err)
	}
	changes := regexp.MustCompile(`(?m)^ *[0-9.]+s  alert (WebNotReady|CrashBackOff) ([a-z -]+?)(?:  .*)?$`).FindAllStringSubmatch(out.String(), -1)
	seen := map[string]string{}
	for _, change := range changes {
		seen[change[1]] += change[2] + " "
	}
	if seen["WebNotReady"] != "firing resolved " || seen["CrashBackOff"] != "firing snapshot dry-run " {
		t.Errorf("got %v: %s", seen, out.String())
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

func TestDemo_Terminal(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	dir := setTempDir(t)
	t.Setenv("TERM", "xterm")
	shown := runOnTerminal(t, 30, 30, webRunning)
	for _, frame := range strings.Split(shown, "\x1b[H")[1:] {
		for line := range strings.SplitSeq(frame, "\x1b[K\r\n") {
			if text, _, _ := strings.Cut(line, "\x1b"); len(text) > 30 {
				t.Errorf("%d columns: %q", len(text), text)
			}
		}
	}
	mustBeEmpty(t, dir)
}

// TestDemo_TerminalAlerts checks that the table of a terminal has the alerts.
func TestDemo_TerminalAlerts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the demo in real time")
	}
	dir := setTempDir(t)
	t.Setenv("TERM", "xterm")
	shown := runOnTerminal(t, 120, 40, regexp.MustCompile(`action snapshot of default/crash-demo for alert CrashBackOff: dry-run`))
	if !strings.Contains(shown, "ALERT ") || !strings.Contains(shown, "ends again and again, exit 1") {
		t.Errorf("got %q", shown)
	}
	mustBeEmpty(t, dir)
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
	header, pods, events := []string{"head, that is long", ""}, []string{"NAME   AGE", "web    1s", "db     2s"}, []string{"SEEN  OBJECT", "1s    web"}
	tests := map[string]struct {
		columns, rows int
		want          []string
	}{
		"unknown size":           {0, 0, []string{"head, that is long", "", "NAME   AGE", "web    1s", "db     2s", "", "SEEN  OBJECT", "1s    web"}},
		"large":                  {80, 24, []string{"head, that is long", "", "NAME   AGE", "web    1s", "db     2s", "", "SEEN  OBJECT", "1s    web"}},
		"narrow":                 {10, 24, []string{"head, that", " is long", "", "NAME   AGE", "web    1s", "db     2s", "", "SEEN  OBJE", "1s    web"}},
		"no room for events":     {80, 8, []string{"head, that is long", "", "NAME   AGE", "web    1s", "db     2s"}},
		"no room for the header": {80, 5, []string{"NAME   AGE", "web    1s", "db     2s"}},
		"no room for all pods":   {80, 3, []string{"NAME   AGE", "web    1s"}},
		"one row":                {80, 1, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, demo.Fit(test.columns, test.rows, header, pods, events)); diff != "" {
				t.Error(diff)
			}
		})
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

package demo_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/cmd/herald/internal/demo"
	"github.com/heraldnode/herald/process"
)

// TestMain makes the test binary all that the herald command is in a demo: shim, pod, guard, and the demo that is killed.
func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	if len(os.Args) > 1 && os.Args[1] == "demo" {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// temporary is a folder for all that demos write. Its name is short, for sockets are in it.
func temporary(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "d") //nolint:usetesting // that one's name is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	t.Setenv("TMPDIR", folder)
	return folder
}

// reader calls once when the words have been written.
type reader struct {
	text  []byte
	words string
	then  func()
}

func (r *reader) String() string { return string(r.text) }

func (r *reader) Write(text []byte) (int, error) {
	r.text = append(r.text, text...)
	if r.then != nil && strings.Contains(r.String(), r.words) {
		r.then()
		r.then = nil
	}
	return len(text), nil
}

const webRuns = "web-demo     0/1   Running"

func TestADemoThatIsInterruptedLeavesNothing(t *testing.T) {
	folder := temporary(t)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &reader{words: webRuns, then: interrupt}
	if err := demo.Run(ctx, demo.Options{Out: out}); err != nil {
		t.Error(err)
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); len(first) > 80 {
		t.Errorf("most terminals break this line: %s", first)
	}
	for _, part := range []string{folder, "http://127.0.0.1:", " get pods -w -s 127.0.0.1:", os.Args[0] + " get", webRuns, "Nothing is left."} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in: %s", part, out.String())
		}
	}
	mustBeEmpty(t, folder)
}

func TestADemoWithoutRoomForItsSocketsSaysWhatToDo(t *testing.T) {
	folder := filepath.Join(temporary(t), strings.Repeat("x", 100))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", folder)
	if err := demo.Run(t.Context(), demo.Options{Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "TMPDIR") ||
		strings.Contains(err.Error(), "guard") {
		t.Errorf("the error is %v", err)
	}
	mustBeEmpty(t, folder)
}

func TestADemoThatCouldNotShowEverythingSaysWhatIsMissing(t *testing.T) {
	folder := temporary(t)
	ctx, interrupt := context.WithCancel(t.Context())
	err := demo.Run(ctx, demo.Options{For: time.Hour, Out: &reader{words: webRuns, then: interrupt}})
	if err == nil || !strings.Contains(err.Error(), "job completes; ") {
		t.Errorf("the error is %v", err)
	}
	mustBeEmpty(t, folder)
}

func TestADemoThatIsKilledLeavesNothing(t *testing.T) {
	folder := temporary(t)
	command := exec.CommandContext(t.Context(), "/proc/self/exe", "demo")
	command.Stdout = &reader{words: webRuns, then: func() { _ = command.Process.Kill() }}
	if err := command.Run(); err == nil {
		t.Fatal("it was not killed")
	}
	await(t, "its guard to remove all", func() bool { return len(entries(t, folder)) == 0 && len(processesOf(t, folder)) == 0 })
}

func TestADemoWhoseReaderLeavesEndsItsPods(t *testing.T) {
	folder := temporary(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	_ = read.Close()
	if err := demo.Run(t.Context(), demo.Options{Out: write}); err == nil || !strings.Contains(err.Error(), "nobody reads") {
		t.Errorf("the error is %v", err)
	}
	mustBeEmpty(t, folder)
}

// shownUntil is what a demo shows on a pseudo terminal of that size, until the words are there.
func shownUntil(t *testing.T, words string, columns, rows uint16) string {
	t.Helper()
	master, terminal := openTerminal(t, columns, rows)
	ctx, interrupt := context.WithCancel(t.Context())
	seen := &reader{words: words, then: interrupt}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(seen, master)
	}()
	if err := demo.Run(ctx, demo.Options{Out: terminal}); err != nil {
		t.Error(err)
	}
	_ = terminal.Close()
	<-read
	return seen.String()
}

// TestATerminalShowsATableThatFits runs on a pseudo terminal.
func TestATerminalShowsATableThatFits(t *testing.T) {
	folder := temporary(t)
	t.Setenv("TERM", "xterm")
	shown := shownUntil(t, "web-demo     0/1     Running", 30, 20)
	for _, picture := range strings.Split(shown, "\x1b[H")[1:] {
		for line := range strings.SplitSeq(picture, "\x1b[K\r\n") {
			if text, _, _ := strings.Cut(line, "\x1b"); len(text) > 30 {
				t.Errorf("%d columns: %q", len(text), text)
			}
		}
	}
	mustBeEmpty(t, folder)
}

func TestATerminalOfNoKnownKindGetsPlainLines(t *testing.T) {
	folder := temporary(t)
	t.Setenv("TERM", "")
	shown := shownUntil(t, webRuns, 80, 24)
	if strings.Contains(shown, "\x1b") {
		t.Errorf("%q", shown)
	}
	mustBeEmpty(t, folder)
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

func TestAPictureFitsItsTerminal(t *testing.T) {
	head, pods, events := []string{"head, that is long", ""}, []string{"NAME   AGE", "web    1s", "db     2s"}, []string{"SEEN  OBJECT", "1s    web"}
	tests := map[string]struct {
		columns, rows int
		want          []string
	}{
		"nobody knows the size":          {0, 0, []string{"head, that is long", "", "NAME   AGE", "web    1s", "db     2s", "", "SEEN  OBJECT", "1s    web"}},
		"there is room":                  {80, 24, []string{"head, that is long", "", "NAME   AGE", "web    1s", "db     2s", "", "SEEN  OBJECT", "1s    web"}},
		"narrow":                         {10, 24, []string{"head, that", " is long", "", "NAME   AGE", "web    1s", "db     2s", "", "SEEN  OBJE", "1s    web"}},
		"no room for events":             {80, 8, []string{"head, that is long", "", "NAME   AGE", "web    1s", "db     2s"}},
		"no room for the head":           {80, 5, []string{"NAME   AGE", "web    1s", "db     2s"}},
		"no room for all pods":           {80, 3, []string{"NAME   AGE", "web    1s"}},
		"one row, which is the cursor's": {80, 1, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, demo.Fit(test.columns, test.rows, head, pods, events)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func entries(t *testing.T, folder string) []os.DirEntry {
	t.Helper()
	found, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// processesOf are those whose command line names the folder: shims and guards.
func processesOf(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(folder)) {
			found = append(found, string(bytes.ReplaceAll(text, []byte{0}, []byte(" "))))
		}
	}
	return found
}

func mustBeEmpty(t *testing.T, folder string) {
	t.Helper()
	if left := entries(t, folder); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if left := processesOf(t, folder); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit, tick := time.NewTimer(time.Minute), time.NewTicker(20*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !done() {
		select {
		case <-limit.C:
			t.Fatal("waited in vain for " + what)
		case <-tick.C:
		}
	}
}

package readme_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// runner runs the commands of a document as a user does who types them.
type runner struct {
	// replace changes what a machine may have in use: folders and ports.
	replace *strings.Replacer
	// exports are the export commands so far.
	exports   []string
	terminals []*terminal
}

// newRunner returns a runner that uses a temporary directory in the place of /tmp/herald, and free ports in the place of those given,
// because a developer may be using them.
func newRunner(t *testing.T, ports ...string) *runner {
	t.Helper()
	dir, err := os.MkdirTemp("", "herald-readme-") //nolint:usetesting // socket paths must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("DIR", dir)
	changes := []string{
		"/tmp/herald", dir,
		// Do not evict pods when the machine's disk is nearly full.
		"authentication: {x509", "evictionHard: {memory.available: 100Mi}\nimageGCHighThresholdPercent: 100\nauthentication: {x509",
	}
	for _, port := range ports {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() // held until all are found, so that they differ
		changes = append(changes, port, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return &runner{replace: strings.NewReplacer(changes...)}
}

// terminal is a command in its own terminal.
type terminal struct {
	line string
	cmd  *exec.Cmd
	end  func()

	mu     sync.Mutex // guards output
	output bytes.Buffer
}

func (w *terminal) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.output.Write(text)
}

func (w *terminal) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.output.String()
}

// open runs the command until close is called or the test ends, then presses Ctrl-C and waits for it to exit.
func (r *runner) open(t *testing.T, line string) *terminal {
	t.Helper()
	line = r.replace.Replace(line)
	w := &terminal{line: line, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", line)}
	w.cmd.Dir, w.cmd.Stdout, w.cmd.Stderr = root, w, w
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := w.cmd.StdinPipe() // nothing is typed, and the input does not end
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.end = sync.OnceFunc(func() {
		w.close(t)
		_ = input.Close()
	})
	t.Cleanup(w.end)
	r.terminals = append(r.terminals, w)
	return w
}

func (w *terminal) close(t *testing.T) {
	t.Helper()
	_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGINT)
	late := time.AfterFunc(recorder.Timeout, func() { _ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	_ = w.cmd.Wait() // make reports an error when its command is interrupted
	if t.Failed() {
		t.Logf("$ %s\n%s", w.line, w.text())
	}
}

// waitFor waits until the terminal shows these lines.
func (w *terminal) waitFor(t *testing.T, shown string) {
	t.Helper()
	heraldtest.Eventually(t, func() error {
		if output := w.text(); !hasLines(output, shown) {
			return fmt.Errorf("$ %s: got %s, want %s", w.line, output, shown)
		}
		return nil
	})
}

// closeAll presses Ctrl-C in all terminals, the last one first.
func (r *runner) closeAll() {
	for len(r.terminals) > 0 {
		last := len(r.terminals) - 1
		r.terminals[last].end()
		r.terminals = r.terminals[:last]
	}
}

// stopPods stops what a failed test left running: pods outlive their agent.
func (r *runner) stopPods(t *testing.T) {
	t.Helper()
	if t.Failed() {
		_, err := r.try(t, "rm -f /tmp/herald/manifests/*; .build/herald wait pod --all --for=delete --timeout=1m -s unix:///tmp/herald/herald.sock")
		t.Log("stopping pods:", err)
	}
}

// try runs a command in a shell with what was exported before. A comment "exit status N" says how it ends.
func (r *runner) try(t *testing.T, command string) (output string, err error) {
	t.Helper()
	typed, comment := withoutComment(r.replace.Replace(command))
	if strings.HasPrefix(typed, "export ") {
		r.exports = append(r.exports, typed)
		return "", nil
	}
	script := strings.Join(append(r.exports, typed), "\n")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	want := 0
	if status, isStatus := strings.CutPrefix(comment, "exit status "); isStatus {
		status, _, _ = strings.Cut(status, ":")
		if want, err = strconv.Atoi(status); err != nil {
			return "", fmt.Errorf("comment %q: %w", comment, err)
		}
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		return string(out), fmt.Errorf("$ %s: exit status %d, want %d\n%s", typed, got, want, out)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return string(out), err
	}
	return string(out), nil
}

// run runs a command that must succeed.
func (r *runner) run(t *testing.T, command string) {
	t.Helper()
	if _, err := r.try(t, command); err != nil {
		t.Fatal(err)
	}
}

// runBlock runs the commands of a block. If the document shows an output, the last command is repeated until it prints that, as a user
// does who looks again.
func (r *runner) runBlock(t *testing.T, b block) {
	t.Helper()
	shown := r.replace.Replace(b.output)
	switch b.kind {
	case "terminal":
		if len(b.commands) != 1 {
			t.Fatalf("a terminal runs one command, not %q", b.commands)
		}
		if opened := r.open(t, b.commands[0]); shown != "" {
			opened.waitFor(t, shown)
		}
		return
	case "afterwards":
		r.closeAll()
	case "":
	default:
		t.Fatalf("unknown kind of block %q", b.kind)
	}
	last := len(b.commands) - 1
	for _, command := range b.commands[:last] {
		r.run(t, command)
	}
	if shown == "" {
		r.run(t, b.commands[last])
		return
	}
	heraldtest.Eventually(t, func() error {
		output, err := r.try(t, b.commands[last])
		if err == nil && !hasLines(output, shown) {
			err = fmt.Errorf("$ %s: got\n%s\nwant\n%s", b.commands[last], output, shown)
		}
		return err
	})
}

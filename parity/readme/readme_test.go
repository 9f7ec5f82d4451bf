// Package readme_test runs the commands of the README.
package readme_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

const root = "../.."

// readmeCommands returns the commands of the shell block below a headline, without comments.
func readmeCommands(t *testing.T, headline string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "\n## "+headline+"\n")
	_, block, fenced := strings.Cut(after, "```sh\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !fenced || !closed {
		t.Fatalf("README has no shell block under %q", headline)
	}
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(block, "\\\n", " "), "\n") {
		line, _, _ = strings.Cut(line, "  #")
		if line = strings.TrimSpace(strings.ReplaceAll(line, "sudo ", "")); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// useTempDir makes the commands use a temporary directory, because a developer may be using the one in the README.
func useTempDir(t *testing.T, lines []string) []string {
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
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "/tmp/herald", dir)
	}
	return lines
}

// terminal is a command in its own terminal.
type terminal struct {
	line string
	cmd  *exec.Cmd

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

// openTerminal runs the command until the test ends, then presses Ctrl-C and waits for it to exit.
func openTerminal(t *testing.T, line string) *terminal {
	t.Helper()
	w := &terminal{line: line, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", line)}
	w.cmd.Dir, w.cmd.Stdout, w.cmd.Stderr = root, w, w
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close(t) })
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

func (w *terminal) waitForOutput(t *testing.T, words string) {
	t.Helper()
	heraldtest.Eventually(t, func() error {
		if output := w.text(); !strings.Contains(output, words) {
			return fmt.Errorf("$ %s: got %s, want %q in it", w.line, output, words)
		}
		return nil
	})
}

func runShell(t *testing.T, line string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("$ %s: %v\n%s", line, err, out)
	}
}

func TestReadme_Cluster(t *testing.T) {
	needs.Containers(t)
	needs.Kubectl(t)
	lines := useTempDir(t, readmeCommands(t, "In a cluster"))
	if len(lines) != 6 {
		t.Fatalf("got README commands %q, want 6", lines)
	}
	openTerminal(t, lines[0]).waitForOutput(t, "The control plane is ready")
	openTerminal(t, lines[1]).waitForOutput(t, "containerd is ready")
	runShell(t, lines[2])
	openTerminal(t, lines[3]).waitForOutput(t, "Starting node agent")
	watch := openTerminal(t, lines[5])
	runShell(t, lines[4])
	watch.waitForOutput(t, "1/1     Running")
	_, manifests, _ := strings.Cut(lines[4], "examples/web.yaml ")
	runShell(t, "rm "+manifests+"/web.yaml")
	watch.waitForOutput(t, "Terminating")
}

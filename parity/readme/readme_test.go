// Package readme_test does what the README tells a new user to do.
package readme_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

const root = "../.."

// section returns the lines of the shell block that follows a headline, without what only talks to the reader.
func readmeCommands(t *testing.T, headline string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "\n## "+headline+"\n")
	_, block, fenced := strings.Cut(after, "```sh\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !fenced || !ended {
		t.Fatalf("the README has no block under %q", headline)
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

// elsewhere makes the lines use another folder than the one that the reader may be using at this moment.
func useTempDir(t *testing.T, lines []string) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "herald-readme-") //nolint:usetesting // the path of a socket must be short
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

// terminal is a command in a window of its own.
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

// open runs the line until the test ends, then presses Ctrl-C and waits until it has ended.
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
	late := time.AfterFunc(recorder.Patience, func() { _ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	_ = w.cmd.Wait() // make says so when its command was interrupted
	if t.Failed() {
		t.Logf("$ %s\n%s", w.line, w.text())
	}
}

func (w *terminal) waitForOutput(t *testing.T, words string) {
	t.Helper()
	recorder.Eventually(t, "$ "+w.line, func() (string, bool) {
		output := w.text()
		return output, strings.Contains(output, words)
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
		t.Fatalf("the README has other lines than this test knows: %q", lines)
	}
	openTerminal(t, lines[0]).waitForOutput(t, "The control plane is ready")
	openTerminal(t, lines[1]).waitForOutput(t, "containerd is ready")
	runShell(t, lines[2])
	openTerminal(t, lines[3]).waitForOutput(t, "Herald runs this machine's pods")
	watch := openTerminal(t, lines[5])
	runShell(t, lines[4])
	watch.waitForOutput(t, "1/1     Running")
	_, manifests, _ := strings.Cut(lines[4], "examples/web.yaml ")
	runShell(t, "rm "+manifests+"/web.yaml")
	watch.waitForOutput(t, "Terminating")
}

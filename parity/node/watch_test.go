package node_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// podWatch is what a command prints that follows a pod.
type podWatch struct {
	mu     sync.Mutex // guards output
	output bytes.Buffer
}

func (w *podWatch) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.output.Write(line)
}

func (w *podWatch) lines() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.output.String()
}

func (tr *trial) watchWithKubectl(name string) *podWatch {
	tr.t.Helper()
	return tr.follow(tr.kubectlCommand(tr.t.Context(), "get", "pod", "--watch", "--field-selector", "metadata.name="+name))
}

func (tr *trial) watchWithHerald(name string) *podWatch {
	tr.t.Helper()
	recorder.Eventually(tr.t, "the agent's answer", func() (string, bool) {
		out, err := tr.heraldCommand(tr.t.Context(), "get", "pods").CombinedOutput()
		return string(out), err == nil
	})
	return tr.follow(tr.heraldCommand(tr.t.Context(), "get", "pods", name, "--watch"))
}

// follow runs a command until the test ends.
func (tr *trial) follow(cmd *exec.Cmd) *podWatch {
	tr.t.Helper()
	w := &podWatch{}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() { _ = cmd.Wait() }) // it ends with the test's context
	return w
}

// mustHaveSeen fails the test unless the command has shown these words in this order.
func (w *podWatch) mustHaveSeen(t *testing.T, words ...string) {
	t.Helper()
	recorder.Eventually(t, "the watch", func() (string, bool) {
		rest := w.lines()
		for _, word := range words {
			_, after, found := strings.Cut(rest, word)
			if !found {
				return fmt.Sprintf("without %s in order:\n%s", word, w.lines()), false
			}
			rest = after
		}
		return "", true
	})
}

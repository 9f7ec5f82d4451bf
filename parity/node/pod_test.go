package node_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

func TestAPodRunsIsReachedAndIsDeletedInPeace(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	watch := tr.watchWithKubectl("web")
	tr.bind(tr.keepsDiary(newPod("web", runs("main", "work", diaryPath+"/main", "main", "--on-term", "200ms"))))
	p := tr.Await("web", "ready", isReady)
	address, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil || !address.Is4() || p.Status.HostIP != tr.settings.Address.String() {
		t.Errorf("its addresses are %q and %q", p.Status.PodIP, p.Status.HostIP)
	}
	if got := tr.kubectl("get", "pod", "web", "--no-headers"); !strings.HasPrefix(got, "web   1/1   Running   0 ") {
		t.Errorf("kubectl prints %q", got)
	}
	watch.mustHaveSeen(t, "Running")
	tr.mustHaveWritten("main", "main started")
	tr.kubectl("delete", "pod", "web")
	tr.AwaitEnd("web")
	tr.mustHaveWritten("main", "main started", "main ended")
	watch.mustHaveSeen(t, "Running", "Terminating", "Completed")
}

// kubectlWatch is what kubectl get -w prints.
type kubectlWatch struct {
	mu     sync.Mutex // guards output
	output bytes.Buffer
}

func (w *kubectlWatch) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.output.Write(line)
}

func (w *kubectlWatch) lines() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.output.String()
}

func (tr *trial) watchWithKubectl(name string) *kubectlWatch {
	tr.t.Helper()
	w := &kubectlWatch{}
	cmd := tr.kubectlCommand(tr.t.Context(), "get", "pod", "--watch", "--no-headers", "--field-selector", "metadata.name="+name)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() { _ = cmd.Wait() }) // it ends with the test's context
	return w
}

// mustHaveSeen fails the test unless kubectl has shown these words in this order.
func (w *kubectlWatch) mustHaveSeen(t *testing.T, words ...string) {
	t.Helper()
	recorder.Eventually(t, "kubectl's watch", func() (string, bool) {
		rest := w.lines()
		for _, word := range words {
			_, after, found := strings.Cut(rest, word)
			if !found {
				return fmt.Sprintf("without %s in order: %s", word, w.lines()), false
			}
			rest = after
		}
		return "", true
	})
}

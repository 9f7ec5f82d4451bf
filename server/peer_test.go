//go:build linux

package server_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// socketVariable has the path of the socket that the child process of TestOperate_ForeignUser connects to.
const socketVariable = "HERALD_TEST_SOCKET"

// TestOperate_ForeignUser checks that a user who is neither root nor the agent's cannot restart a container, even if the mode of the socket
// lets him connect. The client is this program, started again as another user.
func TestOperate_ForeignUser(t *testing.T) {
	if socket := os.Getenv(socketVariable); socket != "" {
		postAsForeigner(t, socket)
		return
	}
	if uid := os.Geteuid(); uid != 0 {
		t.Skipf("needs root: the user id is %d; run the tests as root", uid)
	}
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // the other user must reach the socket
			t.Fatal(err)
		}
	}
	n := newNode(t)
	n.set(newRunningPod("web", true))
	socket := n.serveOn(t, "unix://"+filepath.Join(dir, "herald.sock")).String()
	if err := os.Chmod(socket, 0o666); err != nil { //nolint:gosec // the other user must be able to connect
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestOperate_ForeignUser$", "-test.v")
	child.Dir = dir
	child.Env = append(os.Environ(), socketVariable+"="+socket)
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if output, err := child.CombinedOutput(); err != nil || !strings.Contains(string(output), "refused user 65534") {
		t.Errorf("got %v:\n%s", err, output)
	}
	if n.mu.Lock(); len(n.restarts) != 0 {
		t.Errorf("got restarts %q, want none", n.restarts)
	}
	n.mu.Unlock()
}

// postAsForeigner runs in the child process.
func postAsForeigner(t *testing.T, socket string) {
	t.Helper()
	client := newClient(socket)
	defer client.CloseIdleConnections()
	for path, body := range map[string]string{
		"restart": `{"namespace":"default","pod":"web"}`, "probe": `{"namespace":"default","pod":"web"}`,
	} {
		code, text := poster{client, "localhost", "secret"}.post(t, path, body)
		if code != http.StatusForbidden || !strings.Contains(text, "user 65534 may not do this") {
			t.Errorf("%s: got %d %s, want 403", path, code, text)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/exec/default/web/main?command=id", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request) // a web socket would begin like this
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("exec: got %s, want 403", response.Status)
	}
	t.Logf("refused user %d", os.Geteuid())
}

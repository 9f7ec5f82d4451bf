package cli_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/checkpoint"
)

func listenUnix(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// Without a container runtime, run names the remedies and creates no files.
func TestRun_NoRuntime(t *testing.T) {
	otherSocket := filepath.Join(t.TempDir(), "s")
	listener := listenUnix(t, otherSocket)
	go func() { // a server that is not a container runtime
		for connection, err := listener.Accept(); err == nil; connection, err = listener.Accept() {
			_ = connection.Close()
		}
	}()
	for name, endpoint := range map[string]string{"no socket": "unix:///nowhere/containerd.sock", "other server": "unix://" + otherSocket} {
		t.Run(name, func(t *testing.T) {
			dataDir := filepath.Join(t.TempDir(), "data")
			got := runHerald("run", "--manifests", t.TempDir(), "--data-dir", dataDir, "--runtime-endpoint", endpoint)
			for _, part := range []string{endpoint, "apt-get install containerd", "--runtime=process"} {
				if got.status != 1 || !strings.Contains(got.stderr, part) {
					t.Errorf("got exit status %d, error %q, want 1, %q", got.status, got.stderr, part)
				}
			}
			if _, err := os.Stat(dataDir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v for the data directory, want none", err)
			}
		})
	}
}

func TestRun_SignalDuringRuntimeCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener := listenUnix(t, path)
	go func() { // a runtime that never responds
		if _, err := listener.Accept(); err == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}
	}()
	got := runHerald("run", "--manifests", t.TempDir(), "--data-dir", filepath.Join(t.TempDir(), "data"), "--runtime-endpoint", "unix://"+path)
	if got.status != 0 || got.stderr != "" {
		t.Errorf("got exit status %d, error %q, want 0 and none", got.status, got.stderr)
	}
}

func TestF30_SecondAgentOnDataDir(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data")
	store, err := checkpoint.Open(filepath.Join(dataDir, "state"), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	got := runHerald("run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", dataDir)
	if got.status != 1 || !strings.Contains(got.stderr, "--data-dir") {
		t.Errorf("got exit status %d, error %q, want 1, --data-dir", got.status, got.stderr)
	}
}

func TestRun_ListenAddressInUse(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got := runHerald("run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", filepath.Join(t.TempDir(), "data"),
		"--listen", listener.Addr().String())
	if got.status != 1 || !strings.Contains(got.stderr, "--listen") {
		t.Errorf("got exit status %d, error %q, want 1, --listen", got.status, got.stderr)
	}
}

// The agent reports READY=1 when it answers requests, and STOPPING=1 on a signal.
func TestRun_NotifiesSystemd(t *testing.T) {
	dir := shortTempDir(t)
	socket := filepath.Join(dir, "notify.sock")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	if err := systemd.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	receive := func() string {
		message := make([]byte, 100)
		n, err := systemd.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	ended := make(chan result, 1)
	dataDir := filepath.Join(dir, "data")
	go func() {
		ended <- runHerald("run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", dataDir, "--node-ip", "127.0.0.1")
	}()
	if got := receive(); got != "READY=1" {
		t.Errorf("got first message %q, want READY=1", got)
	}
	if got := runHerald("get", "pods", "--server", "unix://"+filepath.Join(dataDir, "herald.sock")); got.status != 0 {
		t.Errorf("get pods after READY=1: got exit status %d, error %q, want 0", got.status, got.stderr)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := receive(); got != "STOPPING=1" {
		t.Errorf("got last message %q, want STOPPING=1", got)
	}
	if got := <-ended; got.status != 0 {
		t.Errorf("got exit status %d, error %q, want 0", got.status, got.stderr)
	}
}

// heraldProcess returns the command as a separate process, which is killed after a minute.
func heraldProcess(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, "/proc/self/exe", args...)
	command.Env = append(os.Environ(), actAsHerald+"=1")
	return command
}

// readUntil reads lines up to one that contains the text.
func readUntil(t *testing.T, reader io.Reader, text string) {
	t.Helper()
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("output ended without %q", text)
}

func TestCheck_SignalWhileReadingInput(t *testing.T) {
	command := heraldProcess(t, "check", writeFile(t, "pod.yaml", validPod), "-")
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := command.StdinPipe(); err != nil { // stays open and empty
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, stdout, "is valid")
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // the state is checked below
	if status := command.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("got %v, want the end by SIGTERM", command.ProcessState)
	}
}

// The agent survives a closed log: it writes another message on SIGTERM and exits with status 0.
func TestRun_LogReaderGone(t *testing.T) {
	command := heraldProcess(t, "run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", filepath.Join(shortTempDir(t), "data"))
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, log, "Starting node agent")
	_ = log.Close()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}

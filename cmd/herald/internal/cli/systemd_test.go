package cli_test

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestSystemdIsToldWhenTheAgentRunsAndWhenItStops(t *testing.T) {
	folder := shortFolder(t)
	socket := filepath.Join(folder, "notify.sock")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	if err := systemd.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	heard := func() string {
		message := make([]byte, 100)
		n, err := systemd.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	ended := make(chan result, 1)
	data := filepath.Join(folder, "data")
	go func() {
		ended <- herald("run", "--runtime=process", "--manifests", t.TempDir(), "--data-dir", data, "--node-ip", "127.0.0.1")
	}()
	if said := heard(); said != "READY=1" {
		t.Errorf("at first %q is said", said)
	}
	if got := herald("get", "pods", "--server", "unix://"+filepath.Join(data, "herald.sock")); got.status != 0 {
		t.Errorf("it is ready and does not answer: %s", got.err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if said := heard(); said != "STOPPING=1" {
		t.Errorf("in the end %q is said", said)
	}
	if got := <-ended; got.status != 0 {
		t.Errorf("exit status %d: %s", got.status, got.err)
	}
}

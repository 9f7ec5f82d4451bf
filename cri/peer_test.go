package cri_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

// listenAs has a socket listened on by that user: the kernel notes who listens, not who made the socket.
func listenAs(t *testing.T, user int) (listener net.Listener, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cri.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	listening := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		const same = ^uintptr(0)
		if _, _, failed := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(user), same); failed != 0 { // this thread alone
			listening <- failed
			return
		}
		listening <- unix.Listen(fd, 8)
	}()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if listener, err = net.FileListener(file); err != nil {
		t.Fatal(err)
	}
	return listener, path
}

func TestOnlyARuntimeOfRootOrOfTheAgentsUserIsBelieved(t *testing.T) {
	users := map[int]bool{os.Geteuid(): true}
	if os.Geteuid() == 0 {
		users[1234] = false // only root can listen as somebody else
	}
	for user, believed := range users {
		listener, path := listenAs(t, user)
		server := grpc.NewServer()
		fake := newFake()
		runtimeapi.RegisterRuntimeServiceServer(server, fake)
		go func() { _ = server.Serve(listener) }()
		asked, err := cri.New(cri.Config{
			Endpoint: "unix://" + path, Provisioner: provision{t.TempDir()}, Root: t.TempDir(),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = asked.Version(t.Context())
		switch {
		case believed && err != nil:
			t.Errorf("user %d: %v", user, err)
		case !believed && (err == nil || !strings.Contains(err.Error(), "is user 1234")):
			t.Errorf("user %d: it ended with %v", user, err)
		}
		if err := asked.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
	}
}

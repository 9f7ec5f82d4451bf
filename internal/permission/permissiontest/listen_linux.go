// Package permissiontest has what tests of permission checks share.
package permissiontest

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// ListenAs listens on a socket as the user: the kernel records the listener, not the creator of the socket. Only root can listen
// as another user.
func ListenAs(t *testing.T, user int) (listener net.Listener, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "test.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	listening := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		const unchanged = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(user), unchanged); errno != 0 { // this thread only
			listening <- errno
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

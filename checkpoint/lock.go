package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// holderFile names the process that holds the lock, for the message to the one that does not get it.
const holderFile = ".holder"

// lock takes the folder for this process until the returned file is closed, which the kernel does for a process that dies.
// The lock is on the folder itself, so that a read-only or full disk can be locked too.
func lock(root *os.Root) (*os.File, error) {
	handle, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for limit := time.Now().Add(inheritance); errors.Is(err, syscall.EWOULDBLOCK) && time.Now().Before(limit); {
		if !isGone(holder(root)) {
			break
		}
		time.Sleep(inheritance / 100)
		err = syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(&LockedError{Path: root.Name(), PID: holder(root)}, handle.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the folder: %w", err), handle.Close())
	}
	// Only a message to others is lost when this fails; the disk may be full or read-only.
	_ = root.WriteFile(holderFile, fmt.Appendln(nil, os.Getpid()), 0o600)
	return handle, nil
}

// inheritance is how long a child of a holder that was killed may have the lock: from its birth until it becomes another
// program.
const inheritance = time.Second

// isGone reports whether there is no process of that ID, nor ever was.
func isGone(pid int) bool { return pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// holder reads the holder's process id, or 0.
func holder(root *os.Root) int {
	written, err := root.Open(holderFile)
	if err != nil {
		return 0
	}
	defer written.Close()
	text, err := io.ReadAll(io.LimitReader(written, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

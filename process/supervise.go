package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// command is one program to run, with nothing left to look up.
type command struct {
	Arguments   []string
	Environment []string
	Folder      string
	NoNewPrivs  bool
}

// adoptOrphans makes this process the parent of every descendant whose own parent ends, so that none gets away.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// start runs the command as the leader of a new session with the given standard files.
func (c command) start(files [3]*os.File) (pid int, err error) {
	file, err := c.lookUp()
	if err != nil {
		return 0, err
	}
	attributes := &syscall.ProcAttr{
		Dir: c.Folder, Env: c.Environment, Sys: &syscall.SysProcAttr{Setsid: true},
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
	}
	// What prctl sets belongs to the thread, and a child has it from the thread that forked.
	runtime.LockOSThread()
	if c.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return 0, fmt.Errorf("set no_new_privs: %w", err)
		}
	} else {
		defer runtime.UnlockOSThread()
	}
	pid, err = syscall.ForkExec(file, c.Arguments, attributes)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", file, err)
	}
	return pid, nil
}

// lookUp finds the program as a shell in the command's folder and with its PATH would.
func (c command) lookUp() (string, error) {
	if info, err := os.Stat(c.Folder); err != nil || !info.IsDir() {
		return "", fmt.Errorf("working directory %s: %w", c.Folder, errors.Join(err, notAFolder(err)))
	}
	name := c.Arguments[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, folder := range filepath.SplitList(variable(c.Environment, "PATH")) {
		if !filepath.IsAbs(folder) {
			continue
		}
		file := filepath.Join(folder, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("start %q: %w", name, exec.ErrNotFound)
}

func notAFolder(err error) error {
	if err == nil {
		return syscall.ENOTDIR
	}
	return nil
}

// errCancelled says that the command was not waited for to its end.
var errCancelled = errors.New("cancelled")

// await waits for children until that one has ended, or until cancelled is closed. Waiting and killing are done by one
// goroutine, so that no PID is another process's between the two.
func await(pid int, cancelled <-chan struct{}) (syscall.WaitStatus, error) {
	ends := make(chan os.Signal, 1) // "look again"
	signal.Notify(ends, syscall.SIGCHLD)
	defer signal.Stop(ends)
	for {
		status, found, err := reap(pid)
		if found || err != nil {
			return status, err
		}
		select {
		case <-ends:
		case <-cancelled:
			return 0, errCancelled
		}
	}
}

// reap waits for those children that have ended, up to and with that one.
func reap(pid int) (status syscall.WaitStatus, found bool, err error) {
	for {
		ended, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, false, fmt.Errorf("wait for process %d: %w", pid, err)
		case ended == pid:
			return status, true, nil
		case ended == 0:
			return 0, false, nil
		}
	}
}

// Killed processes have so long to end before one looks again for those that they left: longer each time, because one
// that belongs to another user, by a set-user-ID program, is not ours to kill.
const (
	firstLookAgain   = time.Millisecond
	longestLookAgain = time.Second
)

// endAllChildren kills every child, and every descendant as it becomes a child, and returns when there is none.
func endAllChildren() error {
	for pause := firstLookAgain; ; pause = min(2*pause, longestLookAgain) {
		none, err := reapEnded()
		if none || err != nil {
			return err
		}
		killChildren()
		time.Sleep(pause)
	}
}

// reapEnded reports whether no child is left.
func reapEnded() (none bool, err error) {
	for {
		ended, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("wait for children: %w", err)
		case ended == 0:
			return false, nil
		}
	}
}

// killChildren kills direct children only: their PIDs cannot be anybody else's before this process waits for them.
// Orphans become children, so that repeating it reaches all, those too that could not be looked for this time.
func killChildren() {
	all, _ := processes()
	for _, s := range all {
		if s.parent == os.Getpid() && !s.ended() {
			_ = syscall.Kill(s.pid, syscall.SIGKILL)
		}
	}
}

// exitCode is the code as a shell and containerd tell it.
func exitCode(status syscall.WaitStatus) int32 {
	if status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(status.ExitStatus())
}

package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var errNotRunning = errors.New("containerd: not running")

// process is one run of the program containerd.
type process struct {
	*os.Process
	exited chan struct{} // closed when the process has exited and was waited for
}

// Stop asks containerd to exit and waits for it. Its state persists and its containers keep running.
func (c *Containerd) Stop(ctx context.Context) error {
	if err := c.Continue(); err != nil { // a frozen process does not handle SIGTERM
		return err
	}
	if err := c.signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.process.exited:
		c.process = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("containerd: wait for exit: %w", ctx.Err())
	}
}

// Kill kills containerd with SIGKILL. Its state persists and its containers keep running.
func (c *Containerd) Kill() error {
	if err := c.signal(unix.SIGKILL); err != nil {
		return err
	}
	<-c.process.exited
	c.process = nil
	return nil
}

// Freeze suspends containerd. When it returns, requests are neither accepted nor answered.
func (c *Containerd) Freeze() error {
	if err := c.signal(unix.SIGSTOP); err != nil {
		return err
	}
	// Threads stop one after the other; the kernel reports the last one.
	var err error = unix.EINTR
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_PID, c.process.Pid, nil, unix.WSTOPPED, nil)
	}
	if err != nil {
		return fmt.Errorf("containerd: wait until frozen: %w", err)
	}
	return nil
}

// Continue resumes a frozen containerd.
func (c *Containerd) Continue() error { return c.signal(unix.SIGCONT) }

// Restart stops containerd if it runs, starts it again on its state, and returns when it can run pods.
func (c *Containerd) Restart(ctx context.Context) error {
	if c.process != nil {
		if err := c.Stop(ctx); err != nil {
			return err
		}
	}
	return c.launch(ctx)
}

// KillShim kills the shim of one sandbox, found by its command line. containerd then sees that the containers have ended, but not
// how.
func (c *Containerd) KillShim(sandboxID string) error {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range commands {
		command, _ := os.ReadFile(file) // the process may have exited
		if !isShim(string(command), sandboxID, c.dir) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		return unix.Kill(pid, unix.SIGKILL)
	}
	return fmt.Errorf("containerd: no shim of sandbox %s", sandboxID)
}

func isShim(command, sandboxID, dir string) bool {
	return strings.Contains(command, "shim") && strings.Contains(command, sandboxID) && strings.Contains(command, dir)
}

// signal treats a crashed containerd like a running one, so that Kill and Restart work after a crash.
func (c *Containerd) signal(signal unix.Signal) error {
	if c.process == nil {
		return errNotRunning
	}
	if err := c.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("containerd: send %v: %w", signal, err)
	}
	return nil
}

func (c *Containerd) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	program, err := c.release.program("containerd")
	if err != nil {
		return err
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), program, "--config", filepath.Join(c.dir, configFile))
	command.Env = c.release.env()
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not reach it; Close stops it
	if err := command.Start(); err != nil {
		return err
	}
	launched := &process{Process: command.Process, exited: make(chan struct{})}
	go func() {
		defer close(launched.exited)
		_ = command.Wait() // the log has the reason
	}()
	c.process = launched
	if err := c.awaitReady(ctx); err != nil {
		return fmt.Errorf("wait until ready: %w; end of the log:\n%s", err, c.logTail())
	}
	return nil
}

func (c *Containerd) logFile() string { return filepath.Join(c.dir, "containerd.log") }

// logTail returns the end of containerd's log.
func (c *Containerd) logTail() string {
	const size = 8 << 10
	content, err := os.ReadFile(c.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-size):])
}

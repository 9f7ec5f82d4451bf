package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var errNotRunning = errors.New("containerd: it is not running")

// process is one life of the program containerd.
type process struct {
	*os.Process
	done chan struct{} // closed when it has ended and is waited for
}

// Stop asks containerd to end and waits for it. Its state stays and its containers run on.
func (c *Containerd) Stop(ctx context.Context) error {
	if err := c.Continue(); err != nil { // frozen, it would not see the next signal
		return err
	}
	if err := c.signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.process.done:
		c.process = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("containerd: waiting for its end: %w", ctx.Err())
	}
}

// Kill ends containerd at once, as kill -9 does. Its state stays and its containers run on.
func (c *Containerd) Kill() error {
	if err := c.signal(unix.SIGKILL); err != nil {
		return err
	}
	<-c.process.done
	c.process = nil
	return nil
}

// Freeze makes containerd stand still: from its return on, requests are accepted by nobody and answered by nobody.
func (c *Containerd) Freeze() error {
	if err := c.signal(unix.SIGSTOP); err != nil {
		return err
	}
	// Its threads stop one after the other; the kernel reports the last one.
	var err error = unix.EINTR
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_PID, c.process.Pid, nil, unix.WSTOPPED, nil)
	}
	if err != nil {
		return fmt.Errorf("containerd: waiting until it stands still: %w", err)
	}
	return nil
}

// Continue ends a Freeze.
func (c *Containerd) Continue() error { return c.signal(unix.SIGCONT) }

// Restart starts containerd again on the state it had, stopping it first where it runs, and returns when it can run
// pods.
func (c *Containerd) Restart(ctx context.Context) error {
	if c.process != nil {
		if err := c.Stop(ctx); err != nil {
			return err
		}
	}
	return c.launch(ctx)
}

// signal takes a containerd that has crashed for a running one, so that Kill and Restart work as if it had not.
func (c *Containerd) signal(signal unix.Signal) error {
	if c.process == nil {
		return errNotRunning
	}
	if err := c.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("containerd: sending it %v: %w", signal, err)
	}
	return nil
}

func (c *Containerd) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	config := filepath.Join(c.folder, configFile)
	command := exec.CommandContext(context.WithoutCancel(ctx), "containerd", "--config", config)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for who stops it in good order
	if err := command.Start(); err != nil {
		return err
	}
	launched := &process{Process: command.Process, done: make(chan struct{})}
	go func() {
		defer close(launched.done)
		_ = command.Wait() // how it ended is in its log
	}()
	c.process = launched
	if err := c.awaitReady(ctx); err != nil {
		return fmt.Errorf("waiting until it can run pods: %w; the end of its log:\n%s", err, c.logTail())
	}
	return nil
}

func (c *Containerd) logFile() string { return filepath.Join(c.folder, "containerd.log") }

// logTail returns the last lines that containerd has logged.
func (c *Containerd) logTail() string {
	const size = 8 << 10
	content, err := os.ReadFile(c.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-size):])
}

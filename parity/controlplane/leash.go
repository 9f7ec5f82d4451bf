package controlplane

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// mark is the entry in their environment by which the leash knows the servers of the control plane in dir.
func mark(dir string) string { return "HERALD_CONTROL_PLANE=" + dir }

// leash is the process that cleans up after this one (see the package's comment).
type leash struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

// tether starts the leash in a session of its own, so that a terminal's Ctrl-C does not reach it. It holds none of this
// process's files: `go test` would wait for it otherwise.
func tether(ctx context.Context, binary, dir string) (*leash, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, mark(dir), dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make the leash's pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the leash: %w", err)
	}
	return &leash{cmd: cmd, pipe: pipe}, nil
}

// release has everything killed and removed, and returns when it is done.
func (l *leash) release() error {
	_ = l.pipe.Close()
	if err := l.cmd.Wait(); err != nil {
		return fmt.Errorf("clean up with %v: %w", l.cmd.Args, err)
	}
	return nil
}

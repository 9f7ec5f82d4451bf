package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout is how long a server may take to become ready; about 3 s is usual.
	startTimeout = 5 * time.Minute
	// stopTimeout is how long a server may take to end after SIGTERM.
	stopTimeout = 30 * time.Second
	// attemptTimeout bounds one question after a server's readiness, pollInterval is the time between two.
	attemptTimeout = 5 * time.Second
	pollInterval   = 50 * time.Millisecond
)

// Server is one of the control plane's processes. It keeps its data and its port over all that is done to it.
//
// Its methods may be called by any goroutine; two that start or end it at the same time have no defined order.
type Server struct {
	name   string
	binary string
	args   []string
	env    []string
	log    string
	ready  func(context.Context) error // asks once

	mu      sync.Mutex // guards process
	process *process   // nil before the first start
}

// process is one life of a server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended and was waited for
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Start starts the server, for the first time or again, and returns when it is ready. It waits for at most five minutes; the
// error has the end of the server's log.
func (s *Server) Start(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.WaitReady(ctx)
}

// launch runs the process in a group of its own, so that a terminal's Ctrl-C does not reach it, and with an environment of
// its own: etcd reads its flags from there too.
func (s *Server) launch(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process.running() {
		return fmt.Errorf("start %s: it is running", s.name)
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	defer log.Close() // the process has its own
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.binary, s.args...)
	cmd.Env = s.env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // its end is the news; why it ended is in its log
	}()
	s.process = p
	return nil
}

// WaitReady returns when the server answers that it is ready. It waits for at most five minutes; the error has what the server
// said last and the end of its log.
func (s *Server) WaitReady(ctx context.Context) error {
	p, err := s.current()
	if err != nil {
		return fmt.Errorf("wait for %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended by itself (%v); the end of %s:\n%s", s.name, p.cmd.ProcessState, s.log, s.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w; the end of %s:\n%s",
				s.name, context.Cause(ctx), err, s.log, s.LogTail())
		case <-time.After(pollInterval):
		}
	}
}

func (s *Server) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return s.ready(ctx)
}

// Stop ends the server in good order, with SIGTERM, and returns when it has ended: etcd waits about 7 s for an API server
// that is still connected. One that takes longer than 30 s is killed, which is an error.
func (s *Server) Stop() error {
	p, err := s.signal(syscall.SIGTERM)
	if err != nil {
		return err
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a frozen process would not see SIGTERM
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %v of SIGTERM", s.name, stopTimeout), s.Kill())
	}
}

// Kill ends the server as a crash does, with SIGKILL, and returns when it has ended.
func (s *Server) Kill() error {
	p, err := s.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.exited
	return nil
}

// Freeze stops the server where it stands: connections stay open and get no answer.
func (s *Server) Freeze() error {
	_, err := s.signal(syscall.SIGSTOP)
	return err
}

// Continue ends a Freeze.
func (s *Server) Continue() error {
	_, err := s.signal(syscall.SIGCONT)
	return err
}

// Restart is Stop and Start.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.Start(ctx)
}

// PID is the number of the server's process, the last one if it has ended.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

// LogTail is the end of the server's log.
func (s *Server) LogTail() string { return tail(s.log) }

func (s *Server) signal(signal syscall.Signal) (*process, error) {
	p, err := s.current()
	if err != nil {
		return nil, fmt.Errorf("send %v to %w", signal, err)
	}
	if err := p.cmd.Process.Signal(signal); err != nil {
		return nil, fmt.Errorf("send %v to %s: %w", signal, s.name, err)
	}
	return p, nil
}

// current is the running process.
func (s *Server) current() (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.running() {
		return nil, fmt.Errorf("%s: it is not running", s.name)
	}
	return s.process, nil
}

// end returns when no process is left, even if the leash has failed.
func (s *Server) end() {
	if p, err := s.current(); err == nil {
		_ = p.cmd.Process.Kill() // it may have ended meanwhile
		<-p.exited
	}
}

package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout bounds the time until a server is ready; about 3 s is usual.
	startTimeout = 5 * time.Minute
	// stopTimeout is how long a server may take to exit after SIGTERM.
	stopTimeout = 30 * time.Second
	// probeTimeout bounds one readiness check, probeInterval is the pause between two.
	probeTimeout  = 5 * time.Second
	probeInterval = 50 * time.Millisecond

	// LogTail returns at most this much.
	tailBytes = 16 << 10
	tailLines = 30
)

// ServerConfig configures a program that runs beside the control plane, such as a node agent.
type ServerConfig struct {
	// Name appears in errors and names the log file in Dir. It must be unique.
	Name string
	// Command is the path of the program, followed by its arguments.
	Command []string
	// Env is the whole environment of the program.
	Env []string
	// Ready returns nil if the program is ready.
	Ready func(context.Context) error
}

// Server is a process of the control plane. It keeps its data and its port across restarts.
//
// All methods are safe for concurrent use. Concurrent calls that start or stop the process have no defined order.
type Server struct {
	name   string
	binary string
	args   []string
	env    []string
	log    string
	ready  func(context.Context) error

	mu      sync.Mutex // guards process
	process *process   // nil before the first start
}

// NewServer returns a server that is not started yet. It stops with the control plane at the latest.
func (cp *ControlPlane) NewServer(config ServerConfig) *Server {
	return &Server{
		name: config.Name, binary: config.Command[0], args: config.Command[1:],
		env: append([]string{environmentMark(cp.dir)}, config.Env...), log: cp.path(config.Name + ".log"), ready: config.Ready,
	}
}

// process is one run of a server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has exited and was waited for
}

func (p *process) isRunning() bool {
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

// Start starts the server and returns when it is ready. It waits at most five minutes; the error contains the end of the
// server's log.
func (s *Server) Start(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.WaitReady(ctx)
}

// launch runs the process in its own process group, so that a terminal's Ctrl-C does not reach it. The environment is not
// inherited, because etcd also reads its flags from there.
func (s *Server) launch(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process.isRunning() {
		return fmt.Errorf("start %s: already running", s.name)
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	defer log.Close() // the process has its own descriptor
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
		_ = cmd.Wait() // the log has the reason
	}()
	s.process = p
	return nil
}

// WaitReady returns when the server is ready. It waits at most five minutes; the error contains the server's last response and
// the end of its log.
func (s *Server) WaitReady(ctx context.Context) error {
	p, err := s.current()
	if err != nil {
		return fmt.Errorf("wait for %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s exited (%v); end of %s:\n%s", s.name, p.cmd.ProcessState, s.log, s.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w; end of %s:\n%s",
				s.name, context.Cause(ctx), err, s.log, s.LogTail())
		case <-time.After(probeInterval):
		}
	}
}

func (s *Server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.ready(ctx)
}

// Stop sends SIGTERM and returns when the server has exited. etcd waits about 7 s for a connected API server. A server that
// takes longer than 30 s is killed, which is an error.
func (s *Server) Stop() error {
	p, err := s.signal(syscall.SIGTERM)
	if err != nil {
		return err
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a frozen process does not handle SIGTERM
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s did not exit within %v of SIGTERM", s.name, stopTimeout), s.Kill())
	}
}

// Kill simulates a crash: it sends SIGKILL and returns when the server has exited.
func (s *Server) Kill() error {
	p, err := s.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.exited
	return nil
}

// Freeze suspends the server: connections stay open without responses.
func (s *Server) Freeze() error {
	_, err := s.signal(syscall.SIGSTOP)
	return err
}

// Continue resumes a frozen server.
func (s *Server) Continue() error {
	_, err := s.signal(syscall.SIGCONT)
	return err
}

// Restart calls Stop and Start.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.Start(ctx)
}

// PID returns the ID of the server's process, or of its last one. It is 0 before the first start.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

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

// current returns the running process.
func (s *Server) current() (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.isRunning() {
		return nil, fmt.Errorf("%s: not running", s.name)
	}
	return s.process, nil
}

// ensureStopped returns when no process is left, even if the supervisor has failed.
func (s *Server) ensureStopped() {
	if p, err := s.current(); err == nil {
		_ = p.cmd.Process.Kill() // it may have exited
		<-p.exited
	}
}

// LogTail returns the last lines of the server's log, or the error if it cannot be read.
func (s *Server) LogTail() string {
	file, err := os.Open(s.log)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, tailBytes))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if surplus := len(lines) - tailLines; surplus > 0 {
		lines = append([]string{fmt.Sprintf("(last %d lines)", tailLines)}, lines[surplus:]...)
	}
	return strings.Join(lines, "\n")
}

// readyz returns a readiness check that asks the server's /readyz. Each check opens a new connection, because an old one may
// belong to a killed process.
func readyz(url string, config *tls.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		body, _ := io.ReadAll(resp.Body) // a part is better than nothing
		return fmt.Errorf("%s/readyz: %s: %s", url, resp.Status, body)
	}
}

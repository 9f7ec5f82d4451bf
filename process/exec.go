package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxExecOutput limits the captured stdout and stderr of a command, each. The rest is read and dropped: the output is held in
// the agent's memory, and probes use 10 KiB of it.
const maxExecOutput = 1 << 20

// execShimGracePeriod is how long an exec shim may take to kill the command before it is killed itself.
const execShimGracePeriod = 10 * time.Second

var errContainerExited = errors.New("the container exited")

// ExecSync runs a command with the container's environment and working directory. When the timeout expires, the caller
// goes away or the container exits, the command is killed with all its descendants (BUG-37).
func (s *Server) ExecSync(ctx context.Context, request *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if len(request.GetCmd()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "cmd is empty")
	}
	if !s.isRunning(c) {
		return nil, status.Errorf(codes.FailedPrecondition, "exec in container %q: container is not running", c.record.ID)
	}
	if timeout := seconds(request.GetTimeout()); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("timeout %v exceeded: %w", timeout, context.DeadlineExceeded))
		defer cancel()
	}
	ctx, stop := s.withContainerExit(ctx, c)
	defer stop()
	response, err := s.runExecShim(ctx, c, execRequest{ID: newID(), Args: request.GetCmd()})
	switch {
	case ctx.Err() != nil:
		return nil, execCancelledError(c.record.ID, context.Cause(ctx))
	case err != nil:
		return nil, status.Errorf(codes.Unknown, "exec in container %q: %v", c.record.ID, err)
	}
	return response, nil
}

// execCancelledError has containerd's wording, which clients match.
func execCancelledError(id string, cause error) error {
	code := status.FromContextError(cause).Code()
	if errors.Is(cause, errContainerExited) {
		code = codes.FailedPrecondition
	}
	return status.Errorf(code, "exec in container %q: %v; the command and its descendants were killed", id, cause)
}

// withContainerExit returns a context that is cancelled when the container exits. stop releases its resources.
func (s *Server) withContainerExit(parent context.Context, c *container) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if s.waitUntil(ctx, c, c.hasExitedLocked) == nil {
			cancel(errContainerExited)
		}
	})
	return ctx, func() {
		cancel(nil)
		waiting.Wait()
	}
}

// runExecShim starts an exec shim and returns when it has exited.
func (s *Server) runExecShim(ctx context.Context, c *container, request execRequest) (*runtimeapi.ExecSyncResponse, error) {
	pipes, err := newExecPipes()
	if err != nil {
		return nil, err
	}
	defer pipes.close()
	pid, err := s.spawn(execRole, s.containerDir(c.record.ID), pipes.shimEnds())
	if err != nil {
		return nil, err
	}
	ended := s.trackExec(c, pid)
	pipes.closeShimEnds()
	var copies sync.WaitGroup
	var stdout, stderr bytes.Buffer
	copies.Go(func() { copyLimited(&stdout, pipes.stdout.server) })
	copies.Go(func() { copyLimited(&stderr, pipes.stderr.server) })

	stop := context.AfterFunc(ctx, pipes.cancel)
	result, err := pipes.roundTrip(request)
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // not reaped yet, so the PID is its own
	}
	var used syscall.Rusage
	_, _ = syscall.Wait4(pid, nil, 0, &used)
	ended(used)
	stop()
	if err != nil {
		s.killWithTimeout(drainTimeout, execIDEnv+"="+request.ID, nil)
	}
	pipes.setOutputDeadline(time.Now().Add(drainTimeout))
	copies.Wait()
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: result.Code}, err
}

func copyLimited(buffer *bytes.Buffer, from io.Reader) {
	_, _ = io.Copy(buffer, io.LimitReader(from, maxExecOutput)) // an expired deadline ends the output
	_, _ = io.Copy(io.Discard, from)
}

// pipe connects the server and an exec shim.
type pipe struct{ server, shim *os.File }

// execPipes are the pipes of an exec shim.
type execPipes struct{ request, result, stdout, stderr pipe }

func newExecPipes() (*execPipes, error) {
	p := &execPipes{}
	var errs [4]error
	p.request.shim, p.request.server, errs[0] = os.Pipe()
	p.result.server, p.result.shim, errs[1] = os.Pipe()
	p.stdout.server, p.stdout.shim, errs[2] = os.Pipe()
	p.stderr.server, p.stderr.shim, errs[3] = os.Pipe()
	if err := errors.Join(errs[:]...); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// shimEnds returns the shim's descriptors from standard output on.
func (p *execPipes) shimEnds() []*os.File {
	return []*os.File{p.stdout.shim, p.stderr.shim, p.request.shim, p.result.shim}
}

func (p *execPipes) closeShimEnds() {
	for _, file := range p.shimEnds() {
		_ = file.Close()
	}
}

func (p *execPipes) close() {
	p.closeShimEnds()
	for _, file := range []*os.File{p.stdout.server, p.stderr.server, p.request.server, p.result.server} {
		_ = file.Close()
	}
}

// cancel makes the shim kill the command.
func (p *execPipes) cancel() {
	_ = p.result.server.SetReadDeadline(time.Now().Add(execShimGracePeriod))
	_ = p.request.server.Close()
}

func (p *execPipes) setOutputDeadline(deadline time.Time) {
	_ = p.stdout.server.SetReadDeadline(deadline)
	_ = p.stderr.server.SetReadDeadline(deadline)
}

// roundTrip sends the request and waits for the result. A cancelled shim sends a result too.
func (p *execPipes) roundTrip(request execRequest) (execResult, error) {
	var result execResult
	if err := json.NewEncoder(p.request.server).Encode(request); err != nil {
		return result, fmt.Errorf("send request to exec shim: %w", err)
	}
	if err := json.NewDecoder(p.result.server).Decode(&result); err != nil {
		return result, fmt.Errorf("exec shim exited without a result: %w", err)
	}
	return result, nil
}

// execRequest is read by an exec shim from its first extra descriptor. The end of that file cancels the command.
type execRequest struct {
	ID   string   `json:"id"`
	Args []string `json:"arguments"`
}

// execResult is written by an exec shim to its second extra descriptor.
type execResult struct {
	Code  int32  `json:"code"`
	Error string `json:"error,omitempty"` // why the command could not be run
}

// runExecShim runs one command of ExecSync. The command and all its descendants end when the command exits, when the
// server cancels it, or when the server is gone. The standard streams of the shim are the command's.
func runExecShim(dir string) error {
	catchSignals()
	syscall.CloseOnExec(firstExtraFD)
	syscall.CloseOnExec(firstExtraFD + 1)
	requests, results := os.NewFile(firstExtraFD, "requests"), os.NewFile(firstExtraFD+1, "results")
	var request execRequest
	decoder := json.NewDecoder(requests)
	if err := decoder.Decode(&request); err != nil {
		return fmt.Errorf("read exec request for %s: %w", dir, err)
	}
	cancelled := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, requests)
		close(cancelled)
	}()
	result := execResult{}
	waitStatus, err := runExec(dir, request, cancelled)
	if err != nil {
		result.Error = err.Error()
	} else {
		result.Code = exitCode(waitStatus)
	}
	return json.NewEncoder(results).Encode(result)
}

func runExec(dir string, request execRequest, cancelled <-chan struct{}) (syscall.WaitStatus, error) {
	command, err := loadCommand(dir)
	if err != nil {
		return 0, err
	}
	command.args = request.Args
	command.env = setEnv(command.env, execIDEnv+"="+request.ID)
	if err := becomeSubreaper(); err != nil {
		return 0, err
	}
	if started, err := readRecord[startedRecord](filepath.Join(dir, startedFile)); err == nil {
		joinCgroups(started.Main.PID)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	pid, err := command.start([3]*os.File{null, os.Stdout, os.Stderr})
	if err != nil {
		return 0, err
	}
	waitStatus, err := waitChild(pid, cancelled)
	return waitStatus, errors.Join(err, killChildren())
}

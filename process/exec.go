package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// largestOutput is what is kept of a command's standard output, and of its error: both fit into the largest message that
// clients take. The rest is read and dropped.
const largestOutput = largestMessage/2 - 4096

var errContainerEnded = errors.New("the container ended")

// ExecSync runs a command in the container's environment and folder. When the time is over, the caller gone or the
// container ended, the command is killed with all that it started (BUG-37).
func (s *Server) ExecSync(ctx context.Context, request *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if len(request.GetCmd()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "cmd is empty")
	}
	if s.isDown(c) {
		return nil, status.Errorf(codes.FailedPrecondition, "exec in container %q: it is not running", c.record.ID)
	}
	if limit := seconds(request.GetTimeout()); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("timeout %v exceeded: %w", limit, context.DeadlineExceeded))
		defer cancel()
	}
	ctx, release := s.untilEnded(ctx, c)
	defer release()
	response, err := s.execute(ctx, s.containerFolder(c.record.ID), execRequest{ID: newID(), Arguments: request.GetCmd()})
	switch {
	case ctx.Err() != nil:
		return nil, execCancelled(c.record.ID, context.Cause(ctx))
	case err != nil:
		return nil, status.Errorf(codes.Unknown, "exec in container %q: %v", c.record.ID, err)
	}
	return response, nil
}

// execCancelled is worded as containerd's answer, which clients look for.
func execCancelled(id string, cause error) error {
	code := status.FromContextError(cause).Code()
	if errors.Is(cause, errContainerEnded) {
		code = codes.FailedPrecondition
	}
	return status.Errorf(code, "exec in container %q: %v; the command and all that it started was killed", id, cause)
}

// untilEnded is a context that ends when the container does. release returns when nothing of it is left.
func (s *Server) untilEnded(parent context.Context, c *container) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if s.waitFor(ctx, c, func() bool { return c.exit != nil }) == nil {
			cancel(errContainerEnded)
		}
	})
	return ctx, func() {
		cancel(nil)
		waiting.Wait()
	}
}

// runnerGrace is how long a runner may take to kill everything before it is killed itself.
const runnerGrace = 10 * time.Second

// execute starts a runner and returns when that has ended.
func (s *Server) execute(ctx context.Context, folder string, request execRequest) (*runtimeapi.ExecSyncResponse, error) {
	pipes, err := newExecPipes()
	if err != nil {
		return nil, err
	}
	defer pipes.close()
	pid, err := s.spawn(runnerWord, folder, pipes.theirs())
	if err != nil {
		return nil, err
	}
	pipes.closeTheirs()
	var copies sync.WaitGroup
	var stdout, stderr bytes.Buffer
	copies.Go(func() { keepStart(&stdout, pipes.stdout.ours) })
	copies.Go(func() { keepStart(&stderr, pipes.stderr.ours) })

	stop := context.AfterFunc(ctx, pipes.cancel)
	outcome, err := pipes.converse(request)
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // a child that was not waited for: the PID is its own
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	stop()
	if err != nil {
		s.killWithin(drainTime, execVariable+"="+request.ID, nil)
	}
	pipes.drainBy(time.Now().Add(drainTime))
	copies.Wait()
	if err == nil && outcome.Error != "" {
		err = errors.New(outcome.Error)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: outcome.Code}, err
}

func keepStart(kept *bytes.Buffer, from io.Reader) {
	_, _ = io.Copy(kept, io.LimitReader(from, largestOutput)) // an end by deadline is an end
	_, _ = io.Copy(io.Discard, from)
}

// pipe is a pipe between the server and a runner.
type pipe struct{ ours, theirs *os.File }

// execPipes are a runner's files.
type execPipes struct{ request, outcome, stdout, stderr pipe }

func newExecPipes() (*execPipes, error) {
	p := &execPipes{}
	var errs [4]error
	p.request.theirs, p.request.ours, errs[0] = os.Pipe()
	p.outcome.ours, p.outcome.theirs, errs[1] = os.Pipe()
	p.stdout.ours, p.stdout.theirs, errs[2] = os.Pipe()
	p.stderr.ours, p.stderr.theirs, errs[3] = os.Pipe()
	if err := errors.Join(errs[:]...); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *execPipes) theirs() []*os.File {
	return []*os.File{p.stdout.theirs, p.stderr.theirs, p.request.theirs, p.outcome.theirs}
}

func (p *execPipes) closeTheirs() {
	for _, file := range p.theirs() {
		_ = file.Close()
	}
}

func (p *execPipes) close() {
	p.closeTheirs()
	for _, file := range []*os.File{p.stdout.ours, p.stderr.ours, p.request.ours, p.outcome.ours} {
		_ = file.Close()
	}
}

// cancel makes the runner kill everything.
func (p *execPipes) cancel() {
	_ = p.outcome.ours.SetReadDeadline(time.Now().Add(runnerGrace))
	_ = p.request.ours.Close()
}

func (p *execPipes) drainBy(limit time.Time) {
	_ = p.stdout.ours.SetReadDeadline(limit)
	_ = p.stderr.ours.SetReadDeadline(limit)
}

// converse sends the request and waits for the outcome. A runner that was cancelled has one too.
func (p *execPipes) converse(request execRequest) (execOutcome, error) {
	var outcome execOutcome
	if err := json.NewEncoder(p.request.ours).Encode(request); err != nil {
		return outcome, fmt.Errorf("ask the runner: %w", err)
	}
	if err := json.NewDecoder(p.outcome.ours).Decode(&outcome); err != nil {
		return outcome, fmt.Errorf("the runner ended without outcome: %w", err)
	}
	return outcome, nil
}

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxExecOutput limits the captured stdout and stderr of a command, each. The rest is read and dropped: the output is held in
// the agent's memory, and probes use 10 KiB of it.
const maxExecOutput = 1 << 20

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
	var stdout, stderr bytes.Buffer
	e, err := newExecution(request.GetCmd(), standardStreams{stdout: limited(&stdout), stderr: limited(&stderr)})
	if err != nil {
		return nil, status.Errorf(codes.Internal, "exec in container %q: %v", c.record.ID, err)
	}
	code, err := s.execute(ctx, context.WithoutCancel(ctx), c, e)
	switch {
	case ctx.Err() != nil:
		return nil, execCancelledError(c.record.ID, context.Cause(ctx))
	case err != nil:
		return nil, status.Errorf(codes.Unknown, "exec in container %q: %v", c.record.ID, err)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: code}, nil
}

// limitedWriter keeps the beginning of what is written.
type limitedWriter struct{ buffer *bytes.Buffer }

func limited(buffer *bytes.Buffer) io.WriteCloser { return limitedWriter{buffer} }

func (w limitedWriter) Write(data []byte) (int, error) {
	_, _ = w.buffer.Write(data[:min(len(data), maxExecOutput-w.buffer.Len())]) // never fails
	return len(data), nil
}

func (limitedWriter) Close() error { return nil }

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

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// leaveGracePeriod is how long a command may run on when its client has left.
const leaveGracePeriod = 10 * time.Second

// firstSizeTimeout is how long a command waits for the size of its terminal. Clients with a terminal send it at once.
const firstSizeTimeout = 200 * time.Millisecond

var errClientLeft = errors.New("the client left")

// execStreams runs a command for a client. If the client leaves, the command loses its streams and gets SIGHUP, and is killed with
// all its descendants after a grace period (STR-16). The error of an exit code is not wrapped, so the client gets it (STR-21).
func (s *Server) execStreams(client context.Context, containerID string, args []string, streams standardStreams) error {
	c, err := s.findContainer(containerID)
	if err != nil {
		return err
	}
	e, err := newExecution(args, streams)
	if err != nil {
		return err
	}
	ctx, stop := s.withContainerExit(context.WithoutCancel(client), c)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.stopStreams(cancel)()
	defer context.AfterFunc(client, func() {
		select {
		case <-time.After(leaveGracePeriod):
			cancel(errClientLeft)
		case <-ctx.Done():
		}
	})()
	e.copyInput(ctx)
	code, err := s.execute(ctx, client, c, e)
	switch cause := context.Cause(ctx); {
	case err == nil && code == 0:
		return nil
	case err == nil:
		return exitError(code)
	case errors.Is(cause, errContainerExited):
		return exitError(exitCodeKilled)
	case cause != nil:
		return fmt.Errorf("%w; the command and its descendants were killed", cause)
	default:
		return err
	}
}

// stopStreams calls cancel when the server stops, unless the returned function is called before.
func (s *Server) stopStreams(cancel context.CancelCauseFunc) (stop func() bool) {
	return context.AfterFunc(s.streams.context, func() { cancel(errStopping) })
}

func exitError(code int32) error {
	return utilexec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: int(code)}
}

// copyInput copies the client's input to the command, and the sizes of its terminal. The copies end with the client's connection.
func (e *execution) copyInput(ctx context.Context) {
	if e.streams.tty && e.streams.resize != nil {
		e.setFirstSize(ctx)
		go setSizes(e.stdin.server, e.streams.resize)
	}
	if e.streams.stdin == nil {
		return
	}
	go func() {
		_, _ = io.Copy(e.stdin.server, e.streams.stdin) // fails when the command has closed its input
		if !e.streams.tty {
			_ = e.stdin.server.Close()
		}
	}()
}

// setFirstSize lets programs see the right size from their start.
func (e *execution) setFirstSize(ctx context.Context) {
	select {
	case size, isOpen := <-e.streams.resize:
		if isOpen {
			setTerminalSize(e.stdin.server, size)
		}
	case <-time.After(firstSizeTimeout):
	case <-ctx.Done():
	}
}

func setSizes(master *os.File, sizes <-chan remotecommand.TerminalSize) {
	for size := range sizes {
		setTerminalSize(master, size)
	}
}

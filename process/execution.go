package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// execShimGracePeriod is how long an exec shim may take to kill the command before it is killed itself.
const execShimGracePeriod = 10 * time.Second

// standardStreams are the streams of a command, as a client sees them. Those that it did not ask for are nil.
type standardStreams struct {
	stdin          io.Reader
	stdout, stderr io.WriteCloser
	tty            bool
	resize         <-chan remotecommand.TerminalSize
}

// pipe connects the server and an exec shim.
type pipe struct{ server, shim *os.File }

func (p pipe) close() {
	_, _ = p.server.Close(), p.shim.Close() // either may be nil or closed
}

// execution is one run of a command by an exec shim. With a terminal, stdin and stdout are the same file.
type execution struct {
	command execRequest
	streams standardStreams

	requests, results     pipe
	stdin, stdout, stderr pipe

	outputs outputFiles
}

func newExecution(args []string, streams standardStreams) (*execution, error) {
	e := &execution{command: execRequest{ID: newID(), Args: args, TTY: streams.tty}, streams: streams}
	err := e.open()
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *execution) open() (err error) {
	if e.requests.shim, e.requests.server, err = os.Pipe(); err != nil {
		return err
	}
	if e.results.server, e.results.shim, err = os.Pipe(); err != nil {
		return err
	}
	if e.streams.tty {
		e.stdin.server, e.stdin.shim, err = openPTY()
		e.stdout, e.stderr.shim = e.stdin, e.stdin.shim
		return err
	}
	if e.streams.stdin != nil {
		if e.stdin.shim, e.stdin.server, err = os.Pipe(); err != nil {
			return err
		}
	}
	if e.streams.stdout != nil {
		if e.stdout.server, e.stdout.shim, err = os.Pipe(); err != nil {
			return err
		}
	}
	if e.streams.stderr != nil {
		e.stderr.server, e.stderr.shim, err = os.Pipe()
	}
	return err
}

// shimEnds returns the shim's descriptors. A nil one is the null device.
func (e *execution) shimEnds() []*os.File {
	return []*os.File{e.stdin.shim, e.stdout.shim, e.stderr.shim, e.requests.shim, e.results.shim}
}

func (e *execution) closeShimEnds() {
	for _, file := range e.shimEnds() {
		_ = file.Close()
	}
}

func (e *execution) close() {
	for _, p := range []pipe{e.requests, e.results, e.stdin, e.stdout, e.stderr} {
		p.close()
	}
}

// cancel makes the shim kill the command.
func (e *execution) cancel() {
	_ = e.results.server.SetReadDeadline(time.Now().Add(execShimGracePeriod))
	_ = e.requests.server.Close()
}

// hangUp ends the streams of a command whose client has left, and sends it SIGHUP.
func (e *execution) hangUp() {
	_ = json.NewEncoder(e.requests.server).Encode(execMessage{HangUp: true}) // fails if the command has ended
	_, _, _ = e.stdin.server.Close(), e.stdout.server.Close(), e.stderr.server.Close()
}

// execute runs the command and returns its exit code when its output has been copied. It closes the execution. When ctx ends,
// the command is killed; when client ends, it is hung up.
func (s *Server) execute(ctx, client context.Context, c *container, e *execution) (code int32, err error) {
	defer e.close()
	pid, err := s.spawn(execRole, s.containerDir(c.record.ID), e.shimEnds())
	if err != nil {
		return 0, err
	}
	ended := s.trackExec(c, pid)
	e.closeShimEnds()
	copies := e.copyOutput()
	result, err := e.roundTrip(ctx, client)
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // not reaped yet, so the PID is its own
	}
	var used syscall.Rusage
	_, _ = syscall.Wait4(pid, nil, 0, &used)
	ended(used)
	if err != nil {
		s.killWithTimeout(drainTimeout, execIDEnv+"="+e.command.ID, nil)
	}
	e.outputs.processExited()
	copies.Wait()
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	return result.Code, err
}

// roundTrip sends the request and waits for the result. A cancelled shim sends a result too.
func (e *execution) roundTrip(ctx, client context.Context) (result execResult, err error) {
	if err := json.NewEncoder(e.requests.server).Encode(execMessage{Command: &e.command}); err != nil {
		return result, fmt.Errorf("send request to exec shim: %w", err)
	}
	defer context.AfterFunc(client, e.hangUp)()
	defer context.AfterFunc(ctx, e.cancel)()
	if err := json.NewDecoder(e.results.server).Decode(&result); err != nil {
		return result, fmt.Errorf("exec shim exited without a result: %w", err)
	}
	return result, nil
}

// copyOutput copies the command's output to the client until its end. If the client does not take it any more, the command
// cannot write any more.
func (e *execution) copyOutput() *sync.WaitGroup {
	copies := &sync.WaitGroup{}
	e.copyStream(copies, e.streams.stdout, e.stdout.server)
	e.copyStream(copies, e.streams.stderr, e.stderr.server)
	return copies
}

func (e *execution) copyStream(copies *sync.WaitGroup, to io.WriteCloser, from *os.File) {
	if from == nil {
		return
	}
	output := e.outputs.add(from)
	copies.Go(func() {
		if to == nil { // a terminal has an output even if nobody asked for it
			_, _ = io.Copy(io.Discard, output)
			return
		}
		if _, err := io.Copy(to, output); err != nil {
			_ = from.Close()
		}
		_ = to.Close() // a client knows the end of the output before the exit code (STR-15)
	})
}

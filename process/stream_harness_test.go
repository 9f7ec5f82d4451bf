package process_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// streamSocket is where the server of the harness serves streams.
func (h *harness) streamSocket() string { return h.socket + ".streams" }

// executor returns kubectl's client of the streams at a URL.
func (h *harness) executor(address string) remotecommand.Executor {
	h.t.Helper()
	location, err := url.Parse(address)
	if err != nil {
		h.t.Fatal(err)
	}
	upgrader := h.upgrader()
	executor, err := remotecommand.NewSPDYExecutorForTransports(upgrader, clientspdy.NewUpgraderForStreaming(upgrader), http.MethodPost, location)
	if err != nil {
		h.t.Fatal(err)
	}
	return executor
}

func (h *harness) upgrader() *spdy.SpdyRoundTripper {
	h.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", h.streamSocket())
	}}
	upgrader, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: transport})
	if err != nil {
		h.t.Fatal(err)
	}
	return upgrader
}

// execURL asks the runtime for the streams of a command.
func (h *harness) execURL(id string, options remotecommand.StreamOptions, command ...string) string {
	h.t.Helper()
	response, err := h.Exec(h.ctx, &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: command, Tty: options.Tty,
		Stdin: options.Stdin != nil, Stdout: options.Stdout != nil, Stderr: options.Stderr != nil,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return response.GetUrl()
}

// stream runs a script as a client does and returns the error that the client got.
func (h *harness) stream(id string, options remotecommand.StreamOptions, script string) error {
	h.t.Helper()
	return h.executor(h.execURL(id, options, "sh", "-c", script)).StreamWithContext(h.ctx, options)
}

func (h *harness) attachURL(id string, options remotecommand.StreamOptions) string {
	h.t.Helper()
	response, err := h.Attach(h.ctx, &runtimeapi.AttachRequest{
		ContainerId: id, Tty: options.Tty,
		Stdin: options.Stdin != nil, Stdout: options.Stdout != nil, Stderr: options.Stderr != nil,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return response.GetUrl()
}

// attachment is a client that is attached to a container.
type attachment struct {
	t      *testing.T
	stdin  *io.PipeWriter // nil without input
	stdout *output
	stderr *output
	leave  func()
	done   chan error
}

// attach attaches a client. A container with a terminal gives it no standard error.
func (h *harness) attach(id string, withInput, tty bool) *attachment {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.ctx)
	a := &attachment{t: h.t, stdout: newOutput(), stderr: newOutput(), leave: cancel, done: make(chan error, 1)}
	options := remotecommand.StreamOptions{Stdout: a.stdout, Tty: tty}
	if !tty {
		options.Stderr = a.stderr
	}
	if withInput {
		options.Stdin, a.stdin = io.Pipe()
		h.t.Cleanup(func() { a.stdin.Close() })
	}
	executor := h.executor(h.attachURL(id, options))
	go func() { a.done <- executor.StreamWithContext(ctx, options) }()
	h.t.Cleanup(cancel)
	return a
}

func (a *attachment) send(text string) {
	a.t.Helper()
	if _, err := io.WriteString(a.stdin, text); err != nil {
		a.t.Fatal(err)
	}
}

// output collects what a command writes.
type output struct {
	mu      sync.Mutex
	buffer  bytes.Buffer
	changed chan struct{} // closed and replaced at each write
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.buffer.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// waitFor waits until the output contains a text.
func (o *output) waitFor(h *harness, text string) {
	h.t.Helper()
	for {
		o.mu.Lock()
		changed, found := o.changed, strings.Contains(o.buffer.String(), text)
		o.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-h.ctx.Done():
			h.t.Fatalf("got output %q, want %q", o, text)
		}
	}
}

// exitCodeOf returns the exit code that kubectl exits with.
func exitCodeOf(t *testing.T, err error) int {
	t.Helper()
	var exit clientexec.CodeExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	default:
		t.Fatalf("got %v, want an exit code", err)
		return 0
	}
}

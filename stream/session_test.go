package stream_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stream"
)

func startServer(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

// random is reproducible data.
func random(size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(data)
	return data
}

// Output of any size arrives completely before the status, also if both streams are in use.
func TestSTR15_AllOutput(t *testing.T) {
	data := random(10 << 20)
	for client := range executors {
		t.Run(client, func(t *testing.T) {
			h := newHarness(t)
			h.commands["cat"] = func(p process) error {
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = p.stderr.Write(data[:3<<20])
				}()
				_, _ = p.stdout.Write(data)
				<-done
				return exited(3)
			}
			stdout, stderr, err := h.run(t, client, exec, "output=1&error=1&command=cat", remotecommand.StreamOptions{})
			if sha256.Sum256([]byte(stdout)) != sha256.Sum256(data) || stderr != string(data[:3<<20]) {
				t.Errorf("got %d and %d bytes, want %d and %d, or other ones", len(stdout), len(stderr), len(data), 3<<20)
			}
			if err == nil || !strings.Contains(err.Error(), "exit code 3") {
				t.Errorf("got %v, want exit code 3", err)
			}
		})
	}
}

// The command reads the end of stdin, and its output follows (STR-9).
func TestSTR9_HalfClose(t *testing.T) {
	data := random(2 << 20)
	for client := range executors {
		t.Run(client, func(t *testing.T) {
			h := newHarness(t)
			h.commands["sum"] = func(p process) error {
				got, err := io.ReadAll(p.stdin)
				_, _ = fmt.Fprintf(p.stdout, "%x", sha256.Sum256(got))
				return err
			}
			stdout, _, err := h.run(t, client, exec, "input=1&output=1&command=sum", remotecommand.StreamOptions{
				Stdin: strings.NewReader(string(data)),
			})
			if want := fmt.Sprintf("%x", sha256.Sum256(data)); err != nil || stdout != want {
				t.Errorf("got %q, %v, want %q", stdout, err, want)
			}
		})
	}
}

// A command that ends without reading stdin does not wait for the client.
func TestSTR9_UnreadInput(t *testing.T) {
	for client := range executors {
		t.Run(client, func(t *testing.T) {
			h := newHarness(t)
			h.commands["true"] = func(p process) error {
				_, _ = io.WriteString(p.stdout, "ready")
				return nil
			}
			reader, writer := io.Pipe()
			defer func() { _ = writer.Close() }()
			stdout, _, err := h.run(t, client, exec, "input=1&output=1&command=true", remotecommand.StreamOptions{Stdin: reader})
			if err != nil || stdout != "ready" {
				t.Errorf("got %q, %v", stdout, err)
			}
		})
	}
}

// sizes is a terminal that is resized.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestSTR13_Resize(t *testing.T) {
	for client := range executors {
		for path, query := range map[string]string{
			exec: "output=1&tty=1&command=main", "/attach/default/web/debugger": "output=1&tty=1",
		} {
			t.Run(client+path, func(t *testing.T) {
				h := newHarness(t)
				h.commands["main"] = func(p process) error {
					first, second := <-p.resize, <-p.resize
					_, _ = fmt.Fprintln(p.stdout, p.container, p.tty, first, second)
					return nil
				}
				queue := sizes(make(chan remotecommand.TerminalSize, 2))
				queue <- remotecommand.TerminalSize{Width: 80, Height: 24}
				queue <- remotecommand.TerminalSize{Width: 132, Height: 50}
				defer close(queue)
				stdout, _, err := h.run(t, client, path, query, remotecommand.StreamOptions{Tty: true, TerminalSizeQueue: queue})
				if err != nil || !strings.HasSuffix(stdout, "true {80 24} {132 50}\n") {
					t.Errorf("got %q, %v", stdout, err)
				}
			})
		}
	}
}

// waitForOpen waits until so many streams are open.
func (h *harness) waitForOpen(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(hangTimeout); h.proxy.Open() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams are open, want %d", h.proxy.Open(), want)
		}
	}
}

// hold opens a stream whose command runs until the test ends, and returns what its client gets.
func (h *harness) hold(t *testing.T, client string) <-chan error {
	t.Helper()
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	h.commands["hold"] = func(p process) error {
		_, _ = io.WriteString(p.stdout, "begun")
		<-end
		return nil
	}
	before := h.proxy.Open()
	result := make(chan error, 1)
	begun, output := io.Pipe()
	executor := executors[client](t, h, exec, "output=1&command=hold")
	go func() {
		result <- executor.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdout: output})
	}()
	if _, err := io.ReadFull(begun, make([]byte, len("begun"))); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, begun) }()
	h.waitForOpen(t, before+1)
	return result
}

func wait(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(hangTimeout):
		t.Fatal("the client still waits")
		return nil
	}
}

func TestSTR14_Shutdown(t *testing.T) {
	for client := range executors {
		t.Run(client, func(t *testing.T) {
			h := newHarness(t)
			result := h.hold(t, client)
			if err := h.proxy.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := wait(t, result); err == nil || !strings.Contains(err.Error(), "the node agent is shutting down") {
				t.Errorf("got %v, want the reason: without one the client assumes success", err)
			}
			if code, _, _ := h.request(t, exec, "output=1&command=hold", spdyHeader("v4.channel.k8s.io")); code != http.StatusServiceUnavailable {
				t.Errorf("got %d for a stream after the shutdown", code)
			}
		})
	}
}

func TestSTR17_PodTerminated(t *testing.T) {
	for client := range executors {
		t.Run(client, func(t *testing.T) {
			h := newHarness(t)
			result := h.hold(t, client)
			h.proxy.SetTerminatedGrace(10 * time.Millisecond)
			h.proxy.PodTerminated("other")
			h.proxy.PodTerminated(podid.UID(h.pod.UID))
			if err := wait(t, result); err == nil || !strings.Contains(err.Error(), "the pod has been terminated") {
				t.Errorf("got %v, want the reason", err)
			}
			h.waitForOpen(t, 0)
		})
	}
}

func TestSTR18_Idle(t *testing.T) {
	h := newHarness(t, func(h *harness) { h.config.IdleTimeout = 200 * time.Millisecond })
	h.commands["hold"] = func(p process) error { _, err := io.Copy(io.Discard, p.stdin); return err }
	reader, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	_, _, err := h.run(t, "web socket", exec, "input=1&output=1&command=hold", remotecommand.StreamOptions{Stdin: reader})
	if err == nil || !strings.Contains(err.Error(), "idle") {
		t.Errorf("got %v, want the reason", err)
	}
}

// A client that leaves frees its place although the command goes on.
func TestSTR16_ClientLeaves(t *testing.T) {
	for client := range executors {
		t.Run(client, func(t *testing.T) {
			h := newHarness(t)
			h.commands["read"] = func(p process) error {
				_, _ = io.WriteString(p.stdout, "begun")
				_, _ = io.Copy(io.Discard, p.stdin)
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			stdin, writer := io.Pipe()
			defer func() { _ = writer.Close() }()
			begun, output := io.Pipe()
			result := make(chan error, 1)
			executor := executors[client](t, h, exec, "input=1&output=1&command=read")
			go func() {
				result <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: output})
			}()
			if _, err := io.ReadFull(begun, make([]byte, len("begun"))); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := wait(t, result); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			h.waitForOpen(t, 0)
		})
	}
}

func TestLimits(t *testing.T) {
	for name, limit := range map[string]func(*stream.Config){
		"this node has 2 open": func(c *stream.Config) { c.MaxStreams = 2 },
		"this pod has 2 open":  func(c *stream.Config) { c.MaxStreamsPerPod = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(h *harness) { limit(&h.config) })
			h.hold(t, "SPDY")
			h.hold(t, "SPDY")
			code, header, body := h.request(t, exec, "output=1&command=hold", spdyHeader("v4.channel.k8s.io"))
			if code != http.StatusTooManyRequests || header.Get("Retry-After") != "1" || !strings.Contains(body, name) {
				t.Errorf("got %d %v %q", code, header, body)
			}
		})
	}
}

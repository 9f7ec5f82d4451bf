package process_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarded is a port-forward of kubectl's client.
type forwarded struct {
	address string // where the client listens
	errors  *output
	stop    func()
	done    chan error
}

// forwardDialer connects to the streams of a sandbox's port.
func (h *harness) forwardDialer(sandbox string, port int) httpstream.Dialer {
	h.t.Helper()
	response, err := h.PortForward(h.ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: []int32{int32(port)}})
	if err != nil {
		h.t.Fatal(err)
	}
	location, err := url.Parse(response.GetUrl())
	if err != nil {
		h.t.Fatal(err)
	}
	upgrader := h.upgrader()
	return spdy.NewDialerForStreaming(spdy.NewUpgraderForStreaming(upgrader), &http.Client{Transport: upgrader}, http.MethodPost, location)
}

func (h *harness) forward(sandbox string, port int) *forwarded {
	h.t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	f := &forwarded{errors: newOutput(), stop: func() { close(stop) }, done: make(chan error, 1)}
	forwarder, err := portforward.NewOnAddressesForStreaming(
		h.forwardDialer(sandbox, port), []string{"127.0.0.1"}, []string{fmt.Sprint(":", port)}, stop, ready, io.Discard, f.errors)
	if err != nil {
		h.t.Fatal(err)
	}
	go func() { f.done <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-f.done:
		h.t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		h.t.Fatal(err)
	}
	f.address = fmt.Sprint("127.0.0.1:", ports[0].Local)
	return f
}

// listenTCP serves each connection with a function.
func listenTCP(t *testing.T, address string, serve func(conn *net.TCPConn)) (port int) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Skip(err) // a machine without IPv6
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// upperAtEnd answers when the client has ended its side.
func upperAtEnd(conn *net.TCPConn) {
	text, err := io.ReadAll(conn)
	if err == nil {
		_, _ = conn.Write(bytes.ToUpper(text))
	}
}

// exchange sends a text, ends its side of the connection, and returns the answer.
func exchange(t *testing.T, address, text string) (string, error) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func TestSTR23_PortForward(t *testing.T) {
	for name, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6 only": "[::1]:0"} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			port := listenTCP(t, address, upperAtEnd)
			f := h.forward(h.sandbox("a"), port)
			text := strings.Repeat("half-closed ", 100_000)
			for range 3 {
				if got, err := exchange(t, f.address, text); err != nil || got != strings.ToUpper(text) {
					t.Fatalf("got %d bytes, error %v, want %d bytes", len(got), err, len(text))
				}
			}
			f.stop()
			if err := <-f.done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSTR23_Refused checks that a port without a listener breaks only its own streams, and says why. kubectl's client would end the
// connection.
func TestSTR23_Refused(t *testing.T) {
	h := newHarness(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	conn, _, err := h.forwardDialer(h.sandbox("a"), refused).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	create := func(kind string, request, port int) (httpstream.Stream, error) {
		return conn.CreateStream(http.Header{
			"Streamtype": {kind}, "Port": {fmt.Sprint(port)}, "Requestid": {fmt.Sprint(request)},
		})
	}
	open := func(kind string, request, port int) httpstream.Stream {
		stream, err := create(kind, request, port)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	errorStream := open("error", 1, refused)
	// The server ends the stream when the pod refuses, which may be before the client has heard that it was opened.
	if _, err := create("data", 1, refused); err != nil && err.Error() != "Stream reset" {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(errorStream); err != nil || !strings.Contains(string(text), "connection refused") {
		t.Errorf("got %q, error %v, want connection refused", text, err)
	}
	port := listenTCP(t, "127.0.0.1:0", upperAtEnd)
	open("error", 2, port)
	data := open("data", 2, port)
	if _, err := io.WriteString(data, "alive"); err != nil {
		t.Fatal(err)
	}
	data.Close()
	if text, err := io.ReadAll(data); err != nil || string(text) != "ALIVE" {
		t.Errorf("got %q, error %v", text, err)
	}
}

// TestSTR23_Reset checks that a reset of the pod's side ends the client's.
func TestSTR23_Reset(t *testing.T) {
	h := newHarness(t)
	port := listenTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		_, _ = io.ReadFull(conn, make([]byte, 1))
		_ = conn.SetLinger(0)
	})
	f := h.forward(h.sandbox("a"), port)
	if got, err := exchange(t, f.address, "x"); got != "" {
		t.Errorf("got %q, error %v", got, err)
	}
	f.stop()
}

func TestSTR23_EndsWithThePod(t *testing.T) {
	tests := map[string]func(h *harness, sandboxID string){
		"pod stopped": func(h *harness, id string) {
			if _, err := h.StopPodSandbox(h.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
				h.t.Fatal(err)
			}
		},
		"server stopped": func(h *harness, _ string) { h.restart(func() {}) },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			ended := make(chan error, 1)
			port := listenTCP(t, "127.0.0.1:0", func(conn *net.TCPConn) {
				_, _ = conn.Write([]byte("hello"))
				_, err := io.ReadAll(conn)
				ended <- err
			})
			sandboxID := h.sandbox("a")
			f := h.forward(sandboxID, port)
			conn, err := (&net.Dialer{}).DialContext(h.ctx, "tcp", f.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			end(h, sandboxID)
			<-ended
			if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
			if name == "server stopped" {
				if err := <-f.done; !errors.Is(err, portforward.ErrLostConnectionToPod) {
					t.Errorf("got %v, want %v", err, portforward.ErrLostConnectionToPod)
				}
			} else {
				f.stop()
			}
		})
	}
}

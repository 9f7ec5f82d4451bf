package stream_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// dialers are kubectl's two clients of port-forward: SPDY in a web socket, which the node unwraps, and SPDY, which it copies.
var dialers = map[string]func(t *testing.T, h *harness) httpstream.Dialer{
	"SPDY": func(t *testing.T, h *harness) httpstream.Dialer {
		t.Helper()
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: h.server.URL})
		if err != nil {
			t.Fatal(err)
		}
		return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, h.url(t, "/portForward/default/web", ""))
	},
	"tunnel": func(t *testing.T, h *harness) httpstream.Dialer {
		t.Helper()
		dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(
			h.url(t, "/portForward/default/web", ""), &rest.Config{Host: h.server.URL},
		)
		if err != nil {
			t.Fatal(err)
		}
		return dialer
	},
}

// forward forwards a local port to port 80 of the pod, and returns its address.
func (h *harness) forwardPort(t *testing.T, client string) string {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewForStreaming(dialers[client](t, h), []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	t.Cleanup(func() { close(stop); _ = wait(t, ended) })
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
}

// Connections at the same time share a stream. Each gets its own bytes back.
func TestSTR10_PortForward(t *testing.T) {
	for client := range dialers {
		t.Run(client, func(t *testing.T) {
			h := newHarness(t)
			h.forward = func(_ string, port int32, conn io.ReadWriteCloser) error {
				defer func() { _ = conn.Close() }()
				_, _ = fmt.Fprintf(conn, "port %d\n", port)
				_, err := io.Copy(conn, conn)
				return err
			}
			address := h.forwardPort(t, client)
			var connections sync.WaitGroup
			for i := range 8 {
				connections.Go(func() {
					data := bytes.Repeat([]byte{byte(i)}, 300<<10)
					if got, err := exchange(t.Context(), address, data); err != nil || got != "port 80\n"+string(data) {
						t.Errorf("connection %d: got %d bytes, %v", i, len(got), err)
					}
				})
			}
			connections.Wait()
			if h.proxy.Open() != 1 {
				t.Errorf("%d streams are open, want 1", h.proxy.Open())
			}
		})
	}
}

// exchange sends data and returns what comes back.
func exchange(ctx context.Context, address string, data []byte) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(hangTimeout))
	go func() {
		_, _ = conn.Write(data)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	return string(got), err
}

func TestSTR10_Shutdown(t *testing.T) {
	for client := range dialers {
		t.Run(client, func(t *testing.T) {
			h := newHarness(t)
			h.forward = func(_ string, _ int32, conn io.ReadWriteCloser) error { _, err := io.Copy(conn, conn); return err }
			h.forwardPort(t, client)
			if err := h.proxy.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// dialWebSocket opens a web socket with one protocol.
func (h *harness) dialWebSocket(t *testing.T, path, query, protocol string) *websocket.Conn {
	t.Helper()
	location := "ws" + strings.TrimPrefix(h.url(t, path, query).String(), "http")
	config, err := websocket.NewConfig(location, "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	if protocol != "" {
		config.Protocol = []string{protocol}
	}
	socket, err := config.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	_ = socket.SetDeadline(time.Now().Add(hangTimeout))
	return socket
}

func TestSTR24_WebSocketChannels(t *testing.T) {
	h := newHarness(t)
	h.forward = func(_ string, port int32, conn io.ReadWriteCloser) error {
		_, err := fmt.Fprintf(conn, "hello from %d", port)
		return err
	}
	socket := h.dialWebSocket(t, "/portForward/default/web", "port=80&port=443", "v4.channel.k8s.io")
	ports, messages := map[byte]uint16{}, map[byte]string{}
	for len(messages[0]) < 13 || len(messages[2]) < 14 {
		var message []byte
		if err := websocket.Message.Receive(socket, &message); err != nil {
			t.Fatal(err)
		}
		if _, found := ports[message[0]]; !found {
			ports[message[0]] = binary.LittleEndian.Uint16(message[1:])
			continue
		}
		messages[message[0]] += string(message[1:])
	}
	want := map[byte]uint16{0: 80, 1: 80, 2: 443, 3: 443}
	for channel, port := range ports {
		if want[channel] != port {
			t.Errorf("channel %d has port %d, want %d", channel, port, want[channel])
		}
	}
	if messages[0] != "hello from 80" || messages[2] != "hello from 443" {
		t.Errorf("got %q", messages)
	}
}

// Clients with older web sockets are told as well that the node ends their stream.
func TestSTR14_ShutdownOfOlderWebSockets(t *testing.T) {
	const text = "the node agent is shutting down"
	json := `{"metadata":{},"status":"Failure","message":"Internal error occurred: ` + text + `","reason":"InternalError","code":500}`
	for protocol, want := range map[string]string{
		"v4.channel.k8s.io": "\x03" + json, "channel.k8s.io": "\x03" + text, "": "\x03" + text,
		"base64.channel.k8s.io":    "3dGhlIG5vZGUgYWdlbnQgaXMgc2h1dHRpbmcgZG93bg==",
		"v4.base64.channel.k8s.io": "3eyJtZXRhZGF0YSI6e30sInN0YXR1cyI6IkZhaWx1cmUiLCJtZXNzYWdlIjoiSW50ZXJuYWwgZXJyb3Igb2NjdXJyZWQ6IHRoZSBub2RlIGFnZW50IGlzIHNodXR0aW5nIGRvd24iLCJyZWFzb24iOiJJbnRlcm5hbEVycm9yIiwiY29kZSI6NTAwfQ==",
	} {
		t.Run(protocol, func(t *testing.T) {
			h := newHarness(t)
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			large := bytes.Repeat([]byte{'x'}, 100<<10)
			h.commands["hold"] = func(p process) error {
				_, _ = p.stdout.Write([]byte("small"))
				_, _ = p.stdout.Write(large[:200])
				_, _ = p.stdout.Write(large)
				_, _ = p.stderr.Write([]byte("begun"))
				<-end
				return nil
			}
			socket := h.dialWebSocket(t, exec, "output=1&error=1&command=hold", protocol)
			var last string
			for isShutDown := false; ; {
				var message []byte
				err := websocket.Message.Receive(socket, &message)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				last = string(message)
				if !isShutDown && (strings.HasPrefix(last, "\x02b") || strings.HasPrefix(last, "2Y")) {
					isShutDown = true
					go func() { _ = h.proxy.Shutdown(context.Background()) }()
				}
			}
			if last != want {
				t.Errorf("got %q, want %q", last, want)
			}
		})
	}
}

func TestSRV6_HTTP2(t *testing.T) {
	h := newHarness(t)
	server := httptestHTTP2(t, h)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+exec+"?output=1&command=a", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	// HTTP/2 has no upgrade, so that the request is refused for that already.
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusBadRequest || len(h.runtime.recorded()) != 0 {
		t.Errorf("got %s %s and requests %v", response.Proto, response.Status, h.runtime.recorded())
	}
}

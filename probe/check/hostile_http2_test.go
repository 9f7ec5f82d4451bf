package check_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// newFrame returns an HTTP/2 frame (RFC 9113).
func newFrame(kind, flags byte, stream uint32, payload string) string {
	header := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return string(binary.BigEndian.AppendUint32(append(header, flags), stream)) + payload
}

const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway, frameContinuation = 0, 1, 3, 4, 6, 7, 9

	status200 = "\x88" // ":status: 200" in HPACK's static table
)

// newHTTP2Target starts a TLS server that negotiates HTTP/2 and passes each connection to handle.
func newHTTP2Target(t *testing.T, handle func(net.Conn)) (check.Target, int32) {
	t.Helper()
	named := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: named.TLS.Certificates, NextProtos: []string{"h2"}}
	named.Close()
	return newTCPTarget(t, func(conn net.Conn) {
		secured := tls.Server(conn, config)
		if secured.HandshakeContext(context.Background()) == nil {
			handle(secured)
		}
	})
}

// afterRequest sends the settings, reads the request's headers and calls then.
func afterRequest(then func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, newFrame(frameSettings, 0, 0, ""))
		header := make([]byte, 9)
		for err == nil && header[3] != frameHeaders {
			if _, err = io.ReadFull(conn, header); err == nil {
				_, err = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(header)>>8))
			}
		}
		then(conn)
	}
}

func TestF24_HostileHTTP2Servers(t *testing.T) {
	settings, head := newFrame(frameSettings, 0, 0, ""), newFrame(frameHeaders, 4, 1, status200)
	for name, test := range map[string]struct {
		handle func(net.Conn)
		want   judge.Result
	}{
		"silence":          {readUntilClosed, judge.Failure},
		"closed":           {func(net.Conn) {}, judge.Failure},
		"HTTP/1":           {writeThenHang("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), judge.Failure},
		"settings only":    {writeThenHang(settings), judge.Failure},
		"frame too large":  {writeThenHang(settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x00"), judge.Failure},
		"GOAWAY":           {afterRequest(writeThenHang(newFrame(frameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x02"))), judge.Failure},
		"stream reset":     {afterRequest(writeThenHang(newFrame(frameReset, 0, 1, "\x00\x00\x00\x01"))), judge.Failure},
		"other stream":     {afterRequest(writeThenHang(newFrame(frameHeaders, 5, 99, status200))), judge.Failure},
		"endless pings":    {func(c net.Conn) { writeEndlessly(c, settings, newFrame(framePing, 0, 0, "12345678")) }, judge.Failure},
		"endless settings": {func(c net.Conn) { writeEndlessly(c, settings, settings) }, judge.Failure},
		"endless headers": {afterRequest(func(c net.Conn) {
			writeEndlessly(c, newFrame(frameHeaders, 0, 1, status200), newFrame(frameContinuation, 0, 1, newLongHeader()))
		}), judge.Failure},
		"body stops":         {afterRequest(writeThenHang(head + newFrame(frameData, 0, 1, "x"))), judge.Failure},
		"endless empty body": {afterRequest(func(c net.Conn) { writeEndlessly(c, head, newFrame(frameData, 0, 1, "")) }), judge.Failure},
		"endless body": {afterRequest(func(c net.Conn) {
			writeEndlessly(c, head, newFrame(frameData, 0, 1, strings.Repeat("y", 1000)))
		}), judge.Success},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, port := newHTTP2Target(t, func(c net.Conn) {
				preface := make([]byte, 24)
				_, _ = io.ReadFull(c, preface)
				test.handle(c)
			})
			ctx, cancel := context.WithTimeout(t.Context(), timeoutFor(test.want))
			defer cancel()
			https := newHTTPProbe(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS })
			outcome := check.New(nil).Check(ctx, https, target)
			if outcome.Result != test.want || len(outcome.Message) > 20<<10 {
				t.Fatalf("got %+v, want %v", outcome, test.want)
			}
		})
	}
}

// newLongHeader returns "x: yyy..." in HPACK, not indexed.
func newLongHeader() string { return "\x00\x01x\x7f\xe9\x06" + strings.Repeat("y", 1000) }

func TestF24_ConnectionReset(t *testing.T) {
	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) } // newTCPTarget closes it then
	for name, handle := range map[string]func(net.Conn){
		"at once":            reset,
		"after the request":  func(c net.Conn) { readRequest(c); reset(c) },
		"in the headers":     func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX:"); reset(c) },
		"in the status line": func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "HTTP/1.1 2"); reset(c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, port := newTCPTarget(t, handle)
			for kind, handler := range map[string]v1.ProbeHandler{
				"http":  {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
				"https": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port), Scheme: v1.URISchemeHTTPS}},
				"grpc":  {GRPC: &v1.GRPCAction{Port: port}},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), shortTimeout)
				defer cancel()
				if outcome := check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler}, target); outcome.Result != judge.Failure {
					t.Errorf("%s: got %+v", kind, outcome)
				}
			}
		})
	}
}

// newFullBacklog returns a port whose backlog is full, so that no connection is accepted.
func newFullBacklog(t *testing.T) (check.Target, int32) {
	t.Helper()
	fd, port := newBoundPort(t)
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for {
		ctx, cancel := context.WithTimeout(t.Context(), shortTimeout)
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
		cancel()
		if err != nil {
			return check.Target{Address: loopback, Container: &v1.Container{}}, port
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

func TestF24_NeverAccepts(t *testing.T) {
	target, port := newFullBacklog(t)
	for name, handler := range map[string]v1.ProbeHandler{
		"http":  {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
		"https": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port), Scheme: v1.URISchemeHTTPS}},
		"tcp":   {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		"grpc":  {GRPC: &v1.GRPCAction{Port: port}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), shortTimeout)
			defer cancel()
			if outcome := check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler}, target); outcome.Result != judge.Failure {
				t.Errorf("got %+v", outcome)
			}
		})
	}
}

func TestF25_NoTimeWait(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	target, port := newTarget(server.Listener)
	plain := newGRPCServer(t, func(*grpc.Server) {})
	for range 100 {
		for name, handler := range map[string]v1.ProbeHandler{
			"https": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port), Scheme: v1.URISchemeHTTPS}},
			"grpc":  {GRPC: &v1.GRPCAction{Port: plain}},
		} {
			if outcome := check.New(nil).Check(t.Context(), &v1.Probe{ProbeHandler: handler}, target); outcome.Result != judge.Failure {
				t.Fatalf("%s: got %+v", name, outcome) // both servers respond, but not with success
			}
		}
	}
	if waiting := countTimeWait(t, port) + countTimeWait(t, plain); waiting > 0 {
		t.Fatalf("got %d of 200 connections in TIME_WAIT, want none", waiting)
	}
}

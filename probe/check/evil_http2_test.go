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

// frame is one of HTTP/2, as RFC 9113 has it.
func frame(kind, flags byte, stream uint32, payload string) string {
	header := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return string(binary.BigEndian.AppendUint32(append(header, flags), stream)) + payload
}

const (
	framedData, framedHeaders, framedReset, framedSettings, framedPing, framedLeave, framedMore = 0, 1, 3, 4, 6, 7, 9

	status200 = "\x88" // ":status: 200" of HPACK's static table
)

// speaking is TLS that agrees on HTTP/2 and then does that.
func speaking(t *testing.T, with func(net.Conn)) (check.Target, int32) {
	t.Helper()
	named := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: named.TLS.Certificates, NextProtos: []string{"h2"}}
	named.Close()
	return behaving(t, func(conn net.Conn) {
		secured := tls.Server(conn, config)
		if secured.HandshakeContext(context.Background()) == nil {
			with(secured)
		}
	})
}

// asked begins as a server must, waits for the request's headers, and then does that.
func asked(then func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, frame(framedSettings, 0, 0, ""))
		header := make([]byte, 9)
		for err == nil && header[3] != framedHeaders {
			if _, err = io.ReadFull(conn, header); err == nil {
				_, err = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(header)>>8))
			}
		}
		then(conn)
	}
}

func TestF24EvilHTTP2IsAnsweredInTimeAndLeavesNothingBehind(t *testing.T) {
	settings, head := frame(framedSettings, 0, 0, ""), frame(framedHeaders, 4, 1, status200)
	for name, test := range map[string]struct {
		does func(net.Conn)
		want judge.Result
	}{
		"nothing":           {untilClosed, judge.Failure},
		"hangs up":          {func(net.Conn) {}, judge.Failure},
		"HTTP/1":            {silent("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), judge.Failure},
		"settings only":     {silent(settings), judge.Failure},
		"a frame too large": {silent(settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x00"), judge.Failure},
		"says good-bye":     {asked(silent(frame(framedLeave, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x02"))), judge.Failure},
		"ends the stream":   {asked(silent(frame(framedReset, 0, 1, "\x00\x00\x00\x01"))), judge.Failure},
		"no such stream":    {asked(silent(frame(framedHeaders, 5, 99, status200))), judge.Failure},
		"pings for ever":    {func(c net.Conn) { endless(c, settings, frame(framedPing, 0, 0, "12345678")) }, judge.Failure},
		"settings for ever": {func(c net.Conn) { endless(c, settings, settings) }, judge.Failure},
		"headers for ever": {asked(func(c net.Conn) {
			endless(c, frame(framedHeaders, 0, 1, status200), frame(framedMore, 0, 1, longHeader()))
		}), judge.Failure},
		"a body that stops": {asked(silent(head + frame(framedData, 0, 1, "x"))), judge.Failure},
		"a body of nothing": {asked(func(c net.Conn) { endless(c, head, frame(framedData, 0, 1, "")) }), judge.Failure},
		"a body for ever": {asked(func(c net.Conn) {
			endless(c, head, frame(framedData, 0, 1, strings.Repeat("y", 1000)))
		}), judge.Success},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, port := speaking(t, func(c net.Conn) {
				preface := make([]byte, 24)
				_, _ = io.ReadFull(c, preface)
				test.does(c)
			})
			ctx, cancel := context.WithTimeout(t.Context(), patienceFor(test.want))
			defer cancel()
			https := httpGet(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS })
			found := check.New(nil).Check(ctx, https, target)
			if found.Result != test.want || len(found.Message) > 20<<10 {
				t.Fatalf("%+v, want %v", found, test.want)
			}
		})
	}
}

// longHeader is "x: yyy..." in HPACK, not indexed.
func longHeader() string { return "\x00\x01x\x7f\xe9\x06" + strings.Repeat("y", 1000) }

func TestF24AConnectionThatIsResetIsAFailure(t *testing.T) {
	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) } // behaving closes it then
	for name, does := range map[string]func(net.Conn){
		"at once":               reset,
		"after the request":     func(c net.Conn) { request(c); reset(c) },
		"within the headers":    func(c net.Conn) { request(c); _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX:"); reset(c) },
		"within the first line": func(c net.Conn) { request(c); _, _ = io.WriteString(c, "HTTP/1.1 2"); reset(c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, port := behaving(t, does)
			for kind, handler := range map[string]v1.ProbeHandler{
				"http":  {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
				"https": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port), Scheme: v1.URISchemeHTTPS}},
				"grpc":  {GRPC: &v1.GRPCAction{Port: port}},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if found := check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler}, target); found.Result != judge.Failure {
					t.Errorf("%s: %+v", kind, found)
				}
			}
		})
	}
}

// full is a port whose queue of connections is full, so that nobody is even accepted.
func full(t *testing.T) (check.Target, int32) {
	t.Helper()
	fd, port := boundPort(t)
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
		cancel()
		if err != nil {
			return check.Target{Address: loopback, Container: &v1.Container{}}, port
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

func TestF24ATargetThatNeverAcceptsIsAFailureInTime(t *testing.T) {
	target, port := full(t)
	for name, handler := range map[string]v1.ProbeHandler{
		"http":  {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
		"https": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port), Scheme: v1.URISchemeHTTPS}},
		"tcp":   {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		"grpc":  {GRPC: &v1.GRPCAction{Port: port}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if found := check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler}, target); found.Result != judge.Failure {
				t.Errorf("%+v", found)
			}
		})
	}
}

func TestF25NoKindOfProbeLeavesAPortWaiting(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	target, port := targetOf(server.Listener)
	plain := grpcServer(t, func(*grpc.Server) {})
	for range 100 {
		for name, handler := range map[string]v1.ProbeHandler{
			"https": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port), Scheme: v1.URISchemeHTTPS}},
			"grpc":  {GRPC: &v1.GRPCAction{Port: plain}},
		} {
			if found := check.New(nil).Check(t.Context(), &v1.Probe{ProbeHandler: handler}, target); found.Result != judge.Failure {
				t.Fatalf("%s: %+v", name, found) // nobody is at home there, who answers all the same
			}
		}
	}
	if waiting := waitingTo(t, port) + waitingTo(t, plain); waiting > 0 {
		t.Fatalf("%d of 200 connections wait for their time to be over", waiting)
	}
}

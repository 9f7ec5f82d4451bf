package check_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// newTCPTarget starts a server that passes each connection to handle, until the test ends.
func newTCPTarget(t *testing.T, handle func(net.Conn)) (check.Target, int32) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		served.Wait()
	})
	return newTarget(listener)
}

// writeEndlessly writes first and then again, until the connection is closed.
func writeEndlessly(conn net.Conn, first, again string) {
	_, err := io.WriteString(conn, first)
	for err == nil {
		_, err = io.WriteString(conn, again)
	}
}

// readUntilClosed reads without a response.
func readUntilClosed(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// writeThenHang writes the text and then nothing more.
func writeThenHang(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		readUntilClosed(conn)
	}
}

// readRequest reads a whole request.
func readRequest(conn net.Conn) {
	lines := bufio.NewReader(conn)
	for line := "."; strings.TrimSpace(line) != ""; {
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			return
		}
	}
}

// hostileServers misbehave on purpose.
var hostileServers = map[string]struct {
	handle func(net.Conn)
	want   judge.Result
}{
	"never responds":            {readUntilClosed, judge.Failure},
	"hangs in the status line":  {writeThenHang("HTTP/1.1 20"), judge.Failure},
	"hangs in the headers":      {writeThenHang("HTTP/1.1 200 OK\r\nX: "), judge.Failure},
	"hangs in the body":         {writeThenHang("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nx"), judge.Failure},
	"hangs in a chunk":          {writeThenHang("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx"), judge.Failure},
	"endless headers":           {func(c net.Conn) { writeEndlessly(c, "HTTP/1.1 200 OK\r\n", "X: "+strings.Repeat("y", 1000)+"\r\n") }, judge.Failure},
	"endless header":            {func(c net.Conn) { writeEndlessly(c, "HTTP/1.1 200 OK\r\nX: ", strings.Repeat("y", 1000)) }, judge.Failure},
	"endless status line":       {func(c net.Conn) { writeEndlessly(c, "HTTP/1.1 200 ", strings.Repeat("y", 1000)) }, judge.Failure},
	"endless interim responses": {func(c net.Conn) { writeEndlessly(c, "", "HTTP/1.1 103 Early Hints\r\n\r\n") }, judge.Failure},
	"endless body":              {func(c net.Conn) { writeEndlessly(c, "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("y", 1000)) }, judge.Success},
	"endless body of small chunks": {func(c net.Conn) {
		writeEndlessly(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\ny\r\n")
	}, judge.Success},
	"endless body of a redirect": {func(c net.Conn) {
		writeEndlessly(c, "HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", strings.Repeat("y", 1000))
	}, judge.Failure},
	"incomplete body": {func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
	}, judge.Error},
	"not HTTP": {func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n") }, judge.Failure},
	"closes":   {readRequest, judge.Failure},
	"response before the request": {func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		readRequest(c)
	}, judge.Success},
	"interim response": {func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n")
	}, judge.Success},
	"many interim responses": {func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100)+"HTTP/1.1 204 No\r\n\r\n")
	}, judge.Success},
	"status code below 100": {func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 050 What\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
	}, judge.Failure},
}

// shortTimeout is short because most servers here never respond.
const shortTimeout = 250 * time.Millisecond

// timeoutFor is long for servers that must respond, however busy the machine is.
func timeoutFor(want judge.Result) time.Duration {
	if want == judge.Failure {
		return shortTimeout
	}
	return time.Minute
}

func TestF24_HostileServers(t *testing.T) {
	for name, test := range hostileServers {
		t.Run(name, func(t *testing.T) {
			target, port := newTCPTarget(t, test.handle)
			ctx, cancel := context.WithTimeout(t.Context(), timeoutFor(test.want))
			defer cancel()
			outcome := check.New(nil).Check(ctx, newHTTPProbe(intstr.FromInt32(port)), target)
			if outcome.Result != test.want {
				t.Fatalf("got %+v, want %v", outcome, test.want)
			}
			if len(outcome.Message) > 20<<10 {
				t.Fatalf("got a message of %d bytes", len(outcome.Message))
			}
		})
	}
}

func TestF24_EndlessResponse(t *testing.T) {
	for name, begins := range map[string]string{
		"headers": "HTTP/1.1 200 OK\r\nX: ", "status line": "HTTP/1.1 200 ", "body": "HTTP/1.1 200 OK\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			written := make(chan int, 1)
			target, port := newTCPTarget(t, func(conn net.Conn) {
				total := 0
				_, err := io.WriteString(conn, begins)
				for piece := make([]byte, 64<<10); err == nil; {
					var n int
					n, err = conn.Write(piece)
					total += n
				}
				written <- total
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			check.New(nil).Check(ctx, newHTTPProbe(intstr.FromInt32(port)), target)
			if total := <-written; total > 16<<20 { // the kernel buffers most of it
				t.Fatalf("got %d MiB accepted, want less", total>>20)
			}
		})
	}
}

func TestF24_InvalidTLS(t *testing.T) {
	for name, handle := range map[string]func(net.Conn){
		"silence":        readUntilClosed,
		"garbage":        func(c net.Conn) { writeEndlessly(c, "", "garbage") },
		"partial record": writeThenHang("\x16\x03\x03\xff"),
		"early alert":    writeThenHang("\x15\x03\x03\x00\x02\x02\x28"),
		"HTTP response":  writeThenHang("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"closed":         func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			target, port := newTCPTarget(t, handle)
			ctx, cancel := context.WithTimeout(t.Context(), shortTimeout)
			defer cancel()
			https := newHTTPProbe(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS })
			if outcome := check.New(nil).Check(ctx, https, target); outcome.Result != judge.Failure {
				t.Fatalf("got %+v", outcome)
			}
			grpc := &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port}}}
			if outcome := check.New(nil).Check(ctx, grpc, target); outcome.Result != judge.Failure {
				t.Fatalf("grpc: got %+v", outcome)
			}
		})
	}
}

func TestBUG23_CancelCheck(t *testing.T) {
	for name, probe := range map[string]func(port int32) *v1.Probe{
		"http": func(port int32) *v1.Probe { return newHTTPProbe(intstr.FromInt32(port)) },
		"https": func(port int32) *v1.Probe {
			return newHTTPProbe(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS })
		},
		"grpc": func(port int32) *v1.Probe {
			return &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			connected := make(chan struct{}, 10)
			target, port := newTCPTarget(t, func(c net.Conn) {
				connected <- struct{}{}
				readUntilClosed(c)
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-connected
				cancel()
			}()
			if outcome := check.New(nil).Check(ctx, probe(port), target); outcome.Result != judge.Failure {
				t.Fatalf("got %+v", outcome)
			}
		})
	}
}

func TestF24_HangingServers(t *testing.T) {
	target, port := newTCPTarget(t, readUntilClosed)
	checker := check.New(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	before := countDescriptors(t)
	var checks sync.WaitGroup
	for range 200 {
		for range 5 {
			checks.Go(func() {
				if outcome := checker.Check(ctx, newHTTPProbe(intstr.FromInt32(port)), target); outcome.Result != judge.Failure {
					t.Errorf("got %+v", outcome)
				}
			})
		}
	}
	checks.Wait()
	for limit := time.Now().Add(time.Minute); countDescriptors(t) > before+2; { // the server closes its side later
		if time.Now().After(limit) {
			t.Fatalf("got %d descriptors before, %d after", before, countDescriptors(t))
		}
	}
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("/proc/self/fd is not readable")
	}
	return len(open)
}

func TestPRB29_F25_NoTimeWait(t *testing.T) {
	target, port := newTCPTarget(t, func(c net.Conn) { // closes after the client, which would be in TIME_WAIT
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		readUntilClosed(c)
	})
	checker := check.New(nil)
	for range 500 {
		for _, probe := range []*v1.Probe{
			newHTTPProbe(intstr.FromInt32(port)), {ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}},
		} {
			if outcome := checker.Check(t.Context(), probe, target); outcome.Result != judge.Success {
				t.Fatalf("got %+v", outcome)
			}
		}
	}
	if waiting := countTimeWait(t, port); waiting > 0 {
		t.Fatalf("got %d of 1000 connections in TIME_WAIT, want none", waiting)
	}
}

// countTimeWait counts the connections to a port of 127.0.0.1 in TIME_WAIT.
func countTimeWait(t *testing.T, port int32) int {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Skip("/proc/net/tcp is not readable")
	}
	const timeWait = "06"
	waiting := 0
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[2] == procNetAddress(port) && fields[3] == timeWait {
			waiting++
		}
	}
	return waiting
}

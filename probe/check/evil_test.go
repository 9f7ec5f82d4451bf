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

// behaving accepts connections and does that with each, until the test ends.
func behaving(t *testing.T, with func(net.Conn)) (check.Target, int32) {
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
				with(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		served.Wait()
	})
	return targetOf(listener)
}

// endless writes the same until nobody takes it any more.
func endless(conn net.Conn, first, again string) {
	_, err := io.WriteString(conn, first)
	for err == nil {
		_, err = io.WriteString(conn, again)
	}
}

// untilClosed reads and says nothing.
func untilClosed(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// silent says that and then nothing more.
func silent(said string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, said)
		untilClosed(conn)
	}
}

// request waits for a whole request.
func request(conn net.Conn) {
	lines := bufio.NewReader(conn)
	for line := "."; strings.TrimSpace(line) != ""; {
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			return
		}
	}
}

// evil are targets that mean harm, and what they are worth as an answer.
var evil = map[string]struct {
	does func(net.Conn)
	want judge.Result
}{
	"never answers":                   {untilClosed, judge.Failure},
	"stops within the status line":    {silent("HTTP/1.1 20"), judge.Failure},
	"stops within the headers":        {silent("HTTP/1.1 200 OK\r\nX: "), judge.Failure},
	"stops within the body":           {silent("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nx"), judge.Failure},
	"stops within a chunk":            {silent("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx"), judge.Failure},
	"endless headers":                 {func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\n", "X: "+strings.Repeat("y", 1000)+"\r\n") }, judge.Failure},
	"one endless header":              {func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\nX: ", strings.Repeat("y", 1000)) }, judge.Failure},
	"an endless status line":          {func(c net.Conn) { endless(c, "HTTP/1.1 200 ", strings.Repeat("y", 1000)) }, judge.Failure},
	"endless interim answers":         {func(c net.Conn) { endless(c, "", "HTTP/1.1 103 Early Hints\r\n\r\n") }, judge.Failure},
	"an endless body":                 {func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("y", 1000)) }, judge.Success},
	"an endless body of small chunks": {func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\ny\r\n") }, judge.Success},
	"an endless redirect's body":      {func(c net.Conn) { endless(c, "HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", strings.Repeat("y", 1000)) }, judge.Failure},
	"a body that breaks off": {func(c net.Conn) {
		request(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
	}, judge.Error},
	"no HTTP":                      {func(c net.Conn) { request(c); _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n") }, judge.Failure},
	"hangs up":                     {request, judge.Failure},
	"an answer before it is asked": {func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); request(c) }, judge.Success},
	"an interim answer before the real": {func(c net.Conn) {
		request(c)
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n")
	}, judge.Success},
	"many interim answers before the real": {func(c net.Conn) {
		request(c)
		_, _ = io.WriteString(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100)+"HTTP/1.1 204 No\r\n\r\n")
	}, judge.Success},
	"a code below all that are interim": {func(c net.Conn) {
		request(c)
		_, _ = io.WriteString(c, "HTTP/1.1 050 What\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
	}, judge.Failure},
}

// patience is real time, and short, for most here never answer.
const patience = 250 * time.Millisecond

// patienceFor is long for who must answer, however busy the machine is.
func patienceFor(want judge.Result) time.Duration {
	if want == judge.Failure {
		return patience
	}
	return time.Minute
}

func TestF24EvilTargetsAreAnsweredInTimeAndLeaveNothingBehind(t *testing.T) {
	for name, test := range evil {
		t.Run(name, func(t *testing.T) {
			target, port := behaving(t, test.does)
			ctx, cancel := context.WithTimeout(t.Context(), patienceFor(test.want))
			defer cancel()
			found := check.New(nil).Check(ctx, httpGet(intstr.FromInt32(port)), target)
			if found.Result != test.want {
				t.Fatalf("%+v, want %v", found, test.want)
			}
			if len(found.Message) > 20<<10 {
				t.Fatalf("a message of %d bytes", len(found.Message))
			}
		})
	}
}

func TestF24OfAnEndlessAnswerOnlyTheBeginningIsRead(t *testing.T) {
	for name, begins := range map[string]string{
		"headers": "HTTP/1.1 200 OK\r\nX: ", "status line": "HTTP/1.1 200 ", "body": "HTTP/1.1 200 OK\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			written := make(chan int, 1)
			target, port := behaving(t, func(conn net.Conn) {
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
			check.New(nil).Check(ctx, httpGet(intstr.FromInt32(port)), target)
			if total := <-written; total > 16<<20 { // most of which the kernel holds
				t.Fatalf("the server was rid of %d MiB", total>>20)
			}
		})
	}
}

func TestF24GarbageInsteadOfTLSIsAFailure(t *testing.T) {
	for name, does := range map[string]func(net.Conn){
		"nothing":        untilClosed,
		"garbage":        func(c net.Conn) { endless(c, "", "garbage") },
		"half a record":  silent("\x16\x03\x03\xff"),
		"an early alert": silent("\x15\x03\x03\x00\x02\x02\x28"),
		"an HTTP answer": silent("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"hangs up":       func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			target, port := behaving(t, does)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			https := httpGet(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS })
			if found := check.New(nil).Check(ctx, https, target); found.Result != judge.Failure {
				t.Fatalf("%+v", found)
			}
			grpc := &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port}}}
			if found := check.New(nil).Check(ctx, grpc, target); found.Result != judge.Failure {
				t.Fatalf("grpc: %+v", found)
			}
		})
	}
}

func TestBUG23ACheckEndsWhenItIsCancelled(t *testing.T) {
	for name, probe := range map[string]func(port int32) *v1.Probe{
		"http": func(port int32) *v1.Probe { return httpGet(intstr.FromInt32(port)) },
		"https": func(port int32) *v1.Probe {
			return httpGet(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS })
		},
		"grpc": func(port int32) *v1.Probe {
			return &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 10)
			target, port := behaving(t, func(c net.Conn) {
				asked <- struct{}{}
				untilClosed(c)
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-asked
				cancel()
			}()
			if found := check.New(nil).Check(ctx, probe(port), target); found.Result != judge.Failure {
				t.Fatalf("%+v", found)
			}
		})
	}
}

func TestF24AThousandHangingTargetsHoldOnlyTheirConnections(t *testing.T) {
	target, port := behaving(t, untilClosed)
	checker := check.New(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	before := descriptors(t)
	var checks sync.WaitGroup
	for range 200 {
		for range 5 {
			checks.Go(func() {
				if found := checker.Check(ctx, httpGet(intstr.FromInt32(port)), target); found.Result != judge.Failure {
					t.Errorf("%+v", found)
				}
			})
		}
	}
	checks.Wait()
	for limit := time.Now().Add(time.Minute); descriptors(t) > before+2; { // the server's side closes when it hears of it
		if time.Now().After(limit) {
			t.Fatalf("%d descriptors before, %d after", before, descriptors(t))
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("the machine does not tell which descriptors are open")
	}
	return len(open)
}

func TestPRB29F25AConnectionLeavesNoPortWaiting(t *testing.T) {
	target, port := behaving(t, func(c net.Conn) { // closes after us, so that we would wait
		request(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		untilClosed(c)
	})
	checker := check.New(nil)
	for range 500 {
		for _, probe := range []*v1.Probe{
			httpGet(intstr.FromInt32(port)), {ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}},
		} {
			if found := checker.Check(t.Context(), probe, target); found.Result != judge.Success {
				t.Fatalf("%+v", found)
			}
		}
	}
	if waiting := waitingTo(t, port); waiting > 0 {
		t.Fatalf("%d of 1000 connections wait for their time to be over", waiting)
	}
}

// waitingTo counts the connections to a port of 127.0.0.1 in TIME_WAIT.
func waitingTo(t *testing.T, port int32) int {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Skip("the machine does not tell which connections there are")
	}
	const timeWait = "06"
	waiting := 0
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[2] == hexAddress(port) && fields[3] == timeWait {
			waiting++
		}
	}
	return waiting
}

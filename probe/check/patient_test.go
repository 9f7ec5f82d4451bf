package check_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// refusals counts the connections of this machine that failed.
func refusals(t *testing.T) int {
	t.Helper()
	table, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	const attemptFails = 7
	_, line, _ := strings.Cut(string(table), "\nTcp: ") // the names
	_, line, _ = strings.Cut(line, "\nTcp: ")           // the numbers
	failed, err := strconv.Atoi(strings.Fields(line)[attemptFails-1])
	if err != nil {
		t.Fatal(err)
	}
	return failed
}

func TestBUG36APortThatIsNotOpenYetIsWaitedForAndNotAskedTwice(t *testing.T) {
	probes := map[string]func(port int32) v1.ProbeHandler{
		"http": func(port int32) v1.ProbeHandler {
			return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}}
		},
		"tcp": func(port int32) v1.ProbeHandler {
			return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}
		},
		"grpc": func(port int32) v1.ProbeHandler { return v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port}} },
	}
	for name, handler := range probes {
		t.Run(name, func(t *testing.T) {
			socket, port := boundPort(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			target := check.Target{Address: loopback, Container: &v1.Container{}, RetryRefused: true}
			before, found := refusals(t), make(chan check.Outcome, 1)
			go func() { found <- check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler(port)}, target) }()
			for refusals(t) == before && ctx.Err() == nil {
				runtime.Gosched()
			}
			asked := openPort(t, name, socket)
			if outcome := <-found; outcome.Result != judge.Success {
				t.Fatalf("%+v", outcome)
			}
			if asked != nil && *asked != 1 {
				t.Fatalf("it was asked %d times", *asked)
			}
		})
	}
}

// openPort serves at the socket's port until the test ends, and counts the requests of HTTP.
func openPort(t *testing.T, kind string, socket int) (asked *int) {
	t.Helper()
	if err := unix.Listen(socket, 128); err != nil {
		t.Fatal(err)
	}
	copied, err := unix.FcntlInt(uintptr(socket), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(copied), "socket")
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	switch kind {
	case "http":
		asked = new(int)
		server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *asked++ })}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
	case "grpc":
		server := grpc.NewServer()
		healthpb.RegisterHealthServer(server, health.NewServer())
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
	default:
		t.Cleanup(func() { _ = listener.Close() })
	}
	return asked
}

func TestAPatientCheckEndsWithItsTimeAndSaysWhy(t *testing.T) {
	port := closedPort(t)
	for name, handler := range map[string]v1.ProbeHandler{
		"http": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
		"tcp":  {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		"grpc": {GRPC: &v1.GRPCAction{Port: port}},
	} {
		target := check.Target{Address: loopback, Container: &v1.Container{}, RetryRefused: true}
		want := fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", port)
		var found check.Outcome
		// In a machine that is busy, the time may be over before it was refused once.
		for limit := 50 * time.Millisecond; limit < time.Minute && !strings.HasSuffix(found.Message, want); limit *= 4 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			found = check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler}, target)
			cancel()
		}
		if found.Result != judge.Failure || !strings.HasSuffix(found.Message, want) {
			t.Errorf("%s: %+v, want %q", name, found, want)
		}
	}
}

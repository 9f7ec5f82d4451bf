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
	"syscall"
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

// countRefused counts the failed connection attempts of this machine.
func countRefused(t *testing.T) int {
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

func TestBUG36_RetryRefused(t *testing.T) {
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
			socket, port := newBoundPort(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			target := check.Target{Address: loopback, Container: &v1.Container{}, RetryRefused: true}
			before, outcomes := countRefused(t), make(chan check.Outcome, 1)
			go func() { outcomes <- check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler(port)}, target) }()
			for countRefused(t) == before && ctx.Err() == nil {
				runtime.Gosched()
			}
			requests := serveSocket(t, name, socket)
			if outcome := <-outcomes; outcome.Result != judge.Success {
				t.Fatalf("got %+v", outcome)
			}
			if requests != nil && *requests != 1 {
				t.Fatalf("got %d requests, want 1", *requests)
			}
		})
	}
}

// serveSocket serves at the socket's port until the test ends, and counts HTTP requests.
func serveSocket(t *testing.T, kind string, socket int) (requests *int) {
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
		requests = new(int)
		server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *requests++ })}
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
	return requests
}

func TestCheck_RetryRefusedTimeout(t *testing.T) {
	port := newClosedPort(t)
	for name, handler := range map[string]v1.ProbeHandler{
		"http": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
		"tcp":  {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		"grpc": {GRPC: &v1.GRPCAction{Port: port}},
	} {
		target := check.Target{Address: loopback, Container: &v1.Container{}, RetryRefused: true}
		want := fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", port)
		var outcome check.Outcome
		// On a busy machine, the timeout may come before the first refusal.
		for limit := 50 * time.Millisecond; limit < time.Minute && !strings.HasSuffix(outcome.Message, want); limit *= 4 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			outcome = check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler}, target)
			cancel()
		}
		if outcome.Result != judge.Failure || !strings.HasSuffix(outcome.Message, want) {
			t.Errorf("%s: got %+v, want %q", name, outcome, want)
		}
	}
}

// exhaustDescriptors calls do while this process cannot open descriptors.
func exhaustDescriptors(t *testing.T, do func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	for range 64 {
		hog, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		defer hog.Close()
	}
	do()
}

func TestF28_NoDescriptors(t *testing.T) {
	target, port := newTCPTarget(t, func(c net.Conn) { readUntilClosed(c) })
	for name, handler := range map[string]v1.ProbeHandler{
		"http":         {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
		"tcp":          {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		"grpc":         {GRPC: &v1.GRPCAction{Port: port}},
		"http by name": {HTTPGet: &v1.HTTPGetAction{Host: "localhost", Port: intstr.FromInt32(port)}},
		"tcp by name":  {TCPSocket: &v1.TCPSocketAction{Host: "localhost", Port: intstr.FromInt32(port)}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			checker := check.New(nil)
			exhaustDescriptors(t, func() {
				if outcome := checker.Check(ctx, &v1.Probe{ProbeHandler: handler}, target); outcome.Result != judge.Error {
					t.Errorf("got %+v", outcome)
				}
			})
		})
	}
}

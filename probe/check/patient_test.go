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
	port := closedPort(t)
	number := intstr.FromInt32(port)
	probes := map[string]v1.ProbeHandler{
		"http": {HTTPGet: &v1.HTTPGetAction{Port: number}},
		"tcp":  {TCPSocket: &v1.TCPSocketAction{Port: number}},
		"grpc": {GRPC: &v1.GRPCAction{Port: port}},
	}
	for name, handler := range probes {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			target := check.Target{Address: loopback, Container: &v1.Container{}, Patient: true}
			before, found := refusals(t), make(chan check.Outcome, 1)
			go func() { found <- check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler}, target) }()
			for refusals(t) == before && ctx.Err() == nil {
				runtime.Gosched()
			}
			asked := openPort(t, name, port)
			if outcome := <-found; outcome.Result != judge.Success {
				t.Fatalf("%+v", outcome)
			}
			if asked != nil && *asked != 1 {
				t.Fatalf("it was asked %d times", *asked)
			}
		})
	}
}

// openPort serves at the port until the test ends, and counts the requests of HTTP.
func openPort(t *testing.T, kind string, port int32) (asked *int) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(int(port)))
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
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		target := check.Target{Address: loopback, Container: &v1.Container{}, Patient: true}
		found := check.New(nil).Check(ctx, &v1.Probe{ProbeHandler: handler}, target)
		cancel()
		want := fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", port)
		if found.Result != judge.Failure || !strings.HasSuffix(found.Message, want) {
			t.Errorf("%s: %+v, want %q", name, found, want)
		}
	}
}

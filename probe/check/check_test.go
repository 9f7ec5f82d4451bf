package check_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// procNetAddress formats 127.0.0.1 and the port as in /proc/net/tcp.
func procNetAddress(port int32) string { return fmt.Sprintf("0100007F:%04X", port) }

func TestPRB27_TCP(t *testing.T) {
	target, port := newTCPTarget(t, readUntilClosed)
	tcp := &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}}
	if outcome := runCheck(t, tcp, target); outcome.Result != judge.Success {
		t.Fatalf("got %+v", outcome)
	}
	tcp.TCPSocket.Host = "localhost"
	if outcome := runCheck(t, tcp, target); outcome.Result != judge.Success {
		t.Fatalf("by name: got %+v", outcome)
	}
	tcp.TCPSocket.Port = intstr.FromInt32(newClosedPort(t))
	if outcome := runCheck(t, tcp, target); outcome.Result != judge.Failure || !strings.Contains(outcome.Message, "refused") {
		t.Fatalf("closed port: got %+v", outcome)
	}
}

// newClosedPort returns a port without a listener.
func newClosedPort(t *testing.T) int32 {
	t.Helper()
	_, port := newBoundPort(t)
	return port
}

// newBoundPort returns a port without a listener. The socket reserves it until the test ends.
func newBoundPort(t *testing.T) (socket int, port int32) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(socket) })
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return socket, int32(name.(*unix.SockaddrInet4).Port)
}

func TestPRB28_GRPC(t *testing.T) {
	healthy := health.NewServer()
	healthy.SetServingStatus("up", healthpb.HealthCheckResponse_SERVING)
	healthy.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	with := newGRPCServer(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, healthy) })
	without := newGRPCServer(t, func(*grpc.Server) {})
	tests := map[string]struct {
		port    int32
		service *string
		want    judge.Result
		message string
	}{
		"server":              {with, nil, judge.Success, ""},
		"serving service":     {with, new("up"), judge.Success, ""},
		"service not serving": {with, new("down"), judge.Failure, "NOT_SERVING"},
		"unknown service":     {with, new("other"), judge.Failure, "unknown service"},
		"no health service":   {without, nil, judge.Failure, "does not implement grpc.health.v1.Health"},
		"no server":           {newClosedPort(t), nil, judge.Failure, "refused"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: test.port, Service: test.service}}}
			outcome := runCheck(t, probe, check.Target{Address: loopback, Container: &v1.Container{}})
			if outcome.Result != test.want || !strings.Contains(outcome.Message, test.message) {
				t.Fatalf("got %+v", outcome)
			}
		})
	}
}

func newGRPCServer(t *testing.T, register func(*grpc.Server)) int32 {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

// fakeRuntime runs commands with a function.
type fakeRuntime func(command []string) ([]byte, int, error)

// Exec implements check.Runtime.
func (r fakeRuntime) Exec(_ context.Context, _ observed.ContainerID, command []string) ([]byte, int, error) {
	return r(command)
}

func TestPRB23_Exec(t *testing.T) {
	long := strings.Repeat("x", 20<<10)
	returns := func(output string, code int, err error) fakeRuntime {
		return func([]string) ([]byte, int, error) { return []byte(output), code, err }
	}
	tests := map[string]struct {
		runtime check.Runtime
		want    check.Outcome
	}{
		"exit code 0":     {returns("fine", 0, nil), check.Outcome{Result: judge.Success, Message: "fine"}},
		"other exit code": {returns("ill", 7, nil), check.Outcome{Result: judge.Failure, Message: "ill"}},
		"long output":     {returns(long, 1, nil), check.Outcome{Result: judge.Failure, Message: long[:10<<10]}},
		"error":           {returns("", 0, errors.New("away")), check.Outcome{Result: judge.Error, Message: "away"}},
		"timeout in the runtime": {
			returns("", 0, fmt.Errorf("exec: %w", status.Error(codes.DeadlineExceeded, "late"))),
			check.Outcome{
				Result: judge.Failure, TimedOut: true,
				Message: `command timed out: "true" timed out after 1s`,
			},
		},
		"BUG-24 container not found": {
			returns("", 0, fmt.Errorf("exec: %w", status.Error(codes.NotFound, "gone"))),
			check.Outcome{Result: judge.NotFound, Message: "exec: rpc error: code = NotFound desc = gone"},
		},
		"no runtime": {nil, check.Outcome{Result: judge.Error, Message: "no runtime to run commands"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
			got := check.New(test.runtime).Check(t.Context(), probe, check.Target{Container: &v1.Container{}})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestPRB23_ExpandCommand(t *testing.T) {
	container := &v1.Container{Env: []v1.EnvVar{
		{Name: "PORT", Value: "80"}, {Name: "KEY", ValueFrom: &v1.EnvVarSource{}},
	}}
	var ran []string
	checker := check.New(fakeRuntime(func(command []string) ([]byte, int, error) {
		ran = command
		return nil, 0, nil
	}))
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{
		Command: []string{"get", ":$(PORT)", "$(KEY)", "$(OTHER)", "$$(PORT)"},
	}}}
	checker.Check(t.Context(), probe, check.Target{Container: container})
	if diff := cmp.Diff([]string{"get", ":80", "", "$(OTHER)", "$(PORT)"}, ran); diff != "" {
		t.Fatal(diff)
	}
}

func TestCheck_NoHandler(t *testing.T) {
	if outcome := runCheck(t, &v1.Probe{}, check.Target{}); outcome.Result != judge.Error {
		t.Fatalf("got %+v", outcome)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

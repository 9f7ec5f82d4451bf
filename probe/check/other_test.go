package check_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// hexAddress is 127.0.0.1 with that port as the kernel's table shows it.
func hexAddress(port int32) string { return fmt.Sprintf("0100007F:%04X", port) }

func TestPRB27WhoAcceptsAConnectionIsWell(t *testing.T) {
	target, port := behaving(t, untilClosed)
	tcp := &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}}
	if found := ask(t, tcp, target); found.Result != judge.Success {
		t.Fatalf("%+v", found)
	}
	tcp.TCPSocket.Host = "localhost"
	if found := ask(t, tcp, target); found.Result != judge.Success {
		t.Fatalf("by name: %+v", found)
	}
	tcp.TCPSocket.Port = intstr.FromInt32(closedPort(t))
	if found := ask(t, tcp, target); found.Result != judge.Failure || !strings.Contains(found.Message, "refused") {
		t.Fatalf("nobody listens: %+v", found)
	}
}

// closedPort is one that nobody listens on.
func closedPort(t *testing.T) int32 {
	t.Helper()
	_, port := boundPort(t)
	return port
}

// boundPort is one that nobody listens on, nor can before the test ends: a socket has it.
func boundPort(t *testing.T) (socket int, port int32) {
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

func TestPRB28OnlyAServiceThatServesIsWell(t *testing.T) {
	healthy := health.NewServer()
	healthy.SetServingStatus("up", healthpb.HealthCheckResponse_SERVING)
	healthy.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	with := grpcServer(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, healthy) })
	without := grpcServer(t, func(*grpc.Server) {})
	tests := map[string]struct {
		port    int32
		service *string
		want    judge.Result
		says    string
	}{
		"the server as a whole":        {with, nil, judge.Success, ""},
		"a service":                    {with, new("up"), judge.Success, ""},
		"a service that is down":       {with, new("down"), judge.Failure, "NOT_SERVING"},
		"a service that nobody knows":  {with, new("other"), judge.Failure, "unknown service"},
		"a server without the service": {without, nil, judge.Failure, "does not implement grpc.health.v1.Health"},
		"no server":                    {closedPort(t), nil, judge.Failure, "refused"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: test.port, Service: test.service}}}
			found := ask(t, probe, check.Target{Address: loopback, Container: &v1.Container{}})
			if found.Result != test.want || !strings.Contains(found.Message, test.says) {
				t.Fatalf("%+v", found)
			}
		})
	}
}

func grpcServer(t *testing.T, register func(*grpc.Server)) int32 {
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

// runtimeThat is a runtime with one answer.
type runtimeThat func(command []string) ([]byte, int, error)

// Exec implements check.Runtime.
func (r runtimeThat) Exec(_ context.Context, _ observed.ContainerID, command []string) ([]byte, int, error) {
	return r(command)
}

func TestPRB23ACommandsExitCodeDecides(t *testing.T) {
	long := strings.Repeat("x", 20<<10)
	answers := func(output string, code int, err error) runtimeThat {
		return func([]string) ([]byte, int, error) { return []byte(output), code, err }
	}
	tests := map[string]struct {
		runtime check.Runtime
		want    check.Outcome
	}{
		"zero":          {answers("fine", 0, nil), check.Outcome{Result: judge.Success, Message: "fine"}},
		"another":       {answers("ill", 7, nil), check.Outcome{Result: judge.Failure, Message: "ill"}},
		"a long output": {answers(long, 1, nil), check.Outcome{Result: judge.Failure, Message: long[:10<<10]}},
		"no answer":     {answers("", 0, errors.New("away")), check.Outcome{Result: judge.Error, Message: "away"}},
		"the runtime's time is over": {
			answers("", 0, fmt.Errorf("exec: %w", status.Error(codes.DeadlineExceeded, "late"))),
			check.Outcome{
				Result: judge.Failure, TimedOut: true,
				Message: `command timed out: "true" timed out after 1s`,
			},
		},
		"BUG-24: the container is gone": {
			answers("", 0, fmt.Errorf("exec: %w", status.Error(codes.NotFound, "gone"))),
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

func TestPRB23OnlyWhatTheSpecItselfSaysIsPutIntoCommands(t *testing.T) {
	container := &v1.Container{Env: []v1.EnvVar{
		{Name: "PORT", Value: "80"}, {Name: "KEY", ValueFrom: &v1.EnvVarSource{}},
	}}
	var ran []string
	checker := check.New(runtimeThat(func(command []string) ([]byte, int, error) {
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

func TestAProbeThatSaysNotHowIsAnError(t *testing.T) {
	if found := ask(t, &v1.Probe{}, check.Target{}); found.Result != judge.Error {
		t.Fatalf("%+v", found)
	}
}

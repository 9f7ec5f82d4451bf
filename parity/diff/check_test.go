package diff_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-base/version"
	remote "k8s.io/cri-client/pkg"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeprobe "k8s.io/kubernetes/pkg/probe"
	utilexec "k8s.io/utils/exec"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/probe/check"
	probejudge "github.com/heraldnode/herald/probe/judge"
)

// checkResult is the result of one check. Message is compared where operators see it.
type checkResult struct{ Outcome, Message string }

// The outcomes of a check.
const (
	outcomeSuccess = "success"
	outcomeWarning = "success with a warning"
	outcomeFailure = "failure"
	outcomeUnknown = "unknown"
	outcomeGone    = "no such container"
)

// defaultTimeoutSeconds is longer than any server in these tests takes.
const defaultTimeoutSeconds = 30

// checkCase is one check for both sides.
type checkCase struct {
	Probe     v1.Probe
	Container v1.Container
	// OwnNetwork tells Herald that the pod is not on the host's network. The kubelet does not distinguish.
	OwnNetwork bool
	runtime    *fakeExec
}

// podAddress is where the servers of these tests listen.
const podAddress = "127.0.0.1"

// checkKubelet returns the kubelet's result.
func (c *checkCase) checkKubelet() checkResult {
	spec := c.Probe
	if spec.TimeoutSeconds == 0 {
		spec.TimeoutSeconds = defaultTimeoutSeconds
	}
	result, output, err := kubelet.NewProber(c.runtime).Probe(&spec, &c.Container, podAddress)
	switch {
	case err != nil:
		return checkResult{outcomeUnknown, err.Error()}
	case result == kubeprobe.Success:
		return checkResult{Outcome: outcomeSuccess}
	case result == kubeprobe.Warning:
		message, _, _ := strings.Cut(output, ", Response body: ") // see TestPRB25_RedirectBody
		return checkResult{outcomeWarning, message}
	default:
		return checkResult{outcomeFailure, output}
	}
}

// checkHerald returns Herald's result.
func (c *checkCase) checkHerald(t *testing.T) checkResult {
	t.Helper()
	return c.runHerald(t.Context())
}

func (c *checkCase) runHerald(ctx context.Context) checkResult {
	timeout := time.Duration(c.Probe.TimeoutSeconds) * time.Second
	if timeout == 0 {
		timeout = defaultTimeoutSeconds * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := check.New(c.runtime).Check(ctx, &c.Probe, check.Target{
		Container: &c.Container, Address: netip.MustParseAddr(podAddress), PodNetwork: c.OwnNetwork,
	})
	switch {
	case result.Warning:
		message, _, _ := strings.Cut(result.Message, ", Response body: ") // see TestPRB25_RedirectBody
		return checkResult{outcomeWarning, message}
	case result.Result == probejudge.Success:
		return checkResult{Outcome: outcomeSuccess}
	case result.Result == probejudge.Failure:
		return checkResult{outcomeFailure, result.Message}
	case result.Result == probejudge.NotFound:
		return checkResult{outcomeGone, result.Message}
	default:
		return checkResult{outcomeUnknown, result.Message}
	}
}

// normalizeUserAgent replaces the kubelet's version by that of a release build.
func normalizeUserAgent(text string) string {
	v := version.Get()
	return strings.ReplaceAll(text, fmt.Sprintf("kube-probe/%s.%s", v.Major, v.Minor), "kube-probe/1.36")
}

// fakeExec is a runtime in which every command has the same result. It implements the interfaces of both sides.
type fakeExec struct {
	Output      string
	Code        int
	Err         error
	LastCommand []string
}

// RunInContainer implements kubecontainer.CommandRunner.
func (c *fakeExec) RunInContainer(
	_ context.Context, _ kubecontainer.ContainerID, command []string, _ time.Duration,
) ([]byte, error) {
	c.LastCommand = command
	switch {
	case errors.Is(c.Err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: %q", remote.ErrCommandTimedOut, command)
	case c.Err != nil:
		return nil, c.Err
	case c.Code != 0:
		return []byte(c.Output), utilexec.CodeExitError{Err: errors.New("exit status"), Code: c.Code}
	}
	return []byte(c.Output), nil
}

// Exec implements check.Runtime.
func (c *fakeExec) Exec(_ context.Context, _ observed.ContainerID, command []string) ([]byte, int, error) {
	c.LastCommand = command
	return []byte(c.Output), c.Code, c.Err
}

var errNotFound = status.Error(codes.NotFound, "no such container")

func TestPRB27_SameTCP(t *testing.T) {
	open, closed := newRawServer(t, false, reply{HangUp: true}), unusedPort(t)
	for name, tcp := range map[string]v1.TCPSocketAction{
		"open":              {Port: intstr.FromInt32(open.port)},
		"open, by name":     {Port: intstr.FromString("web")},
		"open, as text":     {Port: intstr.FromString(strconv.Itoa(int(open.port)))},
		"open, signed":      {Port: intstr.FromString("+" + strconv.Itoa(int(open.port)))},
		"open, by host":     {Port: intstr.FromInt32(open.port), Host: "localhost"},
		"closed":            {Port: intstr.FromInt32(closed)},
		"no such host":      {Port: intstr.FromInt32(open.port), Host: "no such host"},
		"no such name":      {Port: intstr.FromString("other")},
		"name without port": {Port: intstr.FromString("none")},
		"hexadecimal":       {Port: intstr.FromString("0x50")},
		"no port":           {},
		"above range":       {Port: intstr.FromInt32(65536)},
		"above range, text": {Port: intstr.FromString("65536")},
		"below range":       {Port: intstr.FromInt32(-1)},
		"below range, text": {Port: intstr.FromString("-1")},
		"too many digits":   {Port: intstr.FromString("18446744073709551617")},
		"more than 32 bit":  {Port: intstr.FromString("4294967376")},
	} {
		c := &checkCase{
			Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &tcp}},
			Container: v1.Container{Name: "app", Ports: []v1.ContainerPort{
				{Name: "web", ContainerPort: open.port}, {Name: "none"}, {Name: "web", ContainerPort: closed},
			}},
		}
		if theirs, ours := c.checkKubelet(), c.checkHerald(t); theirs.Outcome != ours.Outcome {
			t.Errorf("%s: kubelet: %+v, Herald: %+v", name, theirs, ours)
		}
	}
}

// unusedPort returns a port without a listener.
func unusedPort(t *testing.T) int32 {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

// fakeHealthServer answers as the service's name says and records requests.
type fakeHealthServer struct {
	healthpb.UnimplementedHealthServer
	mu       sync.Mutex // guards requests
	requests []string
}

func (c *fakeHealthServer) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	c.mu.Lock()
	seen, _ := metadata.FromIncomingContext(ctx)
	c.requests = append(c.requests, normalizeUserAgent(fmt.Sprint(r.Service, seen)))
	c.mu.Unlock()
	switch code := slices.Index(grpcCodes, r.Service); {
	case r.Service == "hangs":
		<-ctx.Done()
		return nil, ctx.Err()
	case code >= 0:
		return nil, status.Error(codes.Code(code), "fake error")
	case r.Service == "":
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
	}
	state := healthpb.HealthCheckResponse_ServingStatus(healthpb.HealthCheckResponse_ServingStatus_value[r.Service])
	if r.Service == "UNDEFINED" {
		state = 99
	}
	return &healthpb.HealthCheckResponse{Status: state}, nil
}

// grpcCodes are the names of all codes except OK.
var grpcCodes = func() []string {
	names := []string{"never"}
	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		names = append(names, code.String())
	}
	return names
}()

// serveGRPC serves the health server, or no service, and returns the port.
func serveGRPC(t *testing.T, c *fakeHealthServer) int32 {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	if c != nil {
		healthpb.RegisterHealthServer(server, c)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

func (c *fakeHealthServer) takeRequests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.requests
	c.requests = nil
	return heard
}

func newGRPCCase(port int32, service *string) *checkCase {
	return &checkCase{Probe: v1.Probe{
		ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port, Service: service}}, TimeoutSeconds: 1,
	}}
}

func TestPRB28_SameHealthServers(t *testing.T) {
	server := &fakeHealthServer{}
	port := serveGRPC(t, server)
	services := append([]string{"", "SERVING", "NOT_SERVING", "UNKNOWN", "SERVICE_UNKNOWN", "UNDEFINED", "hangs", "ünknown"}, grpcCodes...)
	cases := map[string]*checkCase{"no service": newGRPCCase(port, nil)}
	for _, service := range services {
		cases[service] = newGRPCCase(port, &service)
	}
	for name, check := range cases {
		theirs, requests := check.checkKubelet(), server.takeRequests()
		ours := check.checkHerald(t)
		if theirs.Outcome != ours.Outcome {
			t.Errorf("%q: kubelet: %+v, Herald: %+v", name, theirs, ours)
		}
		if diff := cmp.Diff(requests, server.takeRequests()); diff != "" {
			t.Errorf("%q: requests of the kubelet (-) and of Herald (+) differ:\n%s", name, diff)
		}
	}
}

func TestPRB28_NoHealthServer(t *testing.T) {
	server := newRawServer(t, false, httpReply(200, ""))
	for name, port := range map[string]int32{
		"no health service": serveGRPC(t, nil), "no listener": unusedPort(t), "web server": server.port,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the kubelet uses its whole timeout of one second
			check := newGRPCCase(port, nil)
			if theirs, ours := check.checkKubelet(), check.checkHerald(t); theirs.Outcome != outcomeFailure || ours.Outcome != outcomeFailure {
				t.Errorf("kubelet: %+v, Herald: %+v", theirs, ours)
			}
		})
	}
}

func TestPRB23_SameExitCodes(t *testing.T) {
	for name, exec := range map[string]fakeExec{
		"success":             {Output: "well"},
		"failure":             {Output: "ill", Code: 1},
		"killed":              {Output: "ill", Code: 137},
		"exit code -1":        {Code: -1},
		"invalid UTF-8":       {Output: "\xff\x00", Code: 2},
		"long output":         {Output: strings.Repeat("x", 10<<10+5), Code: 3},
		"timeout":             {Err: context.DeadlineExceeded},
		"runtime unavailable": {Err: status.Error(codes.Unavailable, "away")},
		"other error":         {Err: errors.New("what")},
	} {
		c := &checkCase{Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}}, runtime: &exec}
		theirs, ours := c.checkKubelet(), c.checkHerald(t)
		if name == "timeout" {
			theirs.Message, ours.Message = "", "" // worded differently
		}
		if theirs != ours {
			t.Errorf("%s: kubelet: %+v, Herald: %+v", name, theirs, ours)
		}
	}
}

// compareCommands compares the expansion of variables in commands.
var compareCommands = newComparison(
	func(g *generator) checkCase {
		c := checkCase{Container: v1.Container{Name: "app"}}
		for range g.IntN(4) {
			variable := v1.EnvVar{Name: oneOf(g, "A", "B", "C", "A.B"), Value: oneOf(g, "", "a", "$(A)", "$(B)c", "$$(A)", "$")}
			if g.chance(20) {
				variable.ValueFrom = &v1.EnvVarSource{}
			}
			c.Container.Env = append(c.Container.Env, variable)
		}
		action := &v1.ExecAction{}
		for range 1 + g.IntN(3) {
			action.Command = append(action.Command, oneOf(g,
				"$(A)", "x$(B)y", "$$(A)", "$(D)", "$(A", "$", "$$", "$()", "$(A)$(C)", "$($(A))", "$(A.B)", "plain", ""))
		}
		c.Probe.Exec = action
		return c
	},
	func(c checkCase) string {
		theirs, ours := &fakeExec{}, &fakeExec{}
		c.runtime = theirs
		c.checkKubelet()
		c.runtime = ours
		c.runHerald(context.Background())
		if slices.Equal(theirs.LastCommand, ours.LastCommand) {
			return ""
		}
		return describeMismatch(strings.Join(theirs.LastCommand, "|"), strings.Join(ours.LastCommand, "|"))
	},
)

func TestPRB23_SameExpansion(t *testing.T) { compareCommands.run(t) }

// outcomes returns the outcome of each side.
func outcomes(t *testing.T, c *checkCase) sides[string] {
	t.Helper()
	return pair(c.checkKubelet().Outcome, c.checkHerald(t).Outcome)
}

func TestPRB24_NodeAddressesRejected(t *testing.T) {
	server := newRawServer(t, false, httpReply(200, ""))
	c := &checkCase{OwnNetwork: true, Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{
		HTTPGet: &v1.HTTPGetAction{Host: "localhost", Port: intstr.FromInt32(server.port)},
	}}}
	expect(t, "http", outcomes(t, c), pair(outcomeSuccess, outcomeUnknown))
	c.Probe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(server.port)}}
	expect(t, "tcp", outcomes(t, c), pair(outcomeSuccess, outcomeUnknown))
	c.OwnNetwork = false
	expect(t, "tcp, host network", outcomes(t, c), pair(outcomeSuccess, outcomeSuccess))
}

func TestPRB25_UnfinishedBody(t *testing.T) {
	t.Parallel() // both wait for the timeout
	theirs, ours := newRawServers(t).check(t, httpCase{Timeout: 1, Replies: []reply{{
		Text: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", KeepOpen: true,
	}}})
	expect(t, "outcome", pair(theirs.Result.Outcome, ours.Result.Outcome), pair(outcomeUnknown, outcomeFailure))
}

func TestPRB25_RedirectBody(t *testing.T) {
	server := newRawServer(t, false, httpReply(302, "secret", "Location: http://other.invalid/"))
	c := &checkCase{Probe: v1.Probe{TimeoutSeconds: defaultTimeoutSeconds, ProbeHandler: v1.ProbeHandler{
		HTTPGet: &v1.HTTPGetAction{Host: podAddress, Port: intstr.FromInt32(server.port)},
	}}}
	_, output, err := kubelet.NewProber(c.runtime).Probe(&c.Probe, &c.Container, podAddress)
	if err != nil {
		t.Fatal(err)
	}
	published := func(message string) bool { return strings.Contains(message, "secret") }
	expect(t, "body in the event", pair(published(output), published(c.checkHerald(t).Message)), pair(true, false))
}

func TestPRB25_HeaderLimit(t *testing.T) {
	theirs, ours := newRawServers(t).check(t, httpCase{Replies: []reply{httpReply(200, "", "X: "+strings.Repeat("x", 200<<10))}})
	expect(t, "outcome", pair(theirs.Result.Outcome, ours.Result.Outcome), pair(outcomeSuccess, outcomeFailure))
}

func TestPRB28_ConnectionRefused(t *testing.T) {
	t.Parallel() // the kubelet waits for the timeout
	c := newGRPCCase(unusedPort(t), nil)
	theirs, ours := c.checkKubelet(), c.checkHerald(t)
	expect(t, "outcome", pair(theirs.Outcome, ours.Outcome), pair(outcomeFailure, outcomeFailure))
	mentionsRefusal := func(result checkResult) bool { return strings.Contains(result.Message, "connection refused") }
	expect(t, "mentions the refusal", pair(mentionsRefusal(theirs), mentionsRefusal(ours)), pair(false, true))
}

func TestPRB29_ConnectionReset(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c := &checkCase{Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{
		TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)},
	}}}
	expect(t, "tcp", outcomes(t, c), pair(outcomeSuccess, outcomeSuccess))
	readEnd := func() error {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	theirs, ours := readEnd(), readEnd()
	expect(t, "closed gracefully", pair(errors.Is(theirs, io.EOF), errors.Is(ours, io.EOF)), pair(true, false))
	expect(t, "reset", pair(errors.Is(theirs, syscall.ECONNRESET), errors.Is(ours, syscall.ECONNRESET)), pair(false, true))
}

func TestPRB30_PodWithoutAddress(t *testing.T) {
	server := newRawServer(t, false, httpReply(200, ""))
	spec := &v1.Probe{TimeoutSeconds: defaultTimeoutSeconds, ProbeHandler: v1.ProbeHandler{
		TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(server.port)},
	}}
	theirs, _, err := kubelet.NewProber(nil).Probe(spec, &v1.Container{}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, ours, _ := probejudge.New(probejudge.NewParams(probejudge.Readiness, spec)).Due(probejudge.Container{
		ID: containerID("app", 1), State: observed.Running, Started: true, Reachable: !check.NeedsAddress(spec),
	}, time.Now())
	expect(t, "process on the node probed", pair(string(theirs) == outcomeSuccess, ours), pair(true, false))
}

func TestBUG24_ContainerGone(t *testing.T) {
	c := &checkCase{
		Probe:   v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}},
		runtime: &fakeExec{Err: errNotFound},
	}
	expect(t, "outcome", outcomes(t, c), pair(outcomeUnknown, outcomeGone))
}

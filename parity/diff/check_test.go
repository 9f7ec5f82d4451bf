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

// finding is what came of one check. The message counts where an operator sees it.
type finding struct{ Verdict, Message string }

// What a check finds.
const (
	succeeds = "success"
	warns    = "success with a warning"
	fails    = "failure"
	errs     = "nobody knows"
	isGone   = "no such container"
)

// patience is longer than any honest answer takes.
const patience = 30

// checked is one thing to check for both.
type checked struct {
	Probe     v1.Probe
	Container v1.Container
	// OwnNetwork tells us that the pod is not on the host's network. The kubelet does not ask.
	OwnNetwork bool
	runs       *commands
}

// podAddress is where the servers of these tests listen.
const podAddress = "127.0.0.1"

// kubelet is what the kubelet finds.
func (c *checked) kubelet() finding {
	spec := c.Probe
	if spec.TimeoutSeconds == 0 {
		spec.TimeoutSeconds = patience
	}
	result, output, err := kubelet.NewProber(c.runs).Probe(&spec, &c.Container, podAddress)
	switch {
	case err != nil:
		return finding{errs, err.Error()}
	case result == kubeprobe.Success:
		return finding{Verdict: succeeds}
	case result == kubeprobe.Warning:
		return finding{warns, output}
	default:
		return finding{fails, output}
	}
}

// herald is what we find.
func (c *checked) herald(t *testing.T) finding {
	t.Helper()
	return c.ask(t.Context())
}

func (c *checked) ask(ctx context.Context) finding {
	timeout := time.Duration(c.Probe.TimeoutSeconds) * time.Second
	if timeout == 0 {
		timeout = patience * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found := check.New(c.runs).Check(ctx, &c.Probe, check.Target{
		Container: &c.Container, Address: netip.MustParseAddr(podAddress), PodNetwork: c.OwnNetwork,
	})
	switch {
	case found.Warning:
		return finding{warns, found.Message}
	case found.Result == probejudge.Success:
		return finding{Verdict: succeeds}
	case found.Result == probejudge.Failure:
		return finding{fails, found.Message}
	case found.Result == probejudge.NotFound:
		return finding{isGone, found.Message}
	default:
		return finding{errs, found.Message}
	}
}

// sameAgent writes the kubelet's name for itself as it would be in a kubelet that was built to be released.
func sameAgent(text string) string {
	v := version.Get()
	return strings.ReplaceAll(text, fmt.Sprintf("kube-probe/%s.%s", v.Major, v.Minor), "kube-probe/1.36")
}

// commands is a runtime in which every command ends alike. It implements both sides' interfaces.
type commands struct {
	Output string
	Code   int
	Err    error
	// Ran is the command that was run last.
	Ran []string
}

// RunInContainer implements kubecontainer.CommandRunner.
func (c *commands) RunInContainer(
	_ context.Context, _ kubecontainer.ContainerID, command []string, _ time.Duration,
) ([]byte, error) {
	c.Ran = command
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
func (c *commands) Exec(_ context.Context, _ observed.ContainerID, command []string) ([]byte, int, error) {
	c.Ran = command
	return []byte(c.Output), c.Code, c.Err
}

var errNotFound = status.Error(codes.NotFound, "no such container")

func TestPRB27BothConnectAlike(t *testing.T) {
	open, closed := newSite(t, false, reply{Deaf: true}), closedPort(t)
	for name, tcp := range map[string]v1.TCPSocketAction{
		"open":             {Port: intstr.FromInt32(open.port)},
		"open, by a name":  {Port: intstr.FromString("web")},
		"open, as text":    {Port: intstr.FromString(strconv.Itoa(int(open.port)))},
		"open, signed":     {Port: intstr.FromString("+" + strconv.Itoa(int(open.port)))},
		"open, by host":    {Port: intstr.FromInt32(open.port), Host: "localhost"},
		"closed":           {Port: intstr.FromInt32(closed)},
		"no such host":     {Port: intstr.FromInt32(open.port), Host: "no such host"},
		"no such name":     {Port: intstr.FromString("other")},
		"a name without":   {Port: intstr.FromString("none")},
		"hexadecimal":      {Port: intstr.FromString("0x50")},
		"no port":          {},
		"above all":        {Port: intstr.FromInt32(65536)},
		"above all, text":  {Port: intstr.FromString("65536")},
		"below all":        {Port: intstr.FromInt32(-1)},
		"below all, text":  {Port: intstr.FromString("-1")},
		"too many digits":  {Port: intstr.FromString("18446744073709551617")},
		"more than 32 bit": {Port: intstr.FromString("4294967376")},
	} {
		c := &checked{
			Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &tcp}},
			Container: v1.Container{Name: "app", Ports: []v1.ContainerPort{
				{Name: "web", ContainerPort: open.port}, {Name: "none"}, {Name: "web", ContainerPort: closed},
			}},
		}
		if theirs, ours := c.kubelet(), c.herald(t); theirs.Verdict != ours.Verdict {
			t.Errorf("%s: kubelet: %+v, Herald: %+v", name, theirs, ours)
		}
	}
}

// closedPort is one that nobody listens on.
func closedPort(t *testing.T) int32 {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

// clinic is a health server that says of each service what its name says, and writes down who asked.
type clinic struct {
	healthpb.UnimplementedHealthServer
	mu    sync.Mutex // guards asked
	asked []string
}

func (c *clinic) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	c.mu.Lock()
	seen, _ := metadata.FromIncomingContext(ctx)
	c.asked = append(c.asked, sameAgent(fmt.Sprint(r.Service, seen)))
	c.mu.Unlock()
	switch code := slices.Index(grpcCodes, r.Service); {
	case r.Service == "hangs":
		<-ctx.Done()
		return nil, ctx.Err()
	case code >= 0:
		return nil, status.Error(codes.Code(code), "so it is")
	case r.Service == "":
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
	}
	state := healthpb.HealthCheckResponse_ServingStatus(healthpb.HealthCheckResponse_ServingStatus_value[r.Service])
	if r.Service == "UNHEARD_OF" {
		state = 99
	}
	return &healthpb.HealthCheckResponse{Status: state}, nil
}

// grpcCodes are the names of all codes but OK.
var grpcCodes = func() []string {
	names := []string{"never"}
	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		names = append(names, code.String())
	}
	return names
}()

// serveGRPC serves the clinic, or nothing, and returns the port.
func serveGRPC(t *testing.T, c *clinic) int32 {
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

func (c *clinic) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.asked
	c.asked = nil
	return heard
}

func healthOf(port int32, service *string) *checked {
	return &checked{Probe: v1.Probe{
		ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port, Service: service}}, TimeoutSeconds: 1,
	}}
}

func TestPRB28BothMakeTheSameOfHealthServers(t *testing.T) {
	c := &clinic{}
	port := serveGRPC(t, c)
	services := append([]string{"", "SERVING", "NOT_SERVING", "UNKNOWN", "SERVICE_UNKNOWN", "UNHEARD_OF", "hangs", "ünknown"}, grpcCodes...)
	asks := map[string]*checked{"nobody said which": healthOf(port, nil)}
	for _, service := range services {
		asks[service] = healthOf(port, &service)
	}
	for name, ask := range asks {
		theirs, seen := ask.kubelet(), c.heard()
		ours := ask.herald(t)
		if theirs.Verdict != ours.Verdict {
			t.Errorf("%q: kubelet: %+v, Herald: %+v", name, theirs, ours)
		}
		if diff := cmp.Diff(seen, c.heard()); diff != "" {
			t.Errorf("%q: the server saw of the kubelet (-), of Herald (+):\n%s", name, diff)
		}
	}
}

func TestPRB28BothFailWhereThereIsNoHealthServer(t *testing.T) {
	web := newSite(t, false, reasonable(200, ""))
	for name, port := range map[string]int32{
		"a server without the service": serveGRPC(t, nil), "nobody": closedPort(t), "a web server": web.port,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the kubelet takes all of its second
			ask := healthOf(port, nil)
			if theirs, ours := ask.kubelet(), ask.herald(t); theirs.Verdict != fails || ours.Verdict != fails {
				t.Errorf("kubelet: %+v, Herald: %+v", theirs, ours)
			}
		})
	}
}

func TestPRB23BothJudgeCommandsAlike(t *testing.T) {
	for name, ran := range map[string]commands{
		"it is well":     {Output: "well"},
		"it is not":      {Output: "ill", Code: 1},
		"it was killed":  {Output: "ill", Code: 137},
		"no exit code":   {Code: -1},
		"no characters":  {Output: "\xff\x00", Code: 2},
		"too much":       {Output: strings.Repeat("x", 10<<10+5), Code: 3},
		"it took longer": {Err: context.DeadlineExceeded},
		"no runtime":     {Err: status.Error(codes.Unavailable, "away")},
		"any error":      {Err: errors.New("what")},
	} {
		c := &checked{Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ask"}}}}, runs: &ran}
		theirs, ours := c.kubelet(), c.herald(t)
		if name == "it took longer" {
			theirs.Message, ours.Message = "", "" // each in its own words
		}
		if theirs != ours {
			t.Errorf("%s: kubelet: %+v, Herald: %+v", name, theirs, ours)
		}
	}
}

// compareCommands has each side put variables into commands.
var compareCommands = compared(
	func(d *drawer) checked {
		c := checked{Container: v1.Container{Name: "app"}}
		for range d.IntN(4) {
			variable := v1.EnvVar{Name: oneOf(d, "A", "B", "C", "A.B"), Value: oneOf(d, "", "a", "$(A)", "$(B)c", "$$(A)", "$")}
			if d.chance(20) {
				variable.ValueFrom = &v1.EnvVarSource{}
			}
			c.Container.Env = append(c.Container.Env, variable)
		}
		action := &v1.ExecAction{}
		for range 1 + d.IntN(3) {
			action.Command = append(action.Command, oneOf(d,
				"$(A)", "x$(B)y", "$$(A)", "$(D)", "$(A", "$", "$$", "$()", "$(A)$(C)", "$($(A))", "$(A.B)", "plain", ""))
		}
		c.Probe.Exec = action
		return c
	},
	func(c checked) string {
		theirs, ours := &commands{}, &commands{}
		c.runs = theirs
		c.kubelet()
		c.runs = ours
		c.ask(context.Background())
		if slices.Equal(theirs.Ran, ours.Ran) {
			return ""
		}
		return unlike(strings.Join(theirs.Ran, "|"), strings.Join(ours.Ran, "|"))
	},
)

func TestPRB23BothPutTheSameIntoCommands(t *testing.T) { compareCommands.run(t) }

// verdicts is what each found.
func verdicts(t *testing.T, c *checked) said[string] {
	t.Helper()
	return pair(c.kubelet().Verdict, c.herald(t).Verdict)
}

func TestPRB24TheNodesOwnAddressesAreNotAPodsToProbe(t *testing.T) {
	web := newSite(t, false, reasonable(200, ""))
	c := &checked{OwnNetwork: true, Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{
		HTTPGet: &v1.HTTPGetAction{Host: "localhost", Port: intstr.FromInt32(web.port)},
	}}}
	expect(t, "http", verdicts(t, c), pair(succeeds, errs))
	c.Probe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(web.port)}}
	expect(t, "tcp", verdicts(t, c), pair(succeeds, errs))
	c.OwnNetwork = false
	expect(t, "tcp on the host's network", verdicts(t, c), pair(succeeds, succeeds))
}

func TestPRB25ABodyWithoutEndIsAFailure(t *testing.T) {
	t.Parallel() // each waits for its timeout
	theirs, ours := newSites(t).pay(t, visit{Timeout: 1, Replies: []reply{{
		Text: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", Silent: true,
	}}})
	expect(t, "found", pair(theirs.Found.Verdict, ours.Found.Verdict), pair(errs, fails))
}

func TestPRB25HeadersHaveAnEnd(t *testing.T) {
	theirs, ours := newSites(t).pay(t, visit{Replies: []reply{reasonable(200, "", "X: "+strings.Repeat("x", 200<<10))}})
	expect(t, "found", pair(theirs.Found.Verdict, ours.Found.Verdict), pair(succeeds, fails))
}

func TestPRB28WhoRefusesAConnectionIsNotWaitedFor(t *testing.T) {
	t.Parallel() // the kubelet waits for its timeout
	c := healthOf(closedPort(t), nil)
	theirs, ours := c.kubelet(), c.herald(t)
	expect(t, "found", pair(theirs.Verdict, ours.Verdict), pair(fails, fails))
	says := func(found finding) bool { return strings.Contains(found.Message, "connection refused") }
	expect(t, "says why", pair(says(theirs), says(ours)), pair(false, true))
}

func TestPRB29NoConnectionIsLeftBehind(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c := &checked{Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{
		TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)},
	}}}
	expect(t, "tcp", verdicts(t, c), pair(succeeds, succeeds))
	end := func() error {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	theirs, ours := end(), end()
	expect(t, "closed in order", pair(errors.Is(theirs, io.EOF), errors.Is(ours, io.EOF)), pair(true, false))
	expect(t, "reset", pair(errors.Is(theirs, syscall.ECONNRESET), errors.Is(ours, syscall.ECONNRESET)), pair(false, true))
}

func TestPRB30APodWithoutAnAddressIsNotProbed(t *testing.T) {
	web := newSite(t, false, reasonable(200, ""))
	spec := &v1.Probe{TimeoutSeconds: patience, ProbeHandler: v1.ProbeHandler{
		TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(web.port)},
	}}
	theirs, _, err := kubelet.NewProber(nil).Probe(spec, &v1.Container{}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, ours, _ := probejudge.New(probejudge.NewParams(probejudge.Readiness, spec)).Due(probejudge.Container{
		ID: containerID("app", 1), State: observed.Running, Started: true, Reachable: !check.NeedsAddress(spec),
	}, time.Now())
	expect(t, "the process on the node is asked", pair(string(theirs) == succeeds, ours), pair(true, false))
}

func TestBUG24AContainerThatIsGoneIsNoErrorOfTheRuntime(t *testing.T) {
	c := &checked{
		Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"ask"}}}},
		runs:  &commands{Err: errNotFound},
	}
	expect(t, "found", verdicts(t, c), pair(errs, isGone))
}

package diff_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/probe/check"
	probejudge "github.com/heraldnode/herald/probe/judge"
)

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
	theirs, _, err := kubelet.NewChecker(nil).Check(spec, &v1.Container{}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, ours, _ := probejudge.New(probejudge.RulesOf(probejudge.Readiness, spec)).Look(probejudge.Container{
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

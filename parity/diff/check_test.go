package diff_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
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
	result, output, err := kubelet.NewChecker(c.runs).Check(&spec, &c.Container, podAddress)
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
		Container: &c.Container, Address: netip.MustParseAddr(podAddress), OwnNetwork: c.OwnNetwork,
	})
	switch {
	case found.Warning:
		return finding{warns, found.Message}
	case found.Result == probejudge.Success:
		return finding{Verdict: succeeds}
	case found.Result == probejudge.Failure:
		return finding{fails, found.Message}
	case found.Result == probejudge.Gone:
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

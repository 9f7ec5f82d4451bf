// Package check performs one check of one container: it runs a command in it, sends an HTTP request, opens a connection or
// uses the gRPC health protocol. The target may be hostile: time, memory and descriptors are bounded whatever it does (F24).
package check

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/probe/judge"
)

// Runtime runs commands in containers.
type Runtime interface {
	// Exec runs a command in a container and returns its output. A command that ran yields no error, whatever its exit code.
	// When ctx ends, Exec returns at once and the command is killed.
	Exec(ctx context.Context, id observed.ContainerID, command []string) (output []byte, exitCode int, err error)
}

// maxOutput limits how many bytes of a response are read. A response may be endless.
const maxOutput = 10 << 10

// userAgent is the kubelet's user agent, with the version that our behaviour was compared with.
const userAgent = "kube-probe/1.36"

// Target is a container to check.
type Target struct {
	// Container is the spec: it defines port names and environment variables.
	Container *v1.Container
	ID        observed.ContainerID
	// Address is the pod's address. It must be valid if the probe needs it, see [NeedsAddress].
	Address netip.Addr
	// PodNetwork reports that the pod is not on the host network. A probe that names an address of the node, a link-local
	// address or a metadata service is rejected then: the pod itself must not reach them.
	PodNetwork bool
	// RetryRefused reports that the container may not have opened its ports yet: a refused connection is retried until the
	// check times out. No request has reached the container before, so that it is not checked more often than its period
	// allows (BUG-36).
	RetryRefused bool
}

// Outcome is the outcome of a check.
type Outcome struct {
	Result judge.Result
	// Message explains the result. It is untrusted: sanitize it before display.
	Message string
	// Warning reports that the message is worth an event although the check succeeded.
	Warning bool
	// TimedOut reports that a command was killed because it timed out (BUG-37).
	TimedOut bool
}

func newFailure(message string) Outcome { return Outcome{Result: judge.Failure, Message: message} }
func newError(err error) Outcome        { return Outcome{Result: judge.Error, Message: err.Error()} }

// Checker performs checks. It is safe for concurrent use and holds no connection open between checks.
type Checker struct {
	runtime    Runtime
	transports map[dialer]*transport
}

// New returns a Checker. Without a runtime, exec probes end with an error.
func New(runtime Runtime) *Checker {
	c := &Checker{runtime: runtime, transports: map[dialer]*transport{}}
	for _, rejectLocal := range []bool{false, true} {
		for _, retryRefused := range []bool{false, true} {
			d := dialer{rejectLocal: rejectLocal, retryRefused: retryRefused}
			c.transports[d] = newTransport(d)
		}
	}
	return c
}

// NeedsAddress reports whether the probe uses the pod's address.
func NeedsAddress(probe *v1.Probe) bool {
	switch {
	case probe.HTTPGet != nil:
		return probe.HTTPGet.Host == ""
	case probe.TCPSocket != nil:
		return probe.TCPSocket.Host == ""
	default:
		return probe.GRPC != nil
	}
}

// Check performs one check. It returns soon after ctx ends. A target that has not responded by then has failed.
func (c *Checker) Check(ctx context.Context, probe *v1.Probe, target Target) Outcome {
	switch {
	case probe.Exec != nil:
		return c.checkExec(ctx, probe, target)
	case probe.HTTPGet != nil:
		return c.transport(probe.HTTPGet.Host, target).checkHTTP(ctx, probe.HTTPGet, target)
	case probe.TCPSocket != nil:
		return c.transport(probe.TCPSocket.Host, target).dialer.checkTCP(ctx, probe.TCPSocket, target)
	case probe.GRPC != nil:
		return c.transport("", target).dialer.checkGRPC(ctx, probe.GRPC, target)
	default:
		return newError(errors.New("probe has no handler: want exec, httpGet, tcpSocket or grpc"))
	}
}

// transport returns the transport for the host that the spec names, or for the pod's address if it is empty. Hosts named by
// pods outside the host network must not be local.
func (c *Checker) transport(host string, target Target) *transport {
	return c.transports[dialer{rejectLocal: host != "" && target.PodNetwork, retryRefused: target.RetryRefused}]
}

// targetHost returns the host that the spec names, else the pod's address.
func targetHost(host string, target Target) string {
	if host != "" {
		return host
	}
	return target.Address.String()
}

// resolvePort returns the port number. A port may be the name of a container port, or a number as text.
func resolvePort(port intstr.IntOrString, container *v1.Container) (uint16, error) {
	number := int64(port.IntVal)
	if port.Type == intstr.String {
		var err error
		if number, err = resolveNamedPort(port.StrVal, container); err != nil {
			return 0, err
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("container %s: port %d is not between 1 and 65535", container.Name, number)
	}
	return uint16(number), nil
}

func resolveNamedPort(name string, container *v1.Container) (int64, error) {
	for i := range container.Ports {
		if container.Ports[i].Name == name {
			return int64(container.Ports[i].ContainerPort), nil
		}
	}
	number, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("container %s has no port named %q", container.Name, name)
	}
	return number, nil
}

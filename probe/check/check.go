// Package check asks one container once how it is: by a command in it, an HTTP request, a connection, or gRPC's health
// protocol. Whoever answers may be hostile: time, memory and descriptors are bounded whatever it does (F24).
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
	// Exec runs a command in a container and returns what it wrote. A command that ran has no error, whatever its exit
	// code. When ctx ends it returns at once, and the command is killed.
	Exec(ctx context.Context, id observed.ContainerID, command []string) (output []byte, exitCode int, err error)
}

// maxOutput is how much of an answer is read: more is not needed, and may never end.
const maxOutput = 10 << 10

// userAgent tells servers who asks, in the kubelet's words, with the version that our behaviour was compared with.
const userAgent = "kube-probe/1.36"

// Target is what is checked.
type Target struct {
	// Container is the spec, for the names of its ports and its variables.
	Container *v1.Container
	ID        observed.ContainerID
	// Address is the pod's. It must be valid unless the probe does without, see [NeedsAddress].
	Address netip.Addr
	// OwnNetwork tells that the node's loopback and link-local addresses are not the pod's, so that a probe that names
	// them is refused: it would reach what the pod itself must not.
	PodNetwork bool
	// Patient tells that the container may not have opened its ports yet: a connection that is refused is tried again until
	// the check's time is over. No request has reached the container by then, so it is not asked more often than its
	// period (BUG-36), and need not wait for the next one.
	RetryRefused bool
}

// Outcome is what a check found.
type Outcome struct {
	Result judge.Result
	// Message says why, or with what. It is not fit for display: it may hold anything.
	Message string
	// Warning tells that an operator should see the message although all is well.
	Warning bool
	// TimedOut tells of a command that was killed because its time was over (BUG-37).
	TimedOut bool
}

// Checker checks. It may be used by any number of goroutines, and holds nothing open between two checks.
type Checker struct {
	runtime Runtime
	webs    map[network]*web
}

// New is a Checker. Without a runtime, commands cannot be run.
func New(runtime Runtime) *Checker {
	c := &Checker{runtime: runtime, webs: map[network]*web{}}
	for _, guarded := range []bool{false, true} {
		for _, patient := range []bool{false, true} {
			n := network{guarded: guarded, patient: patient}
			c.webs[n] = newWeb(n)
		}
	}
	return c
}

// NeedsAddress reports whether the probe asks the pod's address.
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

// Check asks once. It returns soon after ctx ends; a target that did not answer by then has failed.
func (c *Checker) Check(ctx context.Context, probe *v1.Probe, target Target) Outcome {
	switch {
	case probe.Exec != nil:
		return c.exec(ctx, probe, target)
	case probe.HTTPGet != nil:
		return c.web(probe.HTTPGet.Host, target).get(ctx, probe.HTTPGet, target)
	case probe.TCPSocket != nil:
		return c.web(probe.TCPSocket.Host, target).connect(ctx, probe.TCPSocket, target)
	case probe.GRPC != nil:
		return c.health(ctx, probe.GRPC, target)
	default:
		return unknown(errors.New("the probe says nothing about how to check: want exec, httpGet, tcpSocket or grpc"))
	}
}

// web leads to the pod's own network, or to any that the spec names; names given by pods with a network of their own are
// guarded.
func (c *Checker) web(host string, target Target) *web {
	return c.webs[network{guarded: host != "" && target.PodNetwork, patient: target.RetryRefused}]
}

func failed(message string) Outcome { return Outcome{Result: judge.Failure, Message: message} }
func unknown(err error) Outcome     { return Outcome{Result: judge.Error, Message: err.Error()} }

// hostOf is the host that the spec names, else the pod's address.
func hostOf(named string, target Target) string {
	if named != "" {
		return named
	}
	return target.Address.String()
}

// portOf is the number behind a port, which may be the name of one of the container's, or a number written as text.
func portOf(port intstr.IntOrString, container *v1.Container) (uint16, error) {
	number := int64(port.IntVal)
	if port.Type == intstr.String {
		var err error
		if number, err = namedPort(port.StrVal, container); err != nil {
			return 0, err
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("container %s: port %d is not between 1 and 65535", container.Name, number)
	}
	return uint16(number), nil
}

func namedPort(name string, container *v1.Container) (int64, error) {
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

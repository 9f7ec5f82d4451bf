package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Runtime prepares streams. *cri.Runtime implements it. Errors carry a gRPC status.
type Runtime interface {
	// StreamExec returns the URL that runs a command when a client connects to it.
	StreamExec(ctx context.Context, request *runtimeapi.ExecRequest) (string, error)
	// StreamAttach returns the URL that connects a client with the main process of a container.
	StreamAttach(ctx context.Context, request *runtimeapi.AttachRequest) (string, error)
	// StreamPortForward returns the URL that connects a client with ports of a sandbox.
	StreamPortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (string, error)
	// Exec runs a command and returns its output, stdout first, and its exit code.
	Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error)
}

// PodCache has the observed state of pods. *pleg.PLEG implements it.
type PodCache interface {
	// Get returns the cached state of the pod, never nil.
	Get(uid podid.UID) *observed.Pod
	// GetNewerThan waits for an observation of the pod that began after minTime.
	GetNewerThan(ctx context.Context, uid podid.UID, minTime time.Time) (*observed.Pod, error)
}

// Config configures a Proxy.
type Config struct {
	// Runtime is required.
	Runtime Runtime
	// Pod returns a pod of the node by its namespace and name. Required.
	Pod func(namespace, name string) (*v1.Pod, bool)
	// PodCache is required.
	PodCache PodCache

	// Dial connects to the runtime's streaming server at the address in the URL. Defaults to a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxStreams is how many streams may be open at a time. Defaults to 1000.
	MaxStreams int
	// MaxStreamsPerPod is how many of them may belong to one pod. Defaults to 200.
	MaxStreamsPerPod int
	// IdleTimeout is how long a stream may be without a byte from or to its client. kubectl sends a ping every five seconds. Defaults to
	// 4h.
	IdleTimeout time.Duration
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	for _, field := range []struct {
		name      string
		isMissing bool
	}{
		{"Runtime", c.Runtime == nil}, {"Pod", c.Pod == nil}, {"PodCache", c.PodCache == nil},
	} {
		if field.isMissing {
			errs = append(errs, fmt.Errorf("stream.Config: %s is required", field.name))
		}
	}
	if c.MaxStreams < 0 || c.MaxStreamsPerPod < 0 || c.IdleTimeout < 0 {
		errs = append(errs, errors.New("stream.Config: MaxStreams, MaxStreamsPerPod and IdleTimeout must not be negative"))
	}
	c.MaxStreams = cmp.Or(c.MaxStreams, 1000)
	c.MaxStreamsPerPod = cmp.Or(c.MaxStreamsPerPod, 200)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 4*time.Hour)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	return c, errors.Join(errs...)
}

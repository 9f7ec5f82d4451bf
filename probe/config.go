package probe

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe/check"
)

// PodCache provides the state of pods in the runtime. Callers do not modify the pods that it returns.
type PodCache interface {
	// Get returns the cached state of the pod, never nil. It must not block.
	Get(uid podid.UID) *observed.Pod
}

// Statuses is the status cache. It receives probe results at once, not with the pod's next sync.
type Statuses interface {
	// GetPodStatus returns the newest cached status of the pod. The status of an unchanged container survives a restart of
	// the agent (BUG-26).
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// SetContainerReadiness records the result of a container's readiness probe.
	SetContainerReadiness(uid types.UID, container observed.ContainerID, ready bool)
	// SetContainerStartup records the result of a container's startup probe.
	SetContainerStartup(uid types.UID, container observed.ContainerID, started bool)
}

// Config configures a Prober. PodCache and Statuses are required.
type Config struct {
	PodCache PodCache
	Statuses Statuses

	// Runtime runs the commands of exec probes. Default: exec probes end with an error.
	Runtime check.Runtime
	// Wake is called for each pod whose containers need a sync, after Statuses has the result. It must not block.
	// Default: no-op.
	Wake func(podid.UID)
	// NodeInfo returns the addresses of host network pods and the preferred IP family. It must not block.
	// Default: unknown; host network pods are probed on loopback.
	NodeInfo func() derive.NodeInfo
	// OnAnswer is called after each check, when State has its answer and Statuses a result that changed. It must not block.
	// Default: no-op.
	OnAnswer func(podid.UID)
	// AllowNodeAddresses lets probes of pods outside the host network name addresses of the node, link-local addresses and
	// metadata services as their host. The kubelet allows it. Defaults to false.
	AllowNodeAddresses bool
	// Events receives events about containers. Default: event.Discard.
	Events event.Recorder
	// Logger receives log messages. Default: slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the prober's metrics. Default: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var err error
	if c.PodCache == nil {
		err = errors.Join(err, errors.New("probe.Config: PodCache is required"))
	}
	if c.Statuses == nil {
		err = errors.Join(err, errors.New("probe.Config: Statuses is required"))
	}
	if c.Wake == nil {
		c.Wake = func(podid.UID) {}
	}
	if c.OnAnswer == nil {
		c.OnAnswer = func(podid.UID) {}
	}
	if c.NodeInfo == nil {
		c.NodeInfo = func() derive.NodeInfo { return derive.NodeInfo{} }
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

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

// Observations is what the runtime was seen to hold. Nobody changes what it returns.
type PodCache interface {
	// Get is what was last seen of the pod, never nil. It must not block.
	Get(uid podid.UID) *observed.Pod
}

// Statuses is the node's logbook. Results reach it at once, not with the pod's next sync.
type Statuses interface {
	// GetPodStatus is the newest status of the pod: what it says of a container that is still the same outlives an agent
	// (BUG-26).
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// SetContainerReadiness records what the readiness probe of a container found.
	SetContainerReadiness(uid types.UID, container observed.ContainerID, ready bool)
	// SetContainerStartup records what the startup probe of a container found.
	SetContainerStartup(uid types.UID, container observed.ContainerID, started bool)
}

// Config is what a Prober needs. Fields without a default are required.
type Config struct {
	PodCache PodCache
	Statuses Statuses

	// Runtime runs the commands of exec probes. Default: they cannot be run, which is told as an error.
	Runtime check.Runtime
	// Wake hears of each pod whose containers are to be looked at again, after Statuses has heard. It must not block.
	// Default: nobody.
	Wake func(podid.UID)
	// NodeInfo is where pods on the host's network are found, and which family comes first. It must not block. Default:
	// nothing is known, and pods on the host's network are asked by way of loopback.
	NodeInfo func() derive.NodeInfo
	// AllowNodeAddresses lets probes of pods with a network of their own name loopback and link-local hosts, which are the
	// node's. The kubelet allows it.
	AllowNodeAddresses bool
	// Events. Default: nobody hears them.
	Events event.Recorder
	// Logger. Default: silence.
	Logger *slog.Logger
	// Metrics. Default: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var err error
	if c.PodCache == nil {
		err = errors.Join(err, errors.New("probe: Config.Observations is required"))
	}
	if c.Statuses == nil {
		err = errors.Join(err, errors.New("probe: Config.Statuses is required"))
	}
	if c.Wake == nil {
		c.Wake = func(podid.UID) {}
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

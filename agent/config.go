package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/eviction/manager"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

// Runtime runs the pods. *cri.Runtime implements it, and so does fakeruntime.Runtime. A runtime may also implement
// GarbageCollector, worker.Resizer, check.Runtime for exec probes, and manager.Containers for limits of ephemeral storage.
type Runtime interface {
	worker.Runtime
	pleg.Runtime
	// Ready returns what keeps the runtime from running pods and what keeps pods from getting a network. Nil means ready.
	Ready(ctx context.Context) (runtime, network error)
}

// GarbageCollector is an optional interface of a Runtime. The agent calls its methods periodically.
type GarbageCollector interface {
	// CollectGarbage removes exited containers and sandboxes that are not needed any more. isWanted reports whether the
	// remains of a pod must be kept. It may be called while another call runs.
	CollectGarbage(ctx context.Context, isWanted func(podid.UID) bool) error
	// RotateLogs limits the size of container logs.
	RotateLogs(ctx context.Context) error
}

// Volumes mounts the volumes of pods. *provision.Provisioner implements it. It may also implement manager.Volumes, for limits of
// ephemeral storage.
type Volumes interface {
	worker.Volumes
	// Pods returns the pods that have volumes on disk.
	Pods() ([]podid.UID, error)
}

// API is the part of the API server that statuses and mirrors are written to. *kubeapi.Client implements it.
type API interface {
	status.API
	mirror.API
}

// Config configures an Agent.
type Config struct {
	// NodeName is the name of the Node that the pods are bound to. Required.
	NodeName string
	// Sources deliver the desired pods. At least one is required.
	Sources []source.Source
	// Runtime is required.
	Runtime Runtime
	// Events records events. Required.
	Events event.Recorder

	// API receives pod statuses and mirror pods. Defaults to none: the node runs standalone.
	API API
	// MirrorAPI writes mirror pods with limits of its own, so that they do not delay statuses. Defaults to API.
	MirrorAPI mirror.API
	// Journal receives every version of every pod's status; see status.Config. Defaults to none.
	Journal status.Journal
	// OnSync is called when requests for a pod's status begin or cease to fail; see status.Config. Defaults to none.
	OnSync func(uid podid.UID)
	// OnProbeAnswer is called after each check of a probe; see probe.Config. Defaults to none.
	OnProbeAnswer func(uid podid.UID)
	// OnRuntimeHealth is called when the runtime or its network becomes ready or ceases to be, and when the runtime's pods cease to be
	// observed or are observed again. It must not block. Defaults to none.
	OnRuntimeHealth func()
	// OnSourceProblem is called when a problem of a source appears and when it is resolved; see source.MuxConfig. Defaults to none.
	OnSourceProblem func(problem source.Problem, isResolved bool)
	// OnKnownPods is called in each housekeeping pass with the UIDs of all pods that are desired or have a worker, when all
	// sources are complete. The map must not be modified. Defaults to none.
	OnKnownPods func(known map[types.UID]bool)
	// OnContainerStop is called before an instance of a container is stopped; see worker.Config. Defaults to none.
	OnContainerStop func(stop plan.Stop)
	// OnPodStopped is called when all containers of a pod have stopped for good; see worker.Config. Defaults to none.
	OnPodStopped func(uid podid.UID)
	// Volumes mounts the volumes of pods. Defaults to none.
	Volumes Volumes
	// Pressure configures evictions while the node is short of a resource; the agent adds what it knows itself. It has an effect only if
	// runtime and volumes can be measured. Defaults to none: pods are evicted for limits of local storage only.
	Pressure *manager.PressureConfig
	// State stores what must survive a restart of the agent. Defaults to none: nothing is stored.
	State *checkpoint.Dir
	// Admit decides whether the node runs a pod; see worker.Config. Defaults to admitting every pod.
	Admit func(*v1.Pod) error
	// AdmitResize returns why the node does not give a running pod the resources of its spec now, or nil. It must not block.
	// Defaults to giving them. A resize is infeasible in any case if Runtime is no worker.Resizer.
	AdmitResize func(*v1.Pod) *resize.Verdict
	// BootTime is when the machine booted. LocalPods does not claim that containers run that were last observed before. Defaults
	// to none.
	BootTime time.Time
	// NodeInfo returns the node's part of a pod status. It must not block. Defaults to none.
	NodeInfo func() derive.NodeInfo

	// AllowNodeAddresses lets probes of pods outside the host network name addresses of the node; see probe.Config. Defaults
	// to false.
	AllowNodeAddresses bool
	// Resync is the interval between syncs of an unchanged pod; see worker.Config. Defaults to 1m.
	Resync time.Duration
	// StatusDelays is how long changes of a status wait for the next one; see status.Config. Defaults to none: no change waits.
	StatusDelays status.Delays
	// HousekeepingInterval is the time between two housekeeping passes. Defaults to 2s.
	HousekeepingInterval time.Duration
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the metrics. Defaults to none.
	Metrics prometheus.Registerer
	// ProbeMetrics registers the metrics of probes, which have series for each container. Defaults to Metrics.
	ProbeMetrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	for _, field := range []struct {
		name      string
		isMissing bool
	}{
		{"NodeName", c.NodeName == ""}, {"Sources", len(c.Sources) == 0}, {"Runtime", c.Runtime == nil}, {"Events", c.Events == nil},
	} {
		if field.isMissing {
			errs = append(errs, fmt.Errorf("agent.Config: %s is required", field.name))
		}
	}
	if c.HousekeepingInterval < 0 {
		errs = append(errs, errors.New("agent.Config: HousekeepingInterval must not be negative"))
	}
	c.HousekeepingInterval = cmp.Or(c.HousekeepingInterval, 2*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.ProbeMetrics = cmp.Or(c.ProbeMetrics, c.Metrics)
	if c.OnKnownPods == nil {
		c.OnKnownPods = func(map[types.UID]bool) {}
	}
	if c.OnPodStopped == nil {
		c.OnPodStopped = func(podid.UID) {}
	}
	if c.NodeInfo == nil {
		c.NodeInfo = func() derive.NodeInfo { return derive.NodeInfo{} }
	}
	return c, errors.Join(errs...)
}

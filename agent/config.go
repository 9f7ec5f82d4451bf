package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

// Runtime is what runs the pods: a cri.Runtime, or the engine of heraldtest. Exec probes need one that also has the method of
// check.Runtime.
type Runtime interface {
	worker.Runtime
	pleg.Runtime
	// Ready says what keeps the runtime from running pods, and what keeps pods from getting a network.
	Ready(ctx context.Context) (runtime, network error)
}

// Volumes are what pods find mounted: a provision.Provisioner.
type Volumes interface {
	worker.Volumes
	// Pods are those that have something on disk.
	Pods() ([]podid.UID, error)
}

// API is the part of the API server that statuses and mirrors are written to. *kubeapi.Client implements it.
type API interface {
	status.API
	mirror.API
}

// Config is what an agent is made of. Fields without a default are required.
type Config struct {
	// NodeName is the name of the Node that the pods are bound to.
	NodeName string
	// Sources are where pods come from.
	Sources []source.Source
	Runtime Runtime
	// Events hear what an operator should see.
	Events event.Recorder

	// API is the API server that statuses and mirrors go to. Default: none, the node is alone.
	API API
	// Volumes. Default: pods have none.
	Volumes Volumes
	// State is where the agent keeps what must survive it. Default: nothing does.
	State *checkpoint.Dir
	// Admit says whether this node will run a pod, see worker.Config. Default: every pod.
	Admit func(*v1.Pod) error
	// NodeInfo is what a pod's status says about the machine. It must not block. Default: nothing.
	NodeInfo func() derive.NodeInfo

	// Resync is how often a pod is looked at although nothing happened, see worker.Config. Default 1 min.
	Resync time.Duration
	// HousekeepingInterval is the time between two looks at everything. Default 2 s.
	HousekeepingInterval time.Duration
	// Logger. Default: silence.
	Logger *slog.Logger
	// Metrics. Default: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var err error
	for _, field := range []struct {
		name    string
		missing bool
	}{
		{"NodeName", c.NodeName == ""}, {"Sources", len(c.Sources) == 0}, {"Runtime", c.Runtime == nil}, {"Events", c.Events == nil},
	} {
		if field.missing {
			err = errors.Join(err, errors.New("agent.Config: "+field.name+" is required"))
		}
	}
	if c.HousekeepingInterval < 0 {
		err = errors.Join(err, errors.New("agent.Config: HousekeepingInterval must not be negative"))
	}
	if c.HousekeepingInterval == 0 {
		c.HousekeepingInterval = 2 * time.Second
	}
	if c.NodeInfo == nil {
		c.NodeInfo = func() derive.NodeInfo { return derive.NodeInfo{} }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/node/report"
)

// API is the API server. Errors are those of apimachinery's api/errors, possibly wrapped.
type API interface {
	NodeAPI
	LeaseAPI
}

// NodeAPI is the Node objects, of which only the own one is asked for.
type NodeAPI interface {
	// GetNode reads the newest version.
	GetNode(ctx context.Context, name string) (*v1.Node, error)
	// CreateNode fails if there is one of that name.
	CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error)
	// PatchNode applies a strategic merge patch to all but the status.
	PatchNode(ctx context.Context, name string, patch []byte) (*v1.Node, error)
	// PatchNodeStatus applies a strategic merge patch to the status.
	PatchNodeStatus(ctx context.Context, name string, patch []byte) (*v1.Node, error)
}

// LeaseAPI is those in the namespace of nodes' leases.
type LeaseAPI interface {
	GetLease(ctx context.Context, node string) (*coordinationv1.Lease, error)
	CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// UpdateLease fails with a conflict if the lease is at another version by now.
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// Config is what a Node needs. Name and Machine are required.
type Config struct {
	// NodeName of the Node object.
	NodeName string
	// MachineInfo finds out how the machine is: machine.Machine.Info. It is called every UpdateFrequency.
	MachineInfo func() (report.MachineInfo, error)

	// API is for the node alone, see the package comment. Default: none, there is no cluster.
	API API
	// Reconnect makes the API's next request use a new connection: kubeapi.Client.CloseConnections. It is called when a
	// heartbeat was not answered. Default: nothing is done.
	Reconnect func()
	// Ready says why the node cannot run pods. It must not block. Default: it can.
	Ready func() error
	// NetworkReady says why pods cannot have a network. It must not block. Default: they can.
	NetworkReady func() error
	// RuntimeVersion is cri.Runtime's Version. Default: none is told.
	RuntimeVersion func(ctx context.Context) (name, version string, err error)
	// Port is where the agent serves the kubelet's API. Default: nowhere.
	Port int32

	// NoRegistration leaves it to others to create the Node object (registerNode: false).
	NoRegistration bool
	// Labels and Taints are given to a node when it is registered. Later they are the cluster's.
	Labels map[string]string
	Taints []v1.Taint
	// ProviderID is told once, if nobody else has.
	ProviderID string

	// MaxPods is how many pods the node takes. Default 110.
	MaxPods int64
	// Reserved is what pods do not get of the machine. Default: nothing is.
	Reserved v1.ResourceList
	// UpdateFrequency is how often the machine is looked at (nodeStatusUpdateFrequency). Default 10 s.
	UpdateFrequency time.Duration
	// ReportFrequency is how often a status is told that did not change (nodeStatusReportFrequency). Default 5 min.
	ReportFrequency time.Duration
	// LeaseDuration is after how long without a renewal the node counts as lost (nodeLeaseDurationSeconds); the lease is
	// renewed four times as often. Default 40 s.
	LeaseDuration time.Duration

	// Events. Default: nobody hears.
	Events event.Recorder
	// Logger. Default: silence.
	Logger *slog.Logger
	// Metrics. Default: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var err error
	if c.NodeName == "" {
		err = errors.Join(err, errors.New("node.Config: NodeName is required"))
	}
	if c.MachineInfo == nil {
		err = errors.Join(err, errors.New("node.Config: MachineInfo is required"))
	}
	if c.MaxPods < 0 || c.UpdateFrequency < 0 || c.ReportFrequency < 0 {
		err = errors.Join(err, errors.New("node.Config: MaxPods, UpdateFrequency and ReportFrequency must not be negative"))
	}
	if c.LeaseDuration != 0 && c.LeaseDuration < 4*time.Second {
		err = errors.Join(err, fmt.Errorf("node.Config: LeaseDuration must be at least 4s, not %s", c.LeaseDuration))
	}
	c.MaxPods = orDefault(c.MaxPods, 110)
	c.UpdateFrequency = orDefault(c.UpdateFrequency, 10*time.Second)
	c.ReportFrequency = orDefault(c.ReportFrequency, 5*time.Minute)
	c.LeaseDuration = orDefault(c.LeaseDuration, 40*time.Second)
	return c.withSilence(), err
}

// withSilence makes what is optional and missing callable.
func (c Config) withSilence() Config {
	if c.Reconnect == nil {
		c.Reconnect = func() {}
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.NetworkReady == nil {
		c.NetworkReady = func() error { return nil }
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

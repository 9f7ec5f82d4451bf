// Package nodeagent builds a complete node agent from one flat configuration: sources, runtime, volumes, status manager, node
// registration. It is what `herald run` runs. Programs that need other components build an agent.Agent as New does.
package nodeagent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/alert/manager"
	cgroupmanager "github.com/heraldnode/herald/cgroup/manager"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/containerlog"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/history"
	imagemanager "github.com/heraldnode/herald/imagegc/manager"
	"github.com/heraldnode/herald/inspect"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/machine"
	"github.com/heraldnode/herald/notify"
	"github.com/heraldnode/herald/process"
	"github.com/heraldnode/herald/provision"
	"github.com/heraldnode/herald/stats"
	"github.com/heraldnode/herald/stream"
)

// NodeAgent is a node agent with all its components. Components may be queried at any time. Run must be called at most once;
// call Close if Run is never called.
type NodeAgent struct {
	Agent  *agent.Agent
	Events *broadcaster.Broadcaster
	Node   *node.Node
	// History records the versions of all statuses.
	History *history.Log
	// Inspector answers questions about pods and the node.
	Inspector *inspect.Inspector
	// Stats has the load of the node and its pods.
	Stats *stats.Collector

	config Config
	signals
	clients clients
	hostState
	storage
	containers
	summarizer summarizer
	alerting
	servers
}

// hostState is the machine and when it is short of resources.
type hostState struct {
	host   *machine.Machine
	meter  *stats.Machine
	policy eviction.Policy
}

// storage is what the agent keeps on disk.
type storage struct {
	state   *checkpoint.Dir
	volumes *provision.Provisioner
}

// signals are closed when something happens.
type signals struct {
	started  chan struct{} // the agent starts
	stopping chan struct{} // Run is to end
}

// alerting is what evaluates rules, tells of alerts and carries out actions. It is nil if alerting is disabled.
type alerting struct {
	Alerts   *manager.Manager
	Actions  *action.Actor
	notifier *notify.Notifier
}

// containers is what runs the containers of pods.
type containers struct {
	server  *process.Server // nil with a container runtime
	runtime *cri.Runtime
	// Logs serves the logs of containers.
	Logs *containerlog.Logs
	// Streams serves exec, attach and port-forward.
	Streams *stream.Proxy
	cgroups *cgroupmanager.Manager // nil if the runtime chooses the cgroups of pods
	// preemptions counts the pods that were ended for critical ones.
	preemptions *prometheus.CounterVec
	// imageCollector removes unused images; nil with RuntimeProcess.
	imageCollector *imagemanager.Manager
	// imageDirs has the directories of the runtime's images and containers as last observed.
	imageDirs atomic.Pointer[[]string]
}

// clients are the connections to the API server, one for each kind of request, and their certificates. They are nil without a cluster.
type clients struct {
	statuses *kubeapi.Client // sends statuses and watches pods
	mirrors  *kubeapi.Client // writes mirror pods
	objects  *kubeapi.Client // reads what pods refer to
	watches  *kubeapi.Client // watches what pods refer to
	certificates
}

// New builds a node agent and locks its data directory: a second agent on the same directory fails.
func New(config Config) (_ *NodeAgent, err error) {
	config, err = config.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &NodeAgent{config: config, signals: signals{started: make(chan struct{}), stopping: make(chan struct{})}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	for _, build := range []func() error{
		n.openDataDir, n.openHistory, n.newClients, n.newEvents, n.newNode, n.newVolumes, n.newProcessServer, n.newCgroups, n.newRuntime,
		n.newImageCollector, n.newStats, n.newSummarizer, n.newAlerting, n.newAgent, n.newLogs, n.newStreams, n.newServers,
	} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Close ends requests for volumes and releases the runtime connection and the data directory.
func (n *NodeAgent) Close() error {
	var err error
	if n.volumes != nil {
		n.volumes.Close()
	}
	if n.runtime != nil {
		err = n.runtime.Close()
	}
	if n.History != nil {
		err = errors.Join(err, n.History.Close())
	}
	if n.state != nil {
		err = errors.Join(err, n.state.Close())
	}
	return err
}

// Run runs the node until ctx ends or a component fails. Containers keep running.
func (n *NodeAgent) Run(ctx context.Context) error {
	// The agent needs these until it has sent its last status, so they stop after it.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, func() { close(n.stopping) })
	recording, stopRecording := context.WithCancel(context.WithoutCancel(ctx)) // until all others have stopped
	defer stopRecording()
	var recorder sync.WaitGroup
	recorder.Go(func() { n.runHistory(recording) })
	var servers sync.WaitGroup
	var serverErr error
	if n.server != nil {
		servers.Go(func() {
			defer stop()
			serverErr = n.server.Run(serving)
		})
	}
	servers.Go(func() { _ = n.Events.Run(serving) })
	servers.Go(func() { n.runAlerting(serving) })
	servers.Go(func() { n.runServers(serving) })
	servers.Go(func() { n.runCertificates(serving) })
	servers.Go(func() { _ = n.Node.Run(serving) })
	n.waitForServer(ctx)
	if n.cgroups != nil {
		servers.Go(func() { _ = n.cgroups.Run(serving) })
	}
	servers.Go(func() { n.runImageCollector(serving) })
	servers.Go(func() { _ = n.Stats.Run(serving) })
	servers.Go(func() { _ = n.Logs.Run(serving) })
	close(n.started)
	err := n.Agent.Run(ctx)
	n.endStreams()
	stopServing()
	servers.Wait()
	stopRecording()
	recorder.Wait()
	return errors.Join(err, serverErr, n.Close())
}

// Started returns a channel that is closed when Run starts the agent.
func (n *NodeAgent) Started() <-chan struct{} { return n.started }

// waitForServer waits until the process runtime answers, so that the first sync of a pod does not fail.
func (n *NodeAgent) waitForServer(ctx context.Context) {
	const timeout, period = 5 * time.Second, 5 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for n.server != nil && ctx.Err() == nil {
		if _, _, err := n.runtime.Version(ctx); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(period):
		}
	}
}

// Empty reports whether the runtime has no pods.
func (n *NodeAgent) Empty(ctx context.Context) (bool, error) {
	pods, err := n.runtime.ListPods(ctx)
	return err == nil && len(pods) == 0, err
}

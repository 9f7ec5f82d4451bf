package nodeagent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/process"
	"github.com/heraldnode/herald/provision"
)

// Node is a node at work. Its Agent may be asked at any time; Run is called once, and Close if Run never is.
type Node struct {
	Agent  *agent.Agent
	Events *broadcaster.Broadcaster
	Node   *node.Node

	config  Config
	started chan struct{} // closed when the agent is put to work
	api     *kubeapi.Client
	state   *checkpoint.Dir
	server  *process.Server // nil with a container runtime
	runtime *cri.Runtime
	volumes *provision.Provisioner
}

// New makes a node. It takes the data folder for itself: a second one on the same folder is refused.
func New(config Config) (_ *Node, err error) {
	config, err = config.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{config: config, started: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	for _, build := range []func() error{
		n.makeFolders, n.makeAPI, n.makeEvents, n.makeNode, n.makeVolumes, n.makeServer, n.makeRuntime, n.makeAgent,
	} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Close releases what New took.
func (n *Node) Close() error {
	var err error
	if n.runtime != nil {
		err = n.runtime.Close()
	}
	if n.state != nil {
		err = errors.Join(err, n.state.Close())
	}
	return err
}

// Run is the node at work until ctx ends; containers live on.
func (n *Node) Run(ctx context.Context) error {
	// What the agent needs until its last word goes after it.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var servers sync.WaitGroup
	var failed error
	if n.server != nil {
		servers.Go(func() {
			defer stop()
			failed = n.server.Run(serving)
		})
	}
	servers.Go(func() { _ = n.Events.Run(serving) })
	servers.Go(func() { _ = n.Node.Run(serving) })
	n.awaitServer(ctx)
	close(n.started)
	err := n.Agent.Run(ctx)
	stopServing()
	servers.Wait()
	return errors.Join(err, failed, n.Close())
}

// Started is closed when Run has put the agent to work.
func (n *Node) Started() <-chan struct{} { return n.started }

// awaitServer lets a runtime of our own begin to answer, so that no pod waits for the second try.
func (n *Node) awaitServer(ctx context.Context) {
	const patience, pause = 5 * time.Second, 5 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for n.server != nil && ctx.Err() == nil {
		if _, _, err := n.runtime.Version(ctx); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Empty reports whether the runtime holds nothing of any pod.
func (n *Node) Empty(ctx context.Context) (bool, error) {
	pods, err := n.runtime.ListPods(ctx)
	return err == nil && len(pods) == 0, err
}

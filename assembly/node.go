package assembly

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/machine"
	"github.com/heraldnode/herald/process"
	"github.com/heraldnode/herald/provision"
	"github.com/heraldnode/herald/source"
)

// Node is a node at work. Its Agent may be asked at any time; Run is called once, and Close if Run never is.
type Node struct {
	Agent  *agent.Agent
	Events *event.Recorder
	Node   *node.Node

	config  Config
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
	n := &Node{config: config}
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
	err := n.Agent.Run(ctx)
	stopServing()
	servers.Wait()
	return errors.Join(err, failed, n.Close())
}

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

// CheckRuntime says what is wrong with the container runtime, and what to do about it.
func (n *Node) CheckRuntime(ctx context.Context) error {
	if n.config.Runtime == RuntimeProcess {
		return nil
	}
	if _, _, err := n.runtime.Version(ctx); err != nil {
		return fmt.Errorf("no container runtime answers at %s: %w\n"+
			"Install one (Debian and Ubuntu: apt-get install containerd runc containernetworking-plugins; systemctl start containerd),\n"+
			"name another socket with --runtime-endpoint, or run plain processes with --runtime=process",
			n.config.ContainerRuntimeEndpoint, err)
	}
	return nil
}

func (n *Node) path(parts ...string) string {
	return filepath.Join(append([]string{n.config.DataDir}, parts...)...)
}

func (n *Node) makeFolders() (err error) {
	for _, folder := range []string{n.config.DataDir, n.path("pods")} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			return fmt.Errorf("make the data folder: %w", err)
		}
	}
	n.state, err = checkpoint.Open(n.path("state"), checkpoint.Options{})
	return err
}

func (n *Node) makeAPI() (err error) {
	if n.config.API != nil {
		n.api, err = kubeapi.New(n.config.API)
	}
	return err
}

func (n *Node) makeEvents() (err error) {
	config := event.Config{
		NodeName: n.config.NodeName, Scheme: kubeapi.NewScheme(), Logger: n.config.Logger, Metrics: n.config.Metrics,
	}
	if n.api != nil {
		config.API = n.api
	}
	n.Events, err = event.New(config)
	return err
}

// makeNode gives the Node object and its lease connections of their own, so that no flood of statuses can make the node
// look dead.
func (n *Node) makeNode() error {
	facts := machine.Config{Data: n.config.DataDir, Version: n.config.Version}
	if n.config.NodeIP.IsValid() {
		facts.Addresses = []netip.Addr{n.config.NodeIP}
	}
	here, err := machine.New(facts)
	if err != nil {
		return err
	}
	config := node.Config{
		Name: n.config.NodeName, Machine: here.Facts, MaxPods: int64(n.config.MaxPods),
		Labels: n.config.NodeLabels, Taints: n.config.RegisterWithTaints, NoRegistration: n.config.NoRegistration,
		Ready:          func() error { return n.Agent.Healthy() },
		NetworkReady:   func() error { return n.Agent.NetworkReady() },
		RuntimeVersion: func(ctx context.Context) (string, string, error) { return n.runtime.Version(ctx) },
		Events:         n.Events, Logger: n.config.Logger, Metrics: n.config.Metrics,
	}
	if n.config.API != nil {
		own, err := kubeapi.New(n.config.API)
		if err != nil {
			return err
		}
		config.API, config.Reconnect = own, own.CloseConnections
	}
	n.Node, err = node.New(config)
	return err
}

func (n *Node) makeVolumes() (err error) {
	config := provision.Config{
		Root: n.path("pods"), Events: n.Events, Logger: n.config.Logger, Metrics: n.config.Metrics,
		Node: func() provision.Facts { return provision.Facts{HostIPs: n.Node.HostIPs()} },
	}
	if n.api != nil {
		config.Objects = n.api
	}
	n.volumes, err = provision.New(config)
	return err
}

func (n *Node) makeServer() (err error) {
	if n.config.Runtime != RuntimeProcess {
		return nil
	}
	socket := n.path("process.sock")
	n.config.ContainerRuntimeEndpoint = "unix://" + socket
	n.server, err = process.New(process.Config{
		Root: n.path("process"), Socket: socket, Shim: n.config.Shim, PodsRoot: n.path("pods"), Logger: n.config.Logger,
	})
	return err
}

func (n *Node) makeRuntime() (err error) {
	config := cri.Config{
		Endpoint: n.config.ContainerRuntimeEndpoint, ImageEndpoint: n.config.ImageServiceEndpoint,
		Provision: n.volumes, Events: n.Events, Root: n.path("pods"), LogDir: n.config.PodLogsDir,
		ClusterDNS: n.config.ClusterDNS, ClusterDomain: n.config.ClusterDomain, NodeIPs: n.Node.HostIPs,
		CgroupParent: n.config.CgroupRoot, Logger: n.config.Logger, Metrics: n.config.Metrics,
	}
	if n.api != nil {
		config.Secrets = n.api
	}
	n.runtime, err = cri.New(config)
	return err
}

func (n *Node) makeAgent() error {
	sources, err := n.sources()
	if err != nil {
		return err
	}
	n.Agent, err = agent.New(agent.Config{
		NodeName: n.config.NodeName, Sources: sources, Runtime: n.runtime, Events: n.Events, API: n.api, Volumes: n.volumes,
		State: n.state, Admit: n.admit, Node: func() derive.Node { return derive.Node{HostIPs: n.Node.HostIPs()} },
		Logger: n.config.Logger, Metrics: n.config.Metrics,
	})
	return err
}

func (n *Node) sources() ([]source.Source, error) {
	var sources []source.Source
	if n.config.StaticPodPath != "" {
		files, err := source.NewFile(source.FileConfig{
			Path: n.config.StaticPodPath, Node: n.config.NodeName, Period: n.config.FileCheckFrequency, Logger: n.config.Logger,
		})
		if err != nil {
			return nil, err
		}
		sources = append(sources, files)
	}
	if n.config.StaticPodURL != "" {
		url, err := source.NewHTTP(source.HTTPConfig{
			URL: n.config.StaticPodURL, Node: n.config.NodeName, Header: n.config.StaticPodURLHeader, Period: n.config.HTTPCheckFrequency,
		})
		if err != nil {
			return nil, err
		}
		sources = append(sources, url)
	}
	if n.api != nil {
		bound, err := source.NewAPI(source.APIConfig{
			ListerWatcher: n.api.PodsOnNode(n.config.NodeName), Node: n.config.NodeName, Logger: n.config.Logger,
			AwaitNode: n.Node.AwaitNode,
		})
		if err != nil {
			return nil, err
		}
		sources = append(sources, bound)
	}
	return sources, nil
}

package assembly

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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

// checkTimeout is how long a container runtime may take to say its version.
const checkTimeout = 5 * time.Second

// CheckRuntime says what is wrong with the container runtime, and what to do about it.
func (n *Node) CheckRuntime(ctx context.Context) error {
	if n.config.Runtime == RuntimeProcess {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := n.askRuntime(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the container runtime at %s does not let us in: %w\n"+
			"Run this as root, or run plain processes with --runtime=process", n.config.ContainerRuntimeEndpoint, err)
	default:
		return fmt.Errorf("no container runtime answers at %s: %w\n"+
			"Install one (Debian and Ubuntu: apt-get install containerd runc containernetworking-plugins; systemctl start containerd),\n"+
			"name another socket with --runtime-endpoint, or run plain processes with --runtime=process",
			n.config.ContainerRuntimeEndpoint, err)
	}
}

// askRuntime calls the socket by hand first: the machine's own words say more than gRPC's.
func (n *Node) askRuntime(ctx context.Context) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(n.config.ContainerRuntimeEndpoint, "unix://"))
	if err != nil {
		return err
	}
	_ = connection.Close()
	_, _, err = n.runtime.Version(ctx)
	return err
}

// Empty reports whether the runtime holds nothing of any pod.
func (n *Node) Empty(ctx context.Context) (bool, error) {
	pods, err := n.runtime.ListPods(ctx)
	return err == nil && len(pods) == 0, err
}

func (n *Node) path(parts ...string) string {
	return filepath.Join(append([]string{n.config.DataDir}, parts...)...)
}

func (n *Node) makeFolders() (err error) {
	if err := os.MkdirAll(n.path("pods"), 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	if err := checkOwnership(n.config.DataDir); err != nil {
		return err
	}
	n.state, err = checkpoint.Open(n.path("state"), checkpoint.Options{})
	return err
}

// checkOwnership refuses a data folder that others can write to: what the agent did and what pods are given is in it.
func checkOwnership(folder string) error {
	info, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("look at the data folder: %w", err)
	}
	owner, own := info.Sys().(*syscall.Stat_t).Uid, os.Geteuid()
	switch {
	case owner != 0 && owner != uint32(own):
		return fmt.Errorf("the data folder %s belongs to user %d, and not to root or to user %d, whom the agent runs as "+
			"(chown %d %s, or name another)", folder, owner, own, own, folder)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("the data folder %s has mode %04o, so others can write to it (chmod go-w %s, or name another)",
			folder, info.Mode().Perm(), folder)
	}
	return nil
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
			CAFile: n.config.StaticPodURLCAFile, CertFile: n.config.StaticPodURLCertFile, KeyFile: n.config.StaticPodURLKeyFile,
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

// Package conformance runs Kubernetes' own tests of a node against Herald or the kubelet, and writes docs/conformance.md.
//
// The tests are the specs of Kubernetes' end-to-end suite that test a node's agent: see specs.go. They need what a cluster has: etcd,
// kube-apiserver with ServiceAccount admission, kube-controller-manager, kube-scheduler, and one node with a container runtime. All
// are started from their Go modules or Debian's packages on this machine, in temporary directories, and removed afterwards. The
// node's address is that of the bridge to its pods.
package conformance

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/controlplane"
)

// kubeletPort is the port on which some specs expect the agent. It is free on the address of a new bridge.
const kubeletPort = 10250

// nodeName is the name of the only node.
const nodeName = "node"

// controllers are those that the specs need.
var controllers = []string{
	"serviceaccount-controller", "root-ca-certificate-publisher-controller", "namespace-controller", "garbage-collector-controller",
	"pod-garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller", "replicationcontroller-controller",
	"replicaset-controller", "deployment-controller", "job-controller", "daemonset-controller", "resourcequota-controller",
}

// cluster is a control plane with one node.
type cluster struct {
	options      Options
	controlPlane *controlplane.ControlPlane
	runtime      *containerd.Containerd
	agent        *agents.Agent
}

// startCluster returns a cluster whose node is Ready. The caller stops it, also after an error.
func startCluster(ctx context.Context, options Options) (*cluster, error) {
	c := &cluster{options: options}
	for _, step := range []func(context.Context) error{c.startControlPlane, c.startManagers, c.startRuntime, c.startAgent} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *cluster) startControlPlane(ctx context.Context) (err error) {
	c.controlPlane, err = controlplane.Start(ctx, controlplane.Config{
		Binaries: c.options.Programs.ControlPlane, ServiceAccounts: true,
		// Many specs create and delete a namespace at the same time.
		APIServerArgs: []string{"--max-requests-inflight=800", "--max-mutating-requests-inflight=400"},
	})
	return err
}

func (c *cluster) startManagers(ctx context.Context) error {
	manager, err := c.controlPlane.NewControllerManager(c.options.Programs.ControllerManager, controllers...)
	if err != nil {
		return err
	}
	scheduler, err := c.controlPlane.NewScheduler(c.options.Programs.Scheduler)
	if err != nil {
		return err
	}
	return errors.Join(manager.Start(ctx), scheduler.Start(ctx))
}

func (c *cluster) startRuntime(ctx context.Context) (err error) {
	if c.runtime, err = containerd.Start(ctx, containerd.Config{ParentDir: c.options.NodeDir}); err != nil {
		return err
	}
	return importImages(ctx, c.runtime, c.options.Programs)
}

func (c *cluster) startAgent(ctx context.Context) error {
	address, err := c.runtime.HostIP()
	if err != nil {
		return err
	}
	c.agent, err = c.options.Agent.NewAgent(agents.Config{
		ControlPlane: c.controlPlane, Containerd: c.runtime, NodeName: nodeName, NodeIP: address, Address: address, Port: kubeletPort,
	})
	if err != nil {
		return err
	}
	return c.agent.Start(ctx)
}

// stop stops and removes everything. The agent stops first, its cgroups go last.
func (c *cluster) stop() error {
	var errs []error
	if c.agent != nil {
		errs = append(errs, c.agent.Stop())
	}
	if c.runtime != nil {
		errs = append(errs, c.runtime.Close())
	}
	if c.agent != nil {
		errs = append(errs, c.agent.RemoveCgroups())
	}
	if c.controlPlane != nil {
		errs = append(errs, c.controlPlane.Stop())
	}
	return errors.Join(errs...)
}

// keepLogs moves the logs of all components to a directory.
func (c *cluster) keepLogs(dir string) error {
	if c.controlPlane == nil {
		return nil
	}
	logs, _ := filepath.Glob(filepath.Join(c.controlPlane.Dir(), "*.log")) // the pattern is valid
	var errs []error
	for _, log := range logs {
		content, err := os.ReadFile(log)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, filepath.Base(log)), content, 0o600))
	}
	return errors.Join(errs...)
}

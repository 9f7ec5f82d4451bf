// Package nodeagent runs whole agents of nodes, Herald's and the real kubelet, each as the process that it is in production,
// on a control plane and a containerd that the caller has.
//
//	kubelet, err := nodeagent.Kubelet(ctx, os.Stderr)
//	agent, err := kubelet.On(nodeagent.Place{Cluster: cluster, Runtime: runtime, Node: "a"})
//	err = agent.Start(ctx) // returns when the Node is Ready
//	...
//	err = agent.Stop()
//
// Both are left at their defaults, the limits of their API clients among them, but for their folders, addresses and cgroups,
// and for what keeps a kubelet from disturbing the machine, which kubelet.yaml and room.sh say. Everything that an agent
// writes is in the containerd's folder and goes with it. An agent ends with the control plane at the latest.
package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/program"
)

// Program is an agent that can be started.
type Program struct {
	name   string
	binary string
	// command writes the agent's configuration and returns what to execute.
	command func(binary string, s *settings) ([]string, error)
}

// String is the program's name.
func (p Program) String() string { return p.name }

// Place is where an agent works.
type Place struct {
	Cluster *controlplane.ControlPlane
	Runtime *containerd.Containerd
	// Node is the name that the agent registers itself with. Nobody has used it before.
	Node string
}

// Kubelet builds the kubelet whose version parity's go.mod pins. The first time takes minutes.
func Kubelet(ctx context.Context, progress io.Writer) (Program, error) {
	binary, err := controlplane.BuildKubelet(ctx, progress)
	return Program{name: "kubelet", binary: binary, command: kubeletCommand}, err
}

// Herald builds the command herald into the folder, from the lean module and with its dependencies, as `make build` does.
func Herald(ctx context.Context, folder string) (Program, error) {
	binary, err := program.Herald(ctx, folder)
	return Program{name: "herald", binary: binary, command: heraldCommand}, err
}

// On prepares the agent of a place. Nothing runs yet.
func (p Program) On(place Place) (*Agent, error) {
	agent, err := p.prepare(place)
	if err != nil {
		return nil, fmt.Errorf("prepare %s for node %s: %w", p.name, place.Node, err)
	}
	return agent, nil
}

func (p Program) prepare(place Place) (*Agent, error) {
	admin, err := kubernetes.NewForConfig(place.Cluster.AdminConfig())
	if err != nil {
		return nil, err
	}
	s, err := place.settings()
	if err != nil {
		return nil, err
	}
	command, err := p.command(p.binary, s)
	if err != nil {
		return nil, err
	}
	return &Agent{cgroup: s.CgroupRoot, manifests: s.Manifests, Server: place.Cluster.NewCompanion(controlplane.Companion{
		Name: p.name + "-" + place.Node, Command: command, Env: []string{"PATH=" + os.Getenv("PATH")},
		Ready: func(ctx context.Context) error { return nodeReady(ctx, admin, place.Node) },
	})}, nil
}

func nodeReady(ctx context.Context, admin kubernetes.Interface, name string) error {
	node, err := admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	message := "nobody has said so yet"
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type != v1.NodeReady:
		case c.Status == v1.ConditionTrue:
			return nil
		default:
			message = c.Message
		}
	}
	return fmt.Errorf("node %s is not Ready: %s", name, message)
}

// Agent is the agent of one node. Start returns when its Node is Ready; Stop ends the agent alone, its containers live on.
type Agent struct {
	*controlplane.Server
	cgroup    string
	manifests string
}

// Manifests is the folder of the node's static pods.
func (a *Agent) Manifests() string { return a.manifests }

// Clean removes what the agent has put outside of the containerd's folder. The agent and all containers must have ended.
func (a *Agent) Clean() error { return removeCgroup(a.cgroup) }

// Usage is what the agent uses now.
func (a *Agent) Usage() (Usage, error) {
	pid := a.PID()
	if pid == 0 {
		return Usage{}, errors.New("the agent was never started")
	}
	return UsageOf(pid)
}

// Package agents runs complete node agents, Herald and the real kubelet, as the processes that they are in production, on
// a control plane and a containerd that the caller provides.
//
//	kubelet, err := agents.BuildKubelet(ctx, os.Stderr)
//	agent, err := kubelet.NewAgent(agents.Config{ControlPlane: cluster, Containerd: runtime, NodeName: "a"})
//	err = agent.Start(ctx) // returns when the Node is Ready
//	...
//	err = agent.Stop()
//
// Both agents run with their defaults, including the rate limits of their API clients. The exceptions are directories,
// addresses, cgroups, and the settings that keep the kubelet from changing the machine: see kubelet.yaml and
// mount-namespace.sh. Everything that an agent writes is in containerd's directory and is removed with it. An agent stops
// with its control plane at the latest.
package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/program"
)

// Program is a built agent binary.
type Program struct {
	name   string
	binary string
	// command writes the agent's configuration and returns the command line.
	command func(binary string, s *settings) ([]string, error)
}

// Config says where an agent runs.
type Config struct {
	// ControlPlane is the cluster that the agent joins. Required.
	ControlPlane *controlplane.ControlPlane
	// Containerd is the agent's container runtime. Required.
	Containerd *containerd.Containerd
	// NodeName is the name that the agent registers. It must be unused, or Handover must be set. Required.
	NodeName string
	// Handover prepares the agent for a node that the kubelet and Herald run in turns, on the same Containerd and with the same
	// NodeName. Both use the kubelet's root directory, whose mounts are visible outside of the kubelet's mount namespace, as in
	// production. Herald runs with the kubelet's configuration, converted by `herald config convert`.
	Handover bool
	// NodeIP is the node's address. Defaults to what the agent chooses.
	NodeIP string
	// ServeHTTP lets the agent serve plain HTTP on a loopback port, see Agent.HTTPAddress: the kubelet on its read-only port, Herald
	// instead of its socket.
	ServeHTTP bool
	// Kubeconfig is the path of the agent's kubeconfig. Defaults to one for the ControlPlane.
	Kubeconfig string
	// HeraldConfig is YAML that is added to Herald's configuration, without Handover.
	HeraldConfig string
	// KubeletConfig is YAML that is added to the kubelet's configuration.
	KubeletConfig string
	// Address is the IP address of the agent's HTTPS server, see Agent.HTTPSAddress. The API server's node proxy refuses loopback addresses.
	// Defaults to 127.0.0.1.
	Address string
	// Port is the port of that server. Defaults to a free one.
	Port int
}

// BuildKubelet builds the kubelet at the version that parity's go.mod pins. The first build takes minutes.
func BuildKubelet(ctx context.Context, progress io.Writer) (Program, error) {
	binary, err := controlplane.BuildKubelet(ctx, progress)
	return Program{name: "kubelet", binary: binary, command: kubeletCommand}, err
}

// BuildHerald builds the herald command into dir, from the lean module and with its dependencies, as `make build` does.
func BuildHerald(ctx context.Context, dir string) (Program, error) {
	binary, err := program.Herald(ctx, dir)
	return Program{name: "herald", binary: binary, command: heraldCommand}, err
}

// String returns the program's name.
func (p Program) String() string { return p.name }

// NewAgent prepares an agent. It starts nothing.
func (p Program) NewAgent(config Config) (*Agent, error) {
	agent, err := p.prepare(config)
	if err != nil {
		return nil, fmt.Errorf("prepare %s for node %s: %w", p.name, config.NodeName, err)
	}
	return agent, nil
}

func (p Program) prepare(config Config) (*Agent, error) {
	admin, err := kubernetes.NewForConfig(config.ControlPlane.AdminConfig())
	if err != nil {
		return nil, err
	}
	s, err := config.newSettings()
	if err != nil {
		return nil, err
	}
	command, err := p.command(p.binary, s)
	if err != nil {
		return nil, err
	}
	return &Agent{settings: s, Server: config.ControlPlane.NewServer(controlplane.ServerConfig{
		Name: p.name + "-" + config.NodeName, Command: command, Env: []string{"PATH=" + os.Getenv("PATH")},
		Ready: func(ctx context.Context) error { return checkNodeReady(ctx, admin, config.NodeName) },
	})}, nil
}

func checkNodeReady(ctx context.Context, admin kubernetes.Interface, name string) error {
	node, err := admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	message := "no Ready condition yet"
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != v1.NodeReady:
		case condition.Status == v1.ConditionTrue:
			return nil
		default:
			message = condition.Message
		}
	}
	return fmt.Errorf("node %s is not Ready: %s", name, message)
}

// Agent is the agent of one node. Start returns when the Node is Ready. Stop stops only the agent: its containers keep
// running.
type Agent struct {
	*controlplane.Server
	settings *settings
}

// ManifestDir returns the directory that the agent reads static pods from.
func (a *Agent) ManifestDir() string { return a.settings.ManifestDir }

// HTTPAddress returns the address of the agent with Config.ServeHTTP, such as 127.0.0.1:4194.
func (a *Agent) HTTPAddress() string { return fmt.Sprintf("127.0.0.1:%d", a.settings.HTTPPort) }

// HTTPSAddress returns the address of the agent's HTTPS server, which accepts users of the cluster.
func (a *Agent) HTTPSAddress() string {
	return net.JoinHostPort(a.settings.Address, strconv.Itoa(a.settings.Port))
}

// Dir returns the directory of the agent's configuration and data.
func (a *Agent) Dir() string { return a.settings.Dir }

// RootDir returns the directory of the pods' files.
func (a *Agent) RootDir() string { return a.settings.Dir + "/root" }

// LogsDir returns the directory of container logs.
func (a *Agent) LogsDir() string { return a.settings.Dir + "/logs" }

// CgroupRoot returns the cgroup in which the agent creates kubepods.
func (a *Agent) CgroupRoot() string { return a.settings.CgroupRoot }

// RemoveCgroups removes the only thing that the agent creates outside containerd's directory. The agent and all containers
// must have stopped.
func (a *Agent) RemoveCgroups() error { return RemoveCgroups(a.settings.CgroupRoot) }

// Usage returns what the agent uses now.
func (a *Agent) Usage() (Usage, error) {
	pid := a.PID()
	if pid == 0 {
		return Usage{}, errors.New("agent was never started")
	}
	return ProcessUsage(pid)
}

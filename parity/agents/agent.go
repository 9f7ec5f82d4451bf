package agents

import (
	"errors"

	"github.com/heraldnode/herald/parity/controlplane"
)

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

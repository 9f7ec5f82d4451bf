// Package bench measures Herald beside the kubelet's own code, in one process and one run. Absolute times depend on the
// machine and on who else uses it; what counts is how the two sides compare, taken in turns.
package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/heraldnode/herald/parity/controlplane"
)

// Case measures one thing on both sides. It returns a row for each number that comes of it.
type Case func(ctx context.Context, lab *Lab) ([]Row, error)

// Lab is where cases are measured. It is used by one goroutine.
type Lab struct {
	// Cluster has the API server. The cases of Calls need none.
	Cluster *controlplane.ControlPlane
	// Folder is an empty one, for manifests.
	Folder   string
	Effort   Effort
	Progress io.Writer

	serial int // makes the names of nodes unique
}

// Effort is how much is measured.
type Effort struct {
	// Calls is how many rounds calls are measured in, CallTime about how long one side of a round takes.
	Calls    int
	CallTime time.Duration
	// Probes is how many rounds probes are measured in; one takes about 6 s.
	Probes int
	// Bursts is how many rounds bursts are measured in, BurstPods how many pods change at once.
	Bursts, BurstPods int
	// Waiting is how many changes a readiness change finds before it. Tries and KubeletTries are how many are made.
	Waiting, Tries, KubeletTries int
	// IdlePods is how many pods a full pass goes over, MemoryPods how many the memory is divided by.
	IdlePods, MemoryPods int
	// Agents is how many rounds whole agents are measured in, AgentPods how many pods each runs. Once all are ready they are
	// left alone for AgentSettle, and then watched for AgentIdle.
	Agents, AgentPods      int
	AgentSettle, AgentIdle time.Duration
}

// Short takes less than three minutes.
func Short() Effort {
	return Effort{
		Calls: 5, CallTime: 100 * time.Millisecond, Probes: 1, Bursts: 1, BurstPods: 300,
		Waiting: 500, Tries: 200, KubeletTries: 1, IdlePods: 10_000, MemoryPods: 2000,
		Agents: 1, AgentPods: 30, AgentSettle: 2 * time.Second, AgentIdle: 6 * time.Second,
	}
}

// Full measures the same things more often, in about twenty minutes with Workers and Curve.
func Full() Effort {
	return Effort{
		Calls: 9, CallTime: 200 * time.Millisecond, Probes: 3, Bursts: 3, BurstPods: 300,
		Waiting: 500, Tries: 400, KubeletTries: 2, IdlePods: 10_000, MemoryPods: 2000,
		Agents: 3, AgentPods: 30, AgentSettle: 20 * time.Second, AgentIdle: 30 * time.Second,
	}
}

// Calls are the cases that need no API server.
func Calls() []Case {
	return []Case{podManagerCalls, manifestCalls, statusCalls, bytesPerPod, idlePass, probeCPU}
}

// OnCluster are the cases that need one.
func OnCluster() []Case {
	return []Case{bursts, limitedBurst, burstBesideLimit, createdByOthers, readinessBehindOthers}
}

// OnContainers are the cases that need an API server and a machine that can run containers.
func OnContainers() []Case { return []Case{wholeAgents} }

// Run measures the cases.
func Run(ctx context.Context, lab *Lab, cases []Case) ([]Row, error) {
	var rows []Row
	for _, measure := range cases {
		measured, err := measure(ctx, lab)
		if err != nil {
			return rows, err
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

func (l *Lab) say(format string, args ...any) { fmt.Fprintf(l.Progress, format+"\n", args...) }

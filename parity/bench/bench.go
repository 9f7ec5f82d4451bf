// Package bench compares Herald with the kubelet's own code, in one process and one run. Absolute times depend on the
// machine and its load, so the two sides are measured in alternating rounds and reported as ratios.
package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/heraldnode/herald/parity/controlplane"
)

// hangTimeout ends a measurement that hangs. It is generous, because a busy machine must not fail a measurement.
const hangTimeout = 15 * time.Minute

// Case measures one aspect on both sides and returns a result for each number.
type Case func(ctx context.Context, env *Environment) ([]Result, error)

// Environment is where cases run. It is not safe for concurrent use.
type Environment struct {
	// ControlPlane has the API server. LocalCases do not need it.
	ControlPlane *controlplane.ControlPlane
	// ManifestDir is an empty directory for manifests.
	ManifestDir string
	Profile     Profile
	Progress    io.Writer

	nodeCount int // makes node names unique
}

// Profile is how much is measured.
type Profile struct {
	// CallRounds is the number of rounds for calls. CallTime is about how long one side takes in a round.
	CallRounds int
	CallTime   time.Duration
	// ProbeRounds is the number of rounds for probes. A round takes about 6 s.
	ProbeRounds int
	// BurstRounds is the number of rounds for bursts. BurstPods is how many pods change at once.
	BurstRounds, BurstPods int
	// QueuedChanges is how many changes are queued ahead of a readiness change.
	QueuedChanges, ReadinessSamples, KubeletReadinessSamples int
	// IdlePods is how many pods a full pass visits. MemoryPods is how many pods the measured memory is divided by.
	IdlePods, MemoryPods int
	// RestingPods is how many pods at rest read their objects once in each RestingPeriod.
	RestingPods   int
	RestingPeriod time.Duration
	// AgentRounds is the number of rounds for whole agents. AgentPods is how many pods each agent runs. Once all are
	// ready, the agent settles for AgentSettle and is then observed for AgentIdle.
	AgentRounds, AgentPods int
	AgentSettle, AgentIdle time.Duration
	// SingleStarts is how many single pods each agent starts, one after the other.
	SingleStarts int
	// HistoryBytes is the size of the history that is read. HistoryStorm is how long transitions are recorded at a high rate, and
	// HistoryIdle how long the history is observed after it.
	HistoryBytes              int64
	HistoryStorm, HistoryIdle time.Duration
	// AlertPods is how many pods fail for AlertTime. Their alerts fire after about 30 s.
	AlertPods int
	AlertTime time.Duration
	Server    ServerProfile
}

// ServerProfile is how much of the agents' HTTPS servers is measured.
type ServerProfile struct {
	// Rounds is the number of rounds for logs and requests.
	Rounds int
	// LogBytes is the size of the log that is read.
	LogBytes int64
	// Followers is how many clients follow a log at once. After FollowerSettle, memory is sampled.
	Followers      int
	FollowerSettle time.Duration
	// Execs is how many commands run one after the other.
	Execs int
	// RequestTime is how long keep-alive clients send requests in a round.
	RequestTime time.Duration
}

// ShortProfile returns a profile that takes about five minutes.
func ShortProfile() Profile {
	return Profile{
		CallRounds: 5, CallTime: 100 * time.Millisecond, ProbeRounds: 1, BurstRounds: 1, BurstPods: 300,
		QueuedChanges: 500, ReadinessSamples: 200, KubeletReadinessSamples: 1, IdlePods: 10_000, MemoryPods: 2000,
		RestingPods: 100, RestingPeriod: 10 * time.Second,
		AgentRounds: 1, AgentPods: 30, AgentSettle: 2 * time.Second, AgentIdle: 6 * time.Second, SingleStarts: 5,
		HistoryBytes: 56 << 20, HistoryStorm: 10 * time.Second, HistoryIdle: 3 * time.Second,
		AlertPods: alertPods, AlertTime: 80 * time.Second,
		Server: ServerProfile{
			Rounds: 1, LogBytes: 64 << 20, Followers: 200, FollowerSettle: 3 * time.Second, Execs: 40, RequestTime: 2 * time.Second,
		},
	}
}

// FullProfile returns a profile with more rounds. It takes about half an hour with MeasureWorkers and MeasureCurve.
func FullProfile() Profile {
	return Profile{
		CallRounds: 9, CallTime: 200 * time.Millisecond, ProbeRounds: 3, BurstRounds: 3, BurstPods: 300,
		QueuedChanges: 500, ReadinessSamples: 400, KubeletReadinessSamples: 2, IdlePods: 10_000, MemoryPods: 2000,
		RestingPods: 500, RestingPeriod: time.Minute,
		AgentRounds: 3, AgentPods: 30, AgentSettle: 20 * time.Second, AgentIdle: 30 * time.Second, SingleStarts: 9,
		HistoryBytes: 56 << 20, HistoryStorm: time.Minute, HistoryIdle: 10 * time.Second,
		AlertPods: alertPods, AlertTime: 4 * time.Minute,
		Server: ServerProfile{
			Rounds: 5, LogBytes: 256 << 20, Followers: 200, FollowerSettle: 10 * time.Second, Execs: 200, RequestTime: 5 * time.Second,
		},
	}
}

// LocalCases returns the cases that need no API server.
func LocalCases() []Case {
	return []Case{podManagerCalls, fileSourceCalls, statusManagerCalls, bytesPerPod, idleFullPass, probeCPU}
}

// ClusterCases returns the cases that need an API server.
func ClusterCases() []Case {
	return []Case{latencyBursts, rateLimitedBurst, burstBesidePatches, createdPods, queuedReadiness, restingObjects}
}

// AgentCases returns the cases that need an API server and a machine that can run containers.
func AgentCases() []Case { return []Case{compareAgents} }

// LifeCases returns the cases that count the requests of complete agents. They need what AgentCases need.
func LifeCases() []Case { return []Case{requestsPerPodLife} }

// StartCases returns the cases that compare the starts of pods with what the runtime needs. They need what AgentCases need.
func StartCases() []Case { return []Case{startOverCRI} }

// ServerCases returns the cases that compare the agents' HTTPS servers. They need what AgentCases need.
func ServerCases() []Case { return []Case{compareServers} }

// Run measures the cases. On an error it also returns the results so far.
func Run(ctx context.Context, env *Environment, cases []Case) ([]Result, error) {
	var results []Result
	for _, measure := range cases {
		measured, err := measure(ctx, env)
		if err != nil {
			return results, err
		}
		results = append(results, measured...)
	}
	return results, nil
}

func (e *Environment) logf(format string, args ...any) { fmt.Fprintf(e.Progress, format+"\n", args...) }

package inspect

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/view"
)

// Node returns the view of the node.
func (i *Inspector) Node(ctx context.Context) view.NodeView {
	facts := view.NodeFacts{
		Pods: i.Pods(ctx), Agent: i.agentFacts(), Runtime: i.runtimeView(), Cluster: i.config.Cluster, Sources: i.Sources(),
	}
	if i.config.History != nil {
		facts.History = i.historyFacts(ctx)
	}
	if i.config.Node != nil {
		i.addNode(&facts)
	}
	facts.Agent.Latencies = i.latencies(&facts, time.Now())
	if i.config.Stats != nil {
		facts.Load = i.nodeLoad()
	}
	v := view.NewNode(facts)
	i.addConnection(&v)
	return v
}

func (i *Inspector) addNode(facts *view.NodeFacts) {
	facts.Node = i.config.Node.Object()
	sync := i.config.Node.Sync()
	facts.Synced, facts.SyncedAt, facts.At = sync.Synced, sync.SyncedAt, sync.LocalAt
	if facts.Node != nil && sync.Local != nil {
		local := *facts.Node
		local.Status = *sync.Local
		facts.Node = &local
	}
	facts.Lag = view.Lag{
		State: explain.SyncState(sync.State), Reason: sync.Reason, Failures: sync.Failures, NextTry: view.NewTime(sync.NextTry),
	}
	if !sync.Since.IsZero() {
		facts.Lag.Behind, facts.Lag.SinceMs = 1, time.Since(sync.Since).Milliseconds()
	}
	if sync.Lease != (node.LeaseSync{}) {
		facts.Lease = &view.Lease{
			RenewedAt: view.NewTime(sync.Lease.RenewedAt), DurationMs: sync.Lease.Duration.Milliseconds(), Problem: sync.Lease.Problem,
		}
	}
}

func (i *Inspector) runtimeView() view.Runtime {
	facts := i.runtimeFacts()
	runtime := view.Runtime{RelistedAt: view.NewTime(facts.Observed), Stale: i.config.Agent.PLEG.Stale()}
	runtime.Name, runtime.Version = i.config.RuntimeVersion()
	if facts.Err != nil {
		runtime.Problem = facts.Err.Error()
	}
	if facts.Network != nil {
		runtime.Network = facts.Network.Error()
	}
	return runtime
}

// agentFacts returns what the agent uses of the machine.
func (i *Inspector) agentFacts() view.Agent {
	a := view.Agent{Version: i.config.Version, StartedAt: view.NewTime(i.startedAt), RSSBytes: residentBytes()}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		used := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		a.CPU = used.Seconds() / max(1, time.Since(i.startedAt).Seconds())
	}
	return a
}

func (i *Inspector) latencies(facts *view.NodeFacts, now time.Time) view.Latencies {
	latencies := view.Latencies{
		StatusLagP99Ms: view.NewLatency(i.config.Agent.Statuses.LagP99(now)), APIP99Ms: view.NewLatency(i.config.APILatency(now)),
		RuntimeP99Ms: view.NewLatency(i.config.RuntimeLatency(now)), RelistP99Ms: view.NewLatency(i.config.Agent.PLEG.RelistP99(now)),
	}
	if i.config.Cluster == "" {
		return latencies
	}
	oldest := facts.Lag.SinceMs
	for n := range facts.Pods {
		if lag := &facts.Pods[n].Lag; lag.Behind > 0 {
			oldest = max(oldest, lag.SinceMs)
		}
	}
	latencies.OldestUnsentMs = &oldest
	return latencies
}

// residentBytes returns the resident memory of this process, or 0 if it is unknown.
func residentBytes() int64 {
	content, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(content))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

func (i *Inspector) historyFacts(ctx context.Context) view.History {
	log := i.config.History
	return view.History{Bytes: log.Size(), Oldest: view.NewTime(log.Oldest(ctx)), LastSeq: log.LastSeq(), Problem: log.Problem()}
}

// problems returns the newest manifests that are not used, by the pod that they would define.
func (i *Inspector) problems() map[podid.FullName]source.Problem {
	problems := map[podid.FullName]source.Problem{}
	for _, problem := range i.config.Agent.Sources.Problems() {
		if problem.Pod != (podid.FullName{}) {
			problems[problem.Pod] = problem
		}
	}
	return problems
}

// newSource returns where a pod comes from, and the problem of its newest manifest.
func newSource(from podid.Source, problem source.Problem) explain.Source {
	facts := explain.Source{Name: from}
	if problem.Message != "" {
		facts.Name, facts.Problem, facts.Since = problem.Source, problem.String(), problem.Since
	}
	return facts
}

// Sources returns the states of the sources of pods.
func (i *Inspector) Sources() []view.Source {
	states := i.config.Agent.Sources.States()
	sources := make([]view.Source, len(states))
	for n := range states {
		state := &states[n]
		sources[n] = view.Source{
			Name: string(state.Name), State: string(state.Health), Origin: state.Origin, Pods: state.Pods,
			LastChange: view.NewTime(state.LastChange),
		}
		for _, problem := range state.Problems {
			p := view.Problem{Message: problem.String(), Since: view.NewTime(problem.Since), LastGood: view.NewTime(problem.LastGood)}
			if problem.Pod != (podid.FullName{}) {
				p.Pod = problem.Pod.Key()
			}
			sources[n].Problems = append(sources[n].Problems, p)
		}
		for _, ignored := range state.Ignored {
			sources[n].Ignored = append(sources[n].Ignored, fmt.Sprintf("%s (%s)", ignored.Path, ignored.Reason))
		}
	}
	return sources
}

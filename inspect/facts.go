package inspect

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

// collector collects the facts about pods at one instant.
type collector struct {
	*Inspector
	now time.Time
	// problems has the manifests that are not used.
	problems map[podid.FullName]source.Problem
	syncs    map[podid.UID]status.Sync
	workers  map[podid.UID]worker.PodState
	runtime  explain.Runtime
}

// newCollector returns a collector for all pods.
func (i *Inspector) newCollector(ctx context.Context) *collector {
	c := i.newEmptyCollector(ctx)
	c.syncs = i.config.Agent.Statuses.Syncs()
	for _, state := range i.config.Agent.Workers.Pods() {
		c.workers[state.UID] = state
	}
	return c
}

// newPodCollector returns a collector for one pod.
func (i *Inspector) newPodCollector(ctx context.Context, pod *v1.Pod) *collector {
	c, uid := i.newEmptyCollector(ctx), podid.UID(pod.UID)
	if sync, found := i.config.Agent.Statuses.Sync(pod.UID); found {
		c.syncs = map[podid.UID]status.Sync{uid: sync}
	}
	if state, found := i.config.Agent.Workers.Pod(uid); found {
		c.workers[uid] = state
	}
	return c
}

func (i *Inspector) newEmptyCollector(ctx context.Context) *collector {
	i.seed.Do(func() { i.seedTally(context.WithoutCancel(ctx)) })
	return &collector{
		Inspector: i, now: time.Now(), problems: i.problems(), workers: map[podid.UID]worker.PodState{}, runtime: i.runtimeFacts(),
	}
}

func (i *Inspector) runtimeFacts() explain.Runtime {
	health := i.config.Agent.RuntimeHealth()
	_, listedAt := i.config.Agent.PLEG.Pods()
	return explain.Runtime{
		Err: health.Err, Since: health.Since, NextTry: health.NextTry, Network: health.Network,
		Observed: listedAt, Stale: i.config.Agent.PLEG.Healthy() != nil,
	}
}

// facts returns the facts about a pod of agent.LocalPods.
func (c *collector) facts(pod *v1.Pod) explain.Facts {
	uid, name := podid.UID(pod.UID), podid.FullNameOf(pod)
	f := explain.Facts{
		Now: c.now, Name: name, Pod: pod, Source: newSource(podid.SourceOf(pod), c.problems[name]), Runtime: c.runtime,
		Recent: c.config.Tally.recent(uid, c.now),
	}
	if sync, found := c.syncs[uid]; found {
		f.Sync = newSync(&sync)
	}
	if state, found := c.workers[uid]; found {
		f.Worker = newWorker(&state)
	}
	c.addProbes(&f, uid)
	if observed := c.config.Agent.PLEG.Get(uid); !observed.At.IsZero() {
		f.Observed = observed
	}
	return f
}

func (i *Inspector) addProbes(facts *explain.Facts, uid podid.UID) {
	states := i.config.Agent.Prober.State(uid)
	if len(states) == 0 {
		return
	}
	facts.Probes = make([]explain.Probe, len(states))
	for n := range states {
		facts.Probes[n] = newProbe(&states[n])
	}
}

func newSync(s *status.Sync) explain.Sync {
	sync := explain.Sync{
		State: explain.SyncState(s.State), Version: s.Version, SyncedVersion: s.SyncedVersion, At: s.At, SyncedAt: s.SyncedAt,
		Synced: s.Synced, ResourceVersion: s.ResourceVersion, Behind: s.Behind, Since: s.Since,
		Reason: s.Reason, Failures: s.Failures, NextTry: s.NextTry, Repairs: s.Repairs, Finalizers: s.Finalizers,
	}
	if s.SyncedVersion == s.Version && s.SyncedAt.After(s.At) {
		sync.Took = s.SyncedAt.Sub(s.At)
	}
	return sync
}

func newWorker(s *worker.PodState) explain.Worker {
	w := explain.Worker{
		Known: true, Stage: s.Stage, Trouble: s.Err, Failures: s.Failures, RetryAt: s.RetryAt, Rejected: s.Rejected,
		WaitsFor: s.WaitsFor, VolumesPending: s.VolumesPending, SandboxPending: s.SandboxPending,
	}
	if len(s.Starts) > 0 {
		w.Starts = make(map[string]explain.Start, len(s.Starts))
		for name, start := range s.Starts {
			w.Starts[name] = explain.Start{
				Reason: start.Waiting.Reason, Message: start.Waiting.Message, At: start.At, Failures: start.Failures, Delay: start.Delay,
			}
		}
	}
	for _, stopping := range s.Stopping {
		w.Stopping = append(w.Stopping, explain.Stopping{
			Container: stopping.Container, Reason: stopping.Reason, Message: stopping.Message,
			Since: stopping.Since, KillAt: stopping.KillAt, PreStop: stopping.PreStop,
		})
	}
	return w
}

func newProbe(s *probe.State) explain.Probe {
	return explain.Probe{
		Container: s.Container, Kind: probeKind(s.Kind), Target: s.Target, Result: probeResult(s.Result),
		Streak: s.Streak, StreakFailed: s.StreakFailed, Threshold: s.Threshold, Errors: s.Errors,
		Last: newAnswer(s.Last), LastSuccess: s.LastSuccess, Median: s.Median, Longest: s.Longest, Next: s.Next,
	}
}

func probeResult(result derive.ProbeResult) explain.ProbeResult {
	switch result {
	case derive.ProbeSuccess:
		return explain.Passing
	case derive.ProbeFailure:
		return explain.Failing
	default:
		return explain.Undecided
	}
}

func newAnswer(a probe.Answer) explain.Answer {
	return explain.Answer{At: a.At, Took: a.Took, OK: a.OK, Message: a.Message}
}

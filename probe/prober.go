package probe

import (
	"container/heap"
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// Prober probes the containers of the added pods while Run runs. All other methods may be called at any time from any
// goroutine and do not block. Create it with New.
type Prober struct {
	config    Config
	checker   *check.Checker
	metrics   *metrics
	startedAt time.Time
	wakeup    wakeup.Signal // set when a probe is due earlier than before

	mu       sync.Mutex // guards the fields below and the state of the probes
	pods     map[podid.UID]*podProbes
	schedule schedule
}

// podProbes are the probes of one pod. Prober.mu guards it.
type podProbes struct {
	pod    *v1.Pod
	probes []*containerProbe
	// execSlots is a semaphore of the commands that run at once.
	execSlots chan struct{}
	// terminating reports that liveness and startup probes have stopped for good.
	terminating bool
}

// maxConcurrentExecs limits the commands that the probes of one pod run at once: each holds its output in the agent's memory and
// a process in the runtime.
const maxConcurrentExecs = 10

// containerProbe is one probe of one container. The first seven fields are immutable; Prober.mu guards the others.
type containerProbe struct {
	pod       *v1.Pod
	container *v1.Container
	spec      *v1.Probe
	kind      judge.Kind
	target    string        // what is checked, as text
	execSlots chan struct{} // of its pod
	counters  counters

	state judge.Probe
	last  lastAnswers
	// stopped reports that no check follows and that late results are ignored.
	stopped bool
	// cancel stops the check in flight. Nil if there is none. A probe that replaced another one waits for the other's check,
	// so that the older result is not published last.
	cancel context.CancelFunc
	// successor replaced this probe during a check.
	successor *containerProbe
	// recheck reports that something happened during the check.
	recheck bool
	dueAt   time.Time
	index   int // in the schedule, -1 if absent
}

func (p *containerProbe) uid() podid.UID { return podid.UID(p.pod.UID) }

// New returns a Prober. Call Run to start probing.
func New(config Config) (*Prober, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	return &Prober{
		config: config, checker: check.New(config.Runtime), metrics: m, startedAt: time.Now(),
		wakeup: wakeup.New(), pods: map[podid.UID]*podProbes{},
	}, nil
}

// AddPod starts probing the pod's containers. If they are already probed, it evaluates their probes again: the containers may
// have changed. Probes follow in-place edits of their spec, unlike the kubelet's (PRB-3).
func (p *Prober) AddPod(pod *v1.Pod) {
	p.mu.Lock()
	for _, probe := range p.updatePodLocked(pod).probes {
		p.evaluateSoonLocked(probe)
	}
	p.mu.Unlock()
	p.wakeup.Set()
}

// StopLivenessAndStartup stops the probes that could cause a restart for good, also those of sidecars (BUG-35). Readiness
// probes continue until RemovePod, so that a terminating pod can become unready (PRB-37, BUG-25). If the pod was not added
// yet, they start: a restarted agent finds terminating pods.
func (p *Prober) StopLivenessAndStartup(pod *v1.Pod) {
	p.mu.Lock()
	podProbes := p.updatePodLocked(pod)
	podProbes.terminating = true
	for _, probe := range podProbes.probes {
		if probe.kind == judge.Readiness {
			p.evaluateSoonLocked(probe)
		} else {
			p.stopLocked(probe)
		}
	}
	p.mu.Unlock()
	p.wakeup.Set()
}

// RemovePod stops all probes of the pod and removes their results.
func (p *Prober) RemovePod(uid podid.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	podProbes, ok := p.pods[uid]
	if !ok {
		return
	}
	for _, probe := range podProbes.probes {
		p.stopLocked(probe)
		p.metrics.remove(probe)
	}
	delete(p.pods, uid)
}

// Results returns the newest results, and the containers whose liveness or startup probe failed. The message of the latter is
// empty: the pod worker explains the restart, and the failure of the probe was reported when it happened.
func (p *Prober) Results(uid podid.UID) (derive.ProbeResults, map[observed.ContainerID]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	podProbes, ok := p.pods[uid]
	if !ok {
		return nil, nil
	}
	results, unhealthy := derive.ProbeResults{}, map[observed.ContainerID]string{}
	for _, probe := range podProbes.probes {
		id, result := probe.state.LastResult()
		if result == derive.ProbeUnknown {
			continue
		}
		containerResults := results[id]
		switch probe.kind {
		case judge.Startup:
			containerResults.Startup = result
		case judge.Readiness:
			containerResults.Readiness = result
		}
		results[id] = containerResults
		if result == derive.ProbeFailure && probe.kind != judge.Readiness && !podProbes.terminating { // PRB-21
			unhealthy[id] = ""
		}
	}
	return results, unhealthy
}

// updatePodLocked returns the probes of the pod, updated to its current spec unless it is terminating.
func (p *Prober) updatePodLocked(pod *v1.Pod) *podProbes {
	probes, ok := p.pods[podid.UID(pod.UID)]
	if !ok {
		probes = &podProbes{execSlots: make(chan struct{}, maxConcurrentExecs)}
		p.pods[podid.UID(pod.UID)] = probes
	}
	if probes.pod != pod && !probes.terminating {
		p.updateProbesLocked(probes, pod)
	}
	return probes
}

// updateProbesLocked creates a probe for each one that the pod's containers declare and stops all others. The probe of an
// unchanged container stays (PRB-1).
func (p *Prober) updateProbesLocked(podProbes *podProbes, pod *v1.Pod) {
	before := podProbes.probes
	podProbes.pod, podProbes.probes = pod, nil
	for _, container := range probedContainers(pod) {
		for _, kind := range []judge.Kind{judge.Startup, judge.Readiness, judge.Liveness} {
			if spec := kind.ProbeOf(container); spec != nil {
				podProbes.probes = append(podProbes.probes, keepOrReplace(before, &containerProbe{
					pod: pod, container: container, spec: spec, kind: kind, target: targetText(spec),
					execSlots: podProbes.execSlots, index: -1,
				}))
			}
		}
	}
	for _, old := range before {
		current := findProbe(podProbes.probes, old.container.Name, old.kind)
		if current != old {
			p.stopLocked(old)
		}
		if current == nil {
			p.metrics.remove(old)
		}
	}
}

// keepOrReplace returns the existing probe if its container is unchanged, else the declared one, which continues from it.
func keepOrReplace(existing []*containerProbe, declared *containerProbe) *containerProbe {
	params := judge.NewParams(declared.kind, declared.spec)
	params.HasStartupProbe = declared.container.StartupProbe != nil
	old := findProbe(existing, declared.container.Name, declared.kind)
	switch {
	case old == nil:
		declared.state, declared.counters = judge.New(params), counters{}
	case equality.Semantic.DeepEqual(old.container, declared.container):
		return old
	default:
		declared.state, declared.counters, declared.last = old.state.WithParams(params), old.counters, old.last
		if old.cancel != nil {
			old.successor, declared.cancel = declared, func() {}
		}
	}
	return declared
}

func findProbe(probes []*containerProbe, container string, kind judge.Kind) *containerProbe {
	for _, probe := range probes {
		if probe.kind == kind && probe.container.Name == container {
			return probe
		}
	}
	return nil
}

// probedContainers returns the containers that keep running: regular containers and sidecars (PRB-2).
func probedContainers(pod *v1.Pod) []*v1.Container {
	var containers []*v1.Container
	for i := range pod.Spec.InitContainers {
		if container := &pod.Spec.InitContainers[i]; restart.IsSidecar(container) {
			containers = append(containers, container)
		}
	}
	for i := range pod.Spec.Containers {
		containers = append(containers, &pod.Spec.Containers[i])
	}
	return containers
}

// evaluateSoonLocked schedules the probe for now, or for the end of the check in flight. It is not checked more often than
// its period allows (BUG-36).
func (p *Prober) evaluateSoonLocked(probe *containerProbe) {
	switch {
	case probe.stopped:
	case probe.cancel != nil:
		probe.recheck = true
	default:
		p.schedule.set(probe, time.Now())
	}
}

// stopLocked stops the probe and cancels the check in flight (BUG-23).
func (p *Prober) stopLocked(probe *containerProbe) {
	probe.stopped = true
	p.schedule.remove(probe)
	if probe.cancel != nil {
		probe.cancel()
	}
}

// schedule is a heap of probes, the next one due first. It implements heap.Interface.
type schedule []*containerProbe

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].dueAt.Before(s[j].dueAt) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	probe := x.(*containerProbe)
	probe.index = len(*s)
	*s = append(*s, probe)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	probe := (*s)[last]
	(*s)[last], *s = nil, (*s)[:last]
	probe.index = -1
	return probe
}

// set schedules the probe.
func (s *schedule) set(probe *containerProbe, dueAt time.Time) {
	probe.dueAt = dueAt
	if probe.index < 0 {
		heap.Push(s, probe)
	} else {
		heap.Fix(s, probe.index)
	}
}

func (s *schedule) remove(probe *containerProbe) {
	if probe.index >= 0 {
		heap.Remove(s, probe.index)
	}
}

// next removes and returns the first probe if it is due. Otherwise it returns nil and when the first one is due; zero if
// there is none.
func (s *schedule) next(now time.Time) (*containerProbe, time.Time) {
	switch {
	case len(*s) == 0:
		return nil, time.Time{}
	case (*s)[0].dueAt.After(now):
		return nil, (*s)[0].dueAt
	default:
		return heap.Pop(s).(*containerProbe), time.Time{}
	}
}

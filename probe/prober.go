package probe

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// Prober probes the containers of the pods that it is told of, while Run runs. All other methods may be called at any
// time from any goroutine, and do not block. Make one with New.
type Prober struct {
	config  Config
	checker *check.Checker
	metrics *metrics
	started time.Time
	more    chan struct{} // capacity 1: look again, something is due earlier than it was

	mu   sync.Mutex // guards all below, and the probes' state
	pods map[podid.UID]*record
	due  schedule
}

// record is what is known of one pod. Prober.mu guards it.
type record struct {
	pod    *v1.Pod
	probes []*probe
	// ending: liveness and startup have stopped for good.
	ending bool
}

// probe is one probe of one container. What the spec says never changes; Prober.mu guards the rest.
type probe struct {
	pod       *v1.Pod
	container *v1.Container
	spec      *v1.Probe
	kind      judge.Kind
	series    series

	state judge.Probe
	// stopped: it is never checked again, and a result that comes late means nothing.
	stopped bool
	// cancel ends the check that is under way; nil: none is. One that took the place of another waits for the other's, so
	// that what came of that is not told last.
	cancel context.CancelFunc
	// heir took its place during a check.
	heir *probe
	// poked: something happened during the check.
	poked bool
	due   time.Time
	place int // in the schedule, -1: not there
}

func (p *probe) uid() podid.UID { return podid.UID(p.pod.UID) }

// New makes a Prober. Run it to have containers probed.
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
		config: config, checker: check.New(config.Runtime), metrics: m, started: time.Now(),
		more: make(chan struct{}, 1), pods: map[podid.UID]*record{},
	}, nil
}

// AddPod probes the pod's containers from now on, or looks at those that are probed again: something may have happened
// to them. Probes follow their spec when it is edited in place, which the kubelet's do not (PRB-3).
func (p *Prober) AddPod(pod *v1.Pod) {
	p.mu.Lock()
	for _, probe := range p.recordLocked(pod).probes {
		p.pokeLocked(probe)
	}
	p.mu.Unlock()
	p.lookAgain()
}

// recordLocked is that of the pod as it is now, unless it is stopping.
func (p *Prober) recordLocked(pod *v1.Pod) *record {
	r, known := p.pods[podid.UID(pod.UID)]
	if !known {
		r = &record{}
		p.pods[podid.UID(pod.UID)] = r
	}
	if r.pod != pod && !r.ending {
		p.declareLocked(r, pod)
	}
	return r
}

// StopLivenessAndStartup ends for good what could ask for a restart, in sidecars too (BUG-35). Until RemovePod, readiness
// goes on, so that a pod that is stopping can still become unready (PRB-37, BUG-25), or begins: an agent that was restarted
// finds pods that are.
func (p *Prober) StopLivenessAndStartup(pod *v1.Pod) {
	p.mu.Lock()
	r := p.recordLocked(pod)
	r.ending = true
	for _, probe := range r.probes {
		if probe.kind == judge.Readiness {
			p.pokeLocked(probe)
		} else {
			p.stopLocked(probe)
		}
	}
	p.mu.Unlock()
	p.lookAgain()
}

// RemovePod ends all probing of the pod and forgets what was found.
func (p *Prober) RemovePod(uid podid.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.pods[uid]
	if !known {
		return
	}
	for _, probe := range r.probes {
		p.stopLocked(probe)
		p.metrics.forget(probe)
	}
	delete(p.pods, uid)
}

// Results are the newest verdicts, and the containers whose liveness or startup probe gave up. Their message is empty:
// what is told of a restart is for whoever restarts to say; why the probe failed was told when it did.
func (p *Prober) Results(uid podid.UID) (derive.ProbeResults, map[observed.ContainerID]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.pods[uid]
	if !known {
		return nil, nil
	}
	facts, unhealthy := derive.ProbeResults{}, map[observed.ContainerID]string{}
	for _, probe := range r.probes {
		id, verdict := probe.state.LastResult()
		if verdict == derive.ProbeUnknown {
			continue
		}
		of := facts[id]
		switch probe.kind {
		case judge.Startup:
			of.Startup = verdict
		case judge.Readiness:
			of.Readiness = verdict
		}
		facts[id] = of
		if verdict == derive.ProbeFailure && probe.kind != judge.Readiness && !r.ending { // PRB-21
			unhealthy[id] = ""
		}
	}
	return facts, unhealthy
}

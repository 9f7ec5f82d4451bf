package probe

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/probe/judge"
)

// declareLocked has a probe for each that the pod's containers declare, and no other. One whose container is as it was
// stays as it is (PRB-1).
func (p *Prober) declareLocked(r *record, pod *v1.Pod) {
	before := r.probes
	r.pod, r.probes = pod, nil
	for _, container := range probed(pod) {
		for _, kind := range []judge.Kind{judge.Startup, judge.Readiness, judge.Liveness} {
			if spec := kind.ProbeOf(container); spec != nil {
				r.probes = append(r.probes, p.keepOrMakeLocked(before, &probe{
					pod: pod, container: container, spec: spec, kind: kind, place: -1,
				}))
			}
		}
	}
	for _, old := range before {
		if find(r.probes, old.container.Name, old.kind) != old {
			p.stopLocked(old)
		}
		if find(r.probes, old.container.Name, old.kind) == nil {
			p.metrics.forget(old)
		}
	}
}

// keepOrMakeLocked is the probe that was there before, if its container is the same, or a new one that goes on from it.
func (p *Prober) keepOrMakeLocked(before []*probe, declared *probe) *probe {
	rules := judge.NewParams(declared.kind, declared.spec)
	rules.HasStartupProbe = declared.container.StartupProbe != nil
	old := find(before, declared.container.Name, declared.kind)
	switch {
	case old == nil:
		declared.state, declared.series = judge.New(rules), series{}
	case equality.Semantic.DeepEqual(old.container, declared.container):
		return old
	default:
		declared.state, declared.series = old.state.WithParams(rules), old.series
		if old.cancel != nil {
			old.heir, declared.cancel = declared, func() {}
		}
	}
	return declared
}

func find(probes []*probe, container string, kind judge.Kind) *probe {
	for _, probe := range probes {
		if probe.kind == kind && probe.container.Name == container {
			return probe
		}
	}
	return nil
}

// probed are the containers that stay: regular ones and sidecars (PRB-2).
func probed(pod *v1.Pod) []*v1.Container {
	var all []*v1.Container
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if restart.IsSidecar(c) {
			all = append(all, c)
		}
	}
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i])
	}
	return all
}

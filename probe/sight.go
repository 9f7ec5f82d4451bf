package probe

import (
	"math/rand/v2"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// sight is what is seen of a probe's container before anything is decided.
type sight struct {
	// instance is the newest, nil: there is none.
	instance *observed.Container
	target   check.Target
	// startedBefore tells that the published status shows this very instance as started: an earlier agent saw it pass.
	startedBefore bool
}

func (p *Prober) see(probe *probe) sight {
	seen := p.config.PodCache.Get(probe.uid())
	s := sight{instance: newest(seen, probe.container.Name)}
	if s.instance == nil {
		return s
	}
	s.target = check.Target{
		Container: probe.container, ID: s.instance.ID, Address: p.addressOf(probe.pod, seen),
		PodNetwork: !probe.pod.Spec.HostNetwork && !p.config.AllowNodeAddresses,
	}
	if probe.container.StartupProbe != nil {
		s.startedBefore = p.isPublishedAsStarted(probe.uid(), s.instance)
	}
	return s
}

func newest(seen *observed.Pod, name string) *observed.Container {
	for i := range seen.Containers {
		if seen.Containers[i].Name == name {
			return &seen.Containers[i]
		}
	}
	return nil
}

// addressOf is the pod's primary address, or none.
func (p *Prober) addressOf(pod *v1.Pod, seen *observed.Pod) netip.Addr {
	node := p.config.NodeInfo()
	if pod.Spec.HostNetwork {
		if len(node.HostIPs) > 0 {
			return node.HostIPs[0]
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for _, address := range seen.IPs {
		if address.Unmap().Is6() == node.IPv6First {
			return address
		}
	}
	if len(seen.IPs) > 0 {
		return seen.IPs[0]
	}
	return netip.Addr{}
}

func (p *Prober) isPublishedAsStarted(uid podid.UID, instance *observed.Container) bool {
	status, known := p.config.Statuses.GetPodStatus(types.UID(uid))
	if !known {
		return false
	}
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			c := &list[i]
			if c.Name == instance.Name && observed.ParseContainerID(c.ContainerID) == instance.ID {
				return c.Started != nil && *c.Started
			}
		}
	}
	return false
}

// containerLocked is what judge is asked about.
func (p *Prober) containerLocked(probe *probe, s sight, now time.Time) judge.Container {
	if s.instance == nil {
		return judge.Container{}
	}
	return judge.Container{
		ID: s.instance.ID, State: s.instance.State, StartedAt: s.instance.StartedAt,
		Started:   s.startedBefore || p.gateOpenLocked(probe, s.instance.ID),
		Reachable: s.target.Address.IsValid() || !check.NeedsAddress(probe.spec),
		Delay:     p.delay(probe, s.instance, now),
	}
}

// gateOpenLocked reports whether the container's startup probe has passed, or there is none.
func (p *Prober) gateOpenLocked(probe *probe, id observed.ContainerID) bool {
	if probe.kind == judge.Startup {
		return false
	}
	startup := find(p.pods[probe.uid()].probes, probe.container.Name, judge.Startup)
	return startup == nil || startup.state.Result(id) == derive.ProbeSuccess
}

// delay is PRB-4: an agent that has just begun does not ask all containers that ran before it at once. Containers that
// were started since are spread by themselves, and someone waits for them to become ready.
func (p *Prober) delay(probe *probe, instance *observed.Container, now time.Time) time.Duration {
	period := judge.NewParams(probe.kind, probe.spec).Period
	if now.Sub(p.started) >= period || !instance.StartedAt.Before(p.started) {
		return 0
	}
	return rand.N(period)
}

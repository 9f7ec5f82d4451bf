package diff_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
	probejudge "github.com/heraldnode/herald/probe/judge"
)

// heraldAgent is our prober with a worker that looks at the pod whenever it is woken.
type heraldAgent struct {
	ward *ward
	*chart
	*probe.Prober

	published sync.Mutex // guards all below
	started   map[string]bool
	// ready is what was told of readiness since the agent began; unhealthy what the worker found when it was last woken.
	ready     map[string]bool
	unhealthy map[observed.ContainerID]string
	told      []string

	cancel func()
	ended  sync.WaitGroup
}

// newHerald starts one that knows what the one before it published.
func (w *ward) newHerald(before *heraldAgent) *heraldAgent {
	a := &heraldAgent{ward: w, started: map[string]bool{}, ready: map[string]bool{}}
	if before != nil {
		maps.Copy(a.started, before.started)
	}
	a.chart = newChart(w, a.level)
	var err error
	if a.Prober, err = probe.New(probe.Config{Observations: a, Statuses: a, Runtime: a, Wake: a.wake}); err != nil {
		w.t.Fatal(err)
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.ended.Go(func() { _ = a.Run(ctx) })
	return a
}

func (a *heraldAgent) stop() {
	a.cancel()
	a.ended.Wait()
}

func (a *heraldAgent) sync() { a.AddPod(a.ward.pod) }

func (a *heraldAgent) wake(uid podid.UID) {
	_, unhealthy := a.Results(uid)
	a.published.Lock()
	a.unhealthy = unhealthy
	a.published.Unlock()
	a.sync()
}

// Get implements probe.Observations.
func (a *heraldAgent) Get(uid podid.UID) *observed.Pod {
	seen := &observed.Pod{UID: uid, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	for _, p := range a.ward.patients() {
		seen.Containers = append(seen.Containers, observed.Container{
			Name: p.name, ID: p.containerID(), State: p.state, StartedAt: p.since,
		})
	}
	return seen
}

// GetPodStatus implements probe.Statuses.
func (a *heraldAgent) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	a.published.Lock()
	defer a.published.Unlock()
	var status v1.PodStatus
	for id, started := range a.started {
		p := a.ward.find(id)
		if p == nil {
			continue
		}
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: p.name, ContainerID: p.containerID().String(), Started: &started,
		})
	}
	return status, true
}

// SetContainerReadiness implements probe.Statuses.
func (a *heraldAgent) SetContainerReadiness(_ types.UID, id observed.ContainerID, ready bool) {
	a.published.Lock()
	defer a.published.Unlock()
	a.ready[id.ID] = ready
	a.told = append(a.told, fmt.Sprintf("Readiness of %s: %v", id.ID, ready))
}

// SetContainerStartup implements probe.Statuses.
func (a *heraldAgent) SetContainerStartup(_ types.UID, id observed.ContainerID, started bool) {
	a.published.Lock()
	defer a.published.Unlock()
	a.started[id.ID] = started
	a.told = append(a.told, fmt.Sprintf("Startup of %s: %v", id.ID, started))
}

// level is what workers are told of a container when they ask.
func (a *heraldAgent) level(id string, kind probejudge.Kind) level {
	of := observed.ContainerID{Runtime: "test", ID: id}
	facts, unhealthy := a.Results(podid.UID(a.ward.pod.UID))
	_, failed := unhealthy[of]
	switch kind {
	case probejudge.Readiness:
		return level{Passed: facts[of].Readiness == derive.ProbePassed}
	case probejudge.Startup:
		return level{Passed: facts[of].Startup == derive.ProbePassed, Failed: facts[of].Startup == derive.ProbeFailed}
	}
	return level{Failed: failed && facts[of].Startup != derive.ProbeFailed}
}

// isTold says what was decided about a running container and not told.
func (a *heraldAgent) isTold(p *patient) string {
	ready, startup := a.level(p.id, probejudge.Readiness), a.level(p.id, probejudge.Startup)
	_, unhealthy := a.Results(podid.UID(a.ward.pod.UID))
	_, ill := unhealthy[p.containerID()]
	a.published.Lock()
	defer a.published.Unlock()
	_, told := a.unhealthy[p.containerID()]
	switch {
	case ready.Passed != a.ready[p.id]:
		return fmt.Sprintf("%s: ready is %v, and %v was told", p.id, ready.Passed, a.ready[p.id])
	case startup.Passed != a.started[p.id]:
		return fmt.Sprintf("%s: started is %v, and %v was told", p.id, startup.Passed, a.started[p.id])
	case ill != told && !a.ward.isEnding():
		return fmt.Sprintf("%s: unhealthy is %v, and the worker saw %v", p.id, ill, told)
	}
	return ""
}

// Exec implements check.Runtime.
func (a *heraldAgent) Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error) {
	p := a.ward.find(id.ID)
	if p == nil || p.state != observed.Running {
		a.complain("%s does not run and was asked", id)
	}
	deadline, _ := ctx.Deadline()
	code, err := a.exec(ctx, id.ID, command[0], time.Until(deadline))
	return nil, code, err
}

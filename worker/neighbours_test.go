package worker_test

import (
	"context"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// volumes are there when they were mounted, unless they are stuck.
type volumes struct {
	mu      sync.Mutex // guards all below
	mounted map[podid.UID]bool
	mounts  int
	stuck   bool
	broken  error
}

func (v *volumes) Mount(ctx context.Context, p *v1.Pod) error {
	return v.do(ctx, func() { v.mounted[podid.UID(p.UID)] = true; v.mounts++ })
}

func (v *volumes) Unmount(ctx context.Context, uid podid.UID) error {
	return v.do(ctx, func() { delete(v.mounted, uid) })
}

func (v *volumes) do(ctx context.Context, work func()) error {
	v.mu.Lock()
	stuck, broken := v.stuck, v.broken
	v.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if broken == nil {
		work()
	}
	return broken
}

func (v *volumes) set(stuck bool, broken error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stuck, v.broken = stuck, broken
}

func (v *volumes) has(uid types.UID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mounted[podid.UID(uid)]
}

func (v *volumes) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mounts = 0
}

func (v *volumes) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mounts
}

// probes keep a list of what was asked of them.
type probes struct {
	mu        sync.Mutex // guards all below
	asked     []string
	unhealthy map[observed.ContainerID]string
}

func (p *probes) ask(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) == 0 || p.asked[len(p.asked)-1] != what {
		p.asked = append(p.asked, what)
	}
}

func (p *probes) AddPod(*v1.Pod)                 { p.ask("add") }
func (p *probes) StopLivenessAndStartup(*v1.Pod) { p.ask("stop-liveness") }
func (p *probes) RemovePod(podid.UID)            { p.ask("remove") }

func (p *probes) Results(podid.UID) (derive.ProbeResults, map[observed.ContainerID]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return nil, p.unhealthy
}

func (p *probes) giveUpOn(id observed.ContainerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unhealthy = map[observed.ContainerID]string{id: "it does not answer"}
}

func (p *probes) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.asked, " ")
}

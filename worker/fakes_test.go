package worker_test

import (
	"context"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// fakePodCache is a worker.PodCache that inspects a pod when it is asked for it.
type fakePodCache struct {
	runtime *fakeruntime.Runtime

	mu          sync.Mutex // guards the fields below
	pods        map[podid.UID]*observed.Pod
	neverListed bool // Pods returns no list
}

func (c *fakePodCache) Get(uid podid.UID) *observed.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached, found := c.pods[uid]; found {
		return cached
	}
	return &observed.Pod{UID: uid}
}

func (c *fakePodCache) inspect(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	inspected, err := c.runtime.InspectPod(ctx, uid)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[uid] = inspected
	return inspected, nil
}

func (c *fakePodCache) watch(ctx context.Context, wake func(podid.UID)) {
	_ = c.runtime.WatchPods(ctx, func(uid podid.UID) {
		if _, err := c.inspect(ctx, uid); err == nil {
			wake(uid)
		}
	})
}

func (c *fakePodCache) GetNewerThan(ctx context.Context, uid podid.UID, _ time.Time) (*observed.Pod, error) {
	return c.inspect(ctx, uid)
}

func (c *fakePodCache) Refresh(podid.UID) {}

func (c *fakePodCache) setNeverListed(neverListed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.neverListed = neverListed
}

func (c *fakePodCache) Pods() ([]*observed.Pod, time.Time) {
	c.mu.Lock()
	neverListed := c.neverListed
	c.mu.Unlock()
	pods, err := c.runtime.ListPods(context.Background())
	if err != nil || neverListed {
		return nil, time.Time{}
	}
	if pods == nil {
		pods = []*observed.Pod{}
	}
	return pods, time.Now()
}

// fakeVolumes records which pods have mounted volumes. Its calls can be made to hang or to fail.
type fakeVolumes struct {
	mu      sync.Mutex // guards the fields below
	mounted map[podid.UID]bool
	mounts  int
	panics  string // name of the pod whose mount panics
	hang    bool
	err     error
}

func (v *fakeVolumes) Mount(ctx context.Context, pod *v1.Pod) error {
	v.mu.Lock()
	panics := v.panics == pod.Name
	v.mu.Unlock()
	if panics {
		panic("mount panics")
	}
	return v.do(ctx, func() { v.mounted[podid.UID(pod.UID)] = true; v.mounts++ })
}

func (v *fakeVolumes) Unmount(ctx context.Context, uid podid.UID) error {
	return v.do(ctx, func() { delete(v.mounted, uid) })
}

func (v *fakeVolumes) do(ctx context.Context, change func()) error {
	v.mu.Lock()
	hang, err := v.hang, v.err
	v.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		change()
	}
	return err
}

// set makes calls hang or fail.
func (v *fakeVolumes) set(hang bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hang, v.err = hang, err
}

func (v *fakeVolumes) setPanic(pod string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.panics = pod
}

func (v *fakeVolumes) has(uid types.UID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mounted[podid.UID(uid)]
}

// takeMounts returns the number of mounts since its last call.
func (v *fakeVolumes) takeMounts() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	mounts := v.mounts
	v.mounts = 0
	return mounts
}

// fakeProbes records the calls that it receives. Repeated calls are recorded once.
type fakeProbes struct {
	mu        sync.Mutex // guards the fields below
	calls     []string
	unhealthy map[observed.ContainerID]string
}

func (p *fakeProbes) record(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls) == 0 || p.calls[len(p.calls)-1] != call {
		p.calls = append(p.calls, call)
	}
}

func (p *fakeProbes) AddPod(*v1.Pod)                 { p.record("add") }
func (p *fakeProbes) StopLivenessAndStartup(*v1.Pod) { p.record("stop-liveness") }
func (p *fakeProbes) RemovePod(podid.UID)            { p.record("remove") }

func (p *fakeProbes) Results(podid.UID) (derive.ProbeResults, map[observed.ContainerID]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return nil, p.unhealthy
}

func (p *fakeProbes) setUnhealthy(id observed.ContainerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unhealthy = map[observed.ContainerID]string{id: "probe failed"}
}

func (p *fakeProbes) recorded() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.calls, " ")
}

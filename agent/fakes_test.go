package agent_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
	"github.com/heraldnode/herald/source"
)

// Without latencies everything in a bubble would happen at the same time, and the order would depend on the scheduler.
const (
	readLatency  = time.Millisecond
	writeLatency = 5 * readLatency
)

// slowRuntime is a runtime with latencies.
type slowRuntime struct{ *fakeruntime.Runtime }

func (e slowRuntime) InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	if err := sleep(ctx, readLatency); err != nil {
		return nil, err
	}
	return e.Runtime.InspectPod(ctx, uid)
}

func (e slowRuntime) StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (string, error) {
	if err := sleep(ctx, writeLatency); err != nil {
		return "", err
	}
	return e.Runtime.StartSandbox(ctx, pod, attempt)
}

func (e slowRuntime) StartContainer(ctx context.Context, pod *v1.Pod, sandboxID string, start plan.Start) error {
	if err := sleep(ctx, writeLatency); err != nil {
		return err
	}
	return e.Runtime.StartContainer(ctx, pod, sandboxID, start)
}

func (e slowRuntime) StopSandbox(ctx context.Context, id string) error {
	if err := sleep(ctx, writeLatency); err != nil {
		return err
	}
	return e.Runtime.StopSandbox(ctx, id)
}

func (e slowRuntime) RemovePod(ctx context.Context, uid podid.UID) error {
	if err := sleep(ctx, writeLatency); err != nil {
		return err
	}
	return e.Runtime.RemovePod(ctx, uid)
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// fakeSource is a manifest directory in memory.
type fakeSource struct {
	changed wakeup.Signal

	mu   sync.Mutex // guards pods
	pods map[string]*v1.Pod
}

func newFakeSource() *fakeSource {
	return &fakeSource{changed: wakeup.New(), pods: map[string]*v1.Pod{}}
}

func (s *fakeSource) Name() podid.Source { return podid.File }

func (s *fakeSource) Run(ctx context.Context, sink source.Sink) error {
	for {
		s.mu.Lock()
		pods := slices.SortedFunc(maps.Values(s.pods), func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
		s.mu.Unlock()
		if pods == nil {
			pods = []*v1.Pod{}
		}
		sink.Replace(pods)
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// set adds or replaces a manifest. A nil pod removes it.
func (s *fakeSource) set(name string, pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod == nil {
		delete(s.pods, name)
	} else {
		s.pods[name] = pod
	}
	s.changed.Set()
}

// fakeAdmission admits all pods except those that a scenario rejects.
type fakeAdmission struct {
	mu      sync.Mutex         // guards the fields below
	reasons map[string]string  // why pods are rejected, by name
	uids    map[types.UID]bool // pods that an agent asked to admit
}

func newFakeAdmission() *fakeAdmission {
	return &fakeAdmission{reasons: map[string]string{}, uids: map[types.UID]bool{}}
}

func (f *fakeAdmission) admit(pod *v1.Pod) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uids[pod.UID] = true
	if reason, found := f.reasons[pod.Name]; found {
		return rejectionError(reason)
	}
	return nil
}

// admitResize defers the resizes of pods that a scenario rejects; those with the reason Infeasible are infeasible.
func (f *fakeAdmission) admitResize(pod *v1.Pod) *resize.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch reason := f.reasons[pod.Name]; reason {
	case "":
		return nil
	case v1.PodReasonInfeasible:
		return resize.Infeasible("never", "test")
	default:
		return resize.Deferred(rejectionError(reason).Error())
	}
}

// setReason rejects the pod with that reason. An empty reason admits it.
func (f *fakeAdmission) setReason(name, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if reason == "" {
		delete(f.reasons, name)
	} else {
		f.reasons[name] = reason
	}
}

// requested returns the pods that an agent asked to admit.
func (f *fakeAdmission) requested() []types.UID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.uids))
}

// rejectionError is a rejection with that reason.
type rejectionError string

func (e rejectionError) Error() string           { return "the node has no resources left" }
func (e rejectionError) RejectionReason() string { return string(e) }

// fakeVolumes records which pods have mounted volumes.
type fakeVolumes struct {
	unmountDelay time.Duration

	mu       sync.Mutex // guards the fields below
	mounted  map[podid.UID]bool
	removing map[podid.UID]bool
	overlaps int // mounts during a removal
	listErr  error
}

func newFakeVolumes(uids ...podid.UID) *fakeVolumes {
	v := &fakeVolumes{mounted: map[podid.UID]bool{}, removing: map[podid.UID]bool{}}
	for _, uid := range uids {
		v.mounted[uid] = true
	}
	return v
}

func (v *fakeVolumes) Mount(_ context.Context, pod *v1.Pod) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.removing[podid.UID(pod.UID)] {
		v.overlaps++
	}
	v.mounted[podid.UID(pod.UID)] = true
	return nil
}

func (v *fakeVolumes) Unmount(ctx context.Context, uid podid.UID) error {
	v.mu.Lock()
	v.removing[uid] = true
	v.mu.Unlock()
	err := sleep(ctx, v.unmountDelay)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.removing, uid)
	if err == nil {
		delete(v.mounted, uid)
	}
	return err
}

func (v *fakeVolumes) Pods() ([]podid.UID, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.mounted)), v.listErr
}

func (v *fakeVolumes) want(t *testing.T, want ...podid.UID) {
	t.Helper()
	if got, _ := v.Pods(); !slices.Equal(got, want) {
		t.Errorf("pods with volumes: got %v, want %v", got, want)
	}
}

// Package fakeruntime provides an in-memory container runtime for tests of node agents.
//
// Containers behave as their [Script] says. Calls fail, hang or lose their response while a [Fault] is injected. The
// runtime records a transcript of all operations and every violation of its contract.
//
// All delays come from package time, so the runtime works inside a testing/synctest bubble.
package fakeruntime

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Runtime is an in-memory container runtime. It is safe for concurrent use. Returned values are copies and belong to the
// caller.
type Runtime struct {
	mu         sync.Mutex // guards all fields below
	pods       map[podid.UID]*pod
	scripts    map[string]Script // by container name
	faults     []*injectedFault
	watchers   map[*watcher]struct{}
	transcript []string
	violations []string
	lastTime   time.Time // the newest creation time
	lastIP     int       // number of the last assigned pod IP
	calls      map[string]int
}

// pod holds the sandboxes and containers of one UID. Runtime.mu guards it.
type pod struct {
	uid        podid.UID
	name       podid.FullName
	source     podid.Source
	sandboxes  []*observed.Sandbox
	containers []*container
}

// New returns an empty runtime.
func New() *Runtime {
	return &Runtime{
		pods: map[podid.UID]*pod{}, scripts: map[string]Script{}, watchers: map[*watcher]struct{}{}, calls: map[string]int{},
	}
}

// SetScript sets the behaviour of containers with this name, in all pods. It does not affect containers that are already
// running.
func (r *Runtime) SetScript(containerName string, script Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[containerName] = script
}

// Transcript returns the operations that took effect, in order: "sandbox web_shop #0", "start web_shop/app #0",
// "stop web_shop/app", and so on. Calls that failed before they had an effect are left out.
func (r *Runtime) Transcript() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.transcript)
}

// Violations returns the violations of the runtime's contract: two running instances of one container, a container started
// in a stopped sandbox, the removal of a pod with running containers.
func (r *Runtime) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// CallCount returns the number of calls of a method, failed calls included.
func (r *Runtime) CallCount(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[method]
}

// ExitContainer ends the running instance of a container with the exit code, as if its process had exited. It reports
// whether an instance was running.
func (r *Runtime) ExitContainer(uid podid.UID, containerName string, exitCode int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, found := r.pods[uid]
	if !found {
		return false
	}
	container := pod.running(containerName)
	if container == nil {
		return false
	}
	r.exitLocked(container, exitCode, "")
	return true
}

// Reboot ends all containers and sandboxes, as a power failure does. Their records remain.
func (r *Runtime) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordLocked("reboot")
	for _, pod := range r.pods {
		for _, container := range pod.containers {
			r.exitLocked(container, 255, "Unknown")
		}
		for _, sandbox := range pod.sandboxes {
			sandbox.Ready = false
		}
		r.notifyLocked(pod.uid)
	}
}

// KillShim kills the process that holds the pod's containers. As with containerd 2, the sandboxes are not ready at once, the
// containers exit after the delay, and until then stops report success and have no effect.
func (r *Runtime) KillShim(uid podid.UID, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, found := r.pods[uid]
	if !found {
		return
	}
	r.recordLocked("kill shim %s", pod.name)
	for _, sandbox := range pod.sandboxes {
		sandbox.Ready = false
	}
	for _, container := range pod.containers {
		container.shimKilled = true
		time.AfterFunc(delay, func() { r.exit(container, exitKilled) })
	}
	r.notifyLocked(uid)
}

// Ready reports whether the runtime and its network are ready. Both are, unless a fault fails the call.
func (r *Runtime) Ready(ctx context.Context) (runtime, network error) {
	err := r.call(ctx, Call{Method: "Ready"}, func() error { return nil })
	return err, err
}

// ListPods returns all pods, running or not.
func (r *Runtime) ListPods(ctx context.Context) (pods []*observed.Pod, err error) {
	err = r.call(ctx, Call{Method: "ListPods"}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, pod := range r.pods {
			pods = append(pods, pod.observe())
		}
		return nil
	})
	return pods, err
}

// InspectPod returns the state of a pod. An unknown pod has no sandboxes and no containers.
func (r *Runtime) InspectPod(ctx context.Context, uid podid.UID) (inspected *observed.Pod, err error) {
	err = r.call(ctx, Call{Method: "InspectPod", PodUID: uid}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if pod, found := r.pods[uid]; found {
			inspected = pod.observe()
		} else {
			inspected = &observed.Pod{UID: uid, At: time.Now()}
		}
		return nil
	})
	return inspected, err
}

// watcher is the state of one WatchPods call.
type watcher struct {
	changed map[podid.UID]bool // Runtime.mu guards it
	wake    wakeup.Signal      // changed is not empty
}

// WatchPods calls changed for each pod that changes, until ctx ends. Changes that happen during a call are coalesced.
func (r *Runtime) WatchPods(ctx context.Context, changed func(podid.UID)) error {
	w := &watcher{changed: map[podid.UID]bool{}, wake: wakeup.New()}
	r.mu.Lock()
	r.watchers[w] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		r.mu.Lock()
		uids := w.changed
		w.changed = map[podid.UID]bool{}
		r.mu.Unlock()
		for uid := range uids {
			changed(uid)
		}
	}
}

func (r *Runtime) notifyLocked(uid podid.UID) {
	for w := range r.watchers {
		w.changed[uid] = true
		w.wake.Set()
	}
}

func (r *Runtime) recordLocked(format string, args ...any) {
	r.transcript = append(r.transcript, fmt.Sprintf(format, args...))
}

func (r *Runtime) violationLocked(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// newTimeLocked returns the current time, or a later one, so that no two objects have the same creation time.
func (r *Runtime) newTimeLocked() time.Time {
	now := time.Now()
	if !now.After(r.lastTime) {
		now = r.lastTime.Add(1)
	}
	r.lastTime = now
	return now
}

func (r *Runtime) newIPLocked() netip.Addr {
	r.lastIP++
	return netip.AddrFrom4([4]byte{10, 88, byte(r.lastIP >> 8), byte(r.lastIP)})
}

func (p *pod) running(containerName string) *container {
	for _, container := range p.containers {
		if container.observed.Name == containerName && container.observed.State == observed.Running {
			return container
		}
	}
	return nil
}

func (p *pod) sandbox(id string) *observed.Sandbox {
	for _, sandbox := range p.sandboxes {
		if sandbox.ID == id {
			return sandbox
		}
	}
	return nil
}

func (p *pod) observe() *observed.Pod {
	pod := &observed.Pod{UID: p.uid, Name: p.name, Source: p.source, At: time.Now()}
	for _, sandbox := range p.sandboxes {
		pod.Sandboxes = append(pod.Sandboxes, *sandbox)
	}
	for _, container := range p.containers {
		pod.Containers = append(pod.Containers, container.observed)
	}
	pod.Sort()
	if newest, ok := pod.NewestSandbox(); ok && newest.Network != nil {
		pod.IPs = newest.Network.IPs
	}
	return pod
}

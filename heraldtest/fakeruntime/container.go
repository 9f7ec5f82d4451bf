package fakeruntime

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Forever is the duration of something that never ends by itself.
const Forever time.Duration = math.MaxInt64

// Script is the behaviour of a container. The zero Script pulls its image at once, has no hooks, runs until it is stopped
// and exits immediately on SIGTERM.
type Script struct {
	// PullDuration is how long the image pull takes. PullErr is its result.
	PullDuration time.Duration
	PullErr      error
	// PostStartDuration and PreStopDuration are how long the lifecycle hooks take.
	PostStartDuration, PreStopDuration time.Duration
	// RunDuration is how long the container runs before it exits with ExitCode. Zero: until it is stopped.
	RunDuration time.Duration
	ExitCode    int
	// TerminationMessage is the container's termination message, however it ends.
	TerminationMessage string
	// StopDuration is how long the container takes to exit after SIGTERM. Forever: it ignores SIGTERM.
	StopDuration time.Duration
}

const (
	exitTerminated = 143
	exitKilled     = 137
)

// container is one instance of a container. Runtime.mu guards it, except for exited.
type container struct {
	pod        *pod
	script     Script
	observed   observed.Container
	exited     chan struct{} // closed when it exits
	runTimer   *time.Timer   // ends it after RunDuration; nil if it runs until it is stopped
	terminated bool          // SIGTERM was sent
	shimKilled bool          // its end is not noticed yet
}

// StartSandbox creates a sandbox and returns its ID. The ID follows from pod and attempt: if the sandbox exists already,
// StartSandbox returns its ID.
func (r *Runtime) StartSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (id string, err error) {
	err = r.call(ctx, Call{Method: "StartSandbox", PodUID: podid.UID(pod.UID)}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		id, err = r.startSandboxLocked(pod, attempt)
		return err
	})
	return id, err
}

func (r *Runtime) startSandboxLocked(spec *v1.Pod, attempt uint32) (string, error) {
	pod := r.podLocked(spec)
	id := fmt.Sprintf("%s-%d", pod.uid, attempt)
	if sandbox := pod.sandbox(id); sandbox != nil {
		if !sandbox.Ready {
			return "", fmt.Errorf("start sandbox %s: name is reserved by a stopped sandbox", id)
		}
		return id, nil
	}
	sandbox := &observed.Sandbox{
		ID: id, Attempt: attempt, Ready: true, CreatedAt: r.newTimeLocked(), HostNetwork: spec.Spec.HostNetwork,
	}
	if !sandbox.HostNetwork {
		sandbox.Network = &observed.Network{IPs: []netip.Addr{r.newIPLocked()}}
	}
	pod.sandboxes = append(pod.sandboxes, sandbox)
	r.recordLocked("sandbox %s #%d", pod.name, attempt)
	r.notifyLocked(pod.uid)
	return id, nil
}

func (r *Runtime) podLocked(spec *v1.Pod) *pod {
	uid := podid.UID(spec.UID)
	if _, found := r.pods[uid]; !found {
		r.pods[uid] = &pod{uid: uid, name: podid.FullNameOf(spec), source: podid.Source(spec.Annotations[podid.SourceAnnotation])}
	}
	return r.pods[uid]
}

// StartContainer pulls the image, creates and starts the container as its script says. The container ID follows from
// sandbox, container name and restart count: if that instance is running already, StartContainer does nothing.
func (r *Runtime) StartContainer(ctx context.Context, pod *v1.Pod, sandboxID string, start plan.Start) error {
	uid, name := podid.UID(pod.UID), start.Container.Name
	r.mu.Lock()
	script := r.scripts[name]
	r.mu.Unlock()
	return r.call(ctx, Call{Method: "StartContainer", PodUID: uid, Container: name}, func() error {
		if err := wait(ctx, script.PullDuration, nil); err != nil {
			return err
		}
		if script.PullErr != nil {
			return script.PullErr
		}
		r.mu.Lock()
		container, err := r.startContainerLocked(pod, sandboxID, start)
		r.mu.Unlock()
		if err != nil {
			return err
		}
		return wait(ctx, script.PostStartDuration, container.exited)
	})
}

func (r *Runtime) startContainerLocked(spec *v1.Pod, sandboxID string, start plan.Start) (*container, error) {
	pod, name := r.podLocked(spec), start.Container.Name
	id := fmt.Sprintf("%s-%s-%d", sandboxID, name, start.RestartCount)
	for _, existing := range pod.containers {
		if existing.observed.ID.ID == id && existing.observed.State == observed.Running {
			return existing, nil
		}
		if existing.observed.ID.ID == id {
			return nil, fmt.Errorf("start container %s: name is reserved by an exited container", id)
		}
	}
	if sandbox := pod.sandbox(sandboxID); sandbox == nil || !sandbox.Ready {
		r.violationLocked("%s/%s was started in sandbox %q, which is not ready", pod.name, name, sandboxID)
	}
	if pod.running(name) != nil {
		r.violationLocked("%s/%s was started while it was running", pod.name, name)
	}
	started := &container{pod: pod, script: r.scripts[name], exited: make(chan struct{}), observed: observed.Container{
		ID: observed.ContainerID{Runtime: "fake", ID: id}, Name: name, SandboxID: sandboxID,
		RestartCount: start.RestartCount, CreatedAt: r.newTimeLocked(),
		Image:    observed.Image{Name: start.Container.Image, Ref: start.Container.Image + "@sha256:0"},
		SpecHash: plan.HashContainer(start.Container),
	}}
	pod.containers = append(pod.containers, started)
	r.recordLocked("start %s/%s #%d", pod.name, name, start.RestartCount)
	r.runLocked(started)
	r.notifyLocked(pod.uid)
	return started, nil
}

func (r *Runtime) runLocked(c *container) {
	c.observed.State, c.observed.StartedAt = observed.Running, time.Now()
	if c.script.RunDuration > 0 && c.script.RunDuration != Forever {
		c.runTimer = time.AfterFunc(c.script.RunDuration, func() { r.exit(c, c.script.ExitCode) })
	}
}

// StopContainer runs the preStop hook, sends SIGTERM and kills the container after the grace period. If ctx ends, the steps
// taken so far remain in effect.
func (r *Runtime) StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error {
	r.mu.Lock()
	container := r.containerLocked(stop.ID)
	r.mu.Unlock()
	if container == nil {
		return nil
	}
	call := Call{Method: "StopContainer", PodUID: container.pod.uid, Container: container.observed.Name}
	return r.call(ctx, call, func() error {
		started := time.Now()
		if hook := min(container.script.PreStopDuration, stop.Grace); pod != nil && hook > 0 && !stop.SkipPreStop {
			r.mu.Lock()
			r.recordLocked("preStop %s/%s", container.pod.name, container.observed.Name)
			r.mu.Unlock()
			if err := wait(ctx, hook, container.exited); err != nil {
				return err
			}
		}
		if stop.PreStopDone != nil {
			stop.PreStopDone()
		}
		if stop.Turn != nil {
			if err := wait(ctx, stop.Grace-time.Since(started), stop.Turn); err != nil {
				return err
			}
		}
		grace := stop.AfterWaiting(time.Since(started)).Grace
		r.mu.Lock()
		if container.shimKilled {
			r.mu.Unlock()
			return nil
		}
		r.recordLocked("stop %s/%s", container.pod.name, container.observed.Name)
		r.terminateLocked(container)
		r.mu.Unlock()
		if err := wait(ctx, grace, container.exited); err != nil {
			return err
		}
		r.exit(container, exitKilled)
		return nil
	})
}

func (r *Runtime) containerLocked(id observed.ContainerID) *container {
	for _, pod := range r.pods {
		for _, container := range pod.containers {
			if container.observed.ID == id {
				return container
			}
		}
	}
	return nil
}

// terminateLocked sends SIGTERM. Repeating it has no effect.
func (r *Runtime) terminateLocked(c *container) {
	if c.terminated || c.observed.State != observed.Running {
		return
	}
	c.terminated = true
	switch c.script.StopDuration {
	case 0:
		r.exitLocked(c, exitTerminated, "")
	case Forever:
	default:
		time.AfterFunc(c.script.StopDuration, func() { r.exit(c, exitTerminated) })
	}
}

func (r *Runtime) exit(c *container, exitCode int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exitLocked(c, exitCode, "")
}

// exitLocked records the exit of a container that has not exited yet. An empty reason is derived from the exit code.
func (r *Runtime) exitLocked(c *container, exitCode int, reason string) {
	if c.observed.State == observed.Exited {
		return
	}
	if c.runTimer != nil {
		c.runTimer.Stop()
	}
	if reason == "" {
		reason = "Error"
		if exitCode == 0 {
			reason = "Completed"
		}
	}
	c.observed.State = observed.Exited
	c.observed.Exit = &observed.Exit{
		Code: exitCode, Reason: reason, Message: c.script.TerminationMessage, FinishedAt: time.Now(),
	}
	close(c.exited)
	r.notifyLocked(c.pod.uid)
}

// StopSandbox kills the containers of the sandbox and marks it as not ready.
func (r *Runtime) StopSandbox(ctx context.Context, id string) error {
	return r.call(ctx, Call{Method: "StopSandbox"}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, pod := range r.pods {
			sandbox := pod.sandbox(id)
			if sandbox == nil || !sandbox.Ready {
				continue
			}
			for _, container := range pod.containers {
				if container.observed.SandboxID == id {
					r.exitLocked(container, exitKilled, "")
				}
			}
			sandbox.Ready = false
			r.recordLocked("stop sandbox %s #%d", pod.name, sandbox.Attempt)
			r.notifyLocked(pod.uid)
		}
		return nil
	})
}

// RemovePod removes the records of a pod. It fails if a container is running.
func (r *Runtime) RemovePod(ctx context.Context, uid podid.UID) error {
	return r.call(ctx, Call{Method: "RemovePod", PodUID: uid}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		pod, found := r.pods[uid]
		if !found {
			return nil
		}
		for _, container := range pod.containers {
			if container.observed.State == observed.Running {
				r.violationLocked("%s was removed while %s was running", pod.name, container.observed.Name)
				return fmt.Errorf("remove pod %s: container %s is running", pod.name, container.observed.Name)
			}
		}
		delete(r.pods, uid)
		r.recordLocked("remove %s", pod.name)
		r.notifyLocked(uid)
		return nil
	})
}

// wait returns nil after d or when done is closed, and an error when ctx ends first.
func wait(ctx context.Context, d time.Duration, done <-chan struct{}) error {
	if d <= 0 {
		return ctx.Err()
	}
	var expired <-chan time.Time
	if d != Forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	case <-expired:
		return nil
	}
}

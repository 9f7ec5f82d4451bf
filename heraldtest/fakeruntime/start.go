package fakeruntime

import (
	"context"
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// StartSandbox makes a sandbox. Its name follows from pod and attempt: asked again, it finds the first.
func (r *Runtime) StartSandbox(ctx context.Context, desired *v1.Pod, attempt uint32) (id string, err error) {
	uid := podid.UID(desired.UID)
	err = r.do(ctx, Call{Method: "StartSandbox", PodUID: uid}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		id, err = r.sandboxLocked(desired, attempt)
		return err
	})
	return id, err
}

func (r *Runtime) sandboxLocked(desired *v1.Pod, attempt uint32) (string, error) {
	p := r.podLocked(desired)
	id := fmt.Sprintf("%s-%d", p.uid, attempt)
	if s := p.sandbox(id); s != nil {
		if !s.Ready {
			return "", fmt.Errorf("sandbox %s is dead: the name is taken", id)
		}
		return id, nil
	}
	s := &observed.Sandbox{
		ID: id, Attempt: attempt, Ready: true, CreatedAt: r.birthLocked(), HostNetwork: desired.Spec.HostNetwork,
	}
	if !s.HostNetwork {
		s.Network = &observed.Network{IPs: []netip.Addr{r.addressLocked()}}
	}
	p.sandboxes = append(p.sandboxes, s)
	r.noteLocked("sandbox %s #%d", p.name, attempt)
	r.tellLocked(p.uid)
	return id, nil
}

func (r *Runtime) podLocked(desired *v1.Pod) *pod {
	uid := podid.UID(desired.UID)
	if _, found := r.pods[uid]; !found {
		r.pods[uid] = &pod{uid: uid, name: podid.FullNameOf(desired)}
	}
	return r.pods[uid]
}

// StartContainer pulls, makes and starts the container as its script says. Its name follows from the pod, its own name
// and the restart count: asked again while that instance runs, it finds it.
func (r *Runtime) StartContainer(ctx context.Context, desired *v1.Pod, sandbox string, start plan.Start) error {
	uid, name := podid.UID(desired.UID), start.Container.Name
	r.mu.Lock()
	script := r.scripts[name]
	r.mu.Unlock()
	return r.do(ctx, Call{Method: "StartContainer", PodUID: uid, Container: name}, func() error {
		if err := wait(ctx, script.PullDuration, nil); err != nil {
			return err
		}
		if script.PullErr != nil {
			return script.PullErr
		}
		r.mu.Lock()
		c, err := r.startLocked(desired, sandbox, start)
		r.mu.Unlock()
		if err != nil {
			return err
		}
		return wait(ctx, script.PostStartDuration, c.ended)
	})
}

func (r *Runtime) startLocked(desired *v1.Pod, sandbox string, start plan.Start) (*container, error) {
	p, name := r.podLocked(desired), start.Container.Name
	id := fmt.Sprintf("%s-%s-%d", sandbox, name, start.RestartCount)
	for _, c := range p.containers {
		if c.seen.ID.ID == id && c.seen.State == observed.Running {
			return c, nil
		}
		if c.seen.ID.ID == id {
			return nil, fmt.Errorf("container %s has ended: the name is taken", id)
		}
	}
	if s := p.sandbox(sandbox); s == nil || !s.Ready {
		r.blameLocked("%s/%s was started in sandbox %q, which is not ready", p.name, name, sandbox)
	}
	if p.running(name) != nil {
		r.blameLocked("%s/%s was started while it ran", p.name, name)
	}
	c := &container{pod: p, script: r.scripts[name], ended: make(chan struct{}), seen: observed.Container{
		ID: observed.ContainerID{Runtime: "fake", ID: id}, Name: name, SandboxID: sandbox,
		RestartCount: start.RestartCount, CreatedAt: r.birthLocked(),
		Image:    observed.Image{Name: start.Container.Image, Ref: start.Container.Image + "@sha256:0"},
		SpecHash: plan.HashContainer(start.Container),
	}}
	p.containers = append(p.containers, c)
	r.noteLocked("start %s/%s #%d", p.name, name, start.RestartCount)
	r.runLocked(c)
	r.tellLocked(p.uid)
	return c, nil
}

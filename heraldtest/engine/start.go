package engine

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
func (e *Engine) StartSandbox(ctx context.Context, desired *v1.Pod, attempt uint32) (id string, err error) {
	uid := podid.UID(desired.UID)
	err = e.do(ctx, Call{Method: "StartSandbox", Pod: uid}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		id, err = e.sandboxLocked(desired, attempt)
		return err
	})
	return id, err
}

func (e *Engine) sandboxLocked(desired *v1.Pod, attempt uint32) (string, error) {
	p := e.podLocked(desired)
	id := fmt.Sprintf("%s-%d", p.uid, attempt)
	if s := p.sandbox(id); s != nil {
		if !s.Ready {
			return "", fmt.Errorf("sandbox %s is dead: the name is taken", id)
		}
		return id, nil
	}
	s := &observed.Sandbox{
		ID: id, Attempt: attempt, Ready: true, CreatedAt: e.birthLocked(), HostNetwork: desired.Spec.HostNetwork,
	}
	if !s.HostNetwork {
		s.Network = &observed.Network{IPs: []netip.Addr{e.addressLocked()}}
	}
	p.sandboxes = append(p.sandboxes, s)
	e.noteLocked("sandbox %s #%d", p.name, attempt)
	e.tellLocked(p.uid)
	return id, nil
}

func (e *Engine) podLocked(desired *v1.Pod) *pod {
	uid := podid.UID(desired.UID)
	if _, found := e.pods[uid]; !found {
		e.pods[uid] = &pod{uid: uid, name: podid.FullNameOf(desired)}
	}
	return e.pods[uid]
}

// StartContainer pulls, makes and starts the container as its script says. Its name follows from the pod, its own name
// and the restart count: asked again while that instance runs, it finds it.
func (e *Engine) StartContainer(ctx context.Context, desired *v1.Pod, sandbox string, start plan.Start) error {
	uid, name := podid.UID(desired.UID), start.Container.Name
	e.mu.Lock()
	script := e.scripts[name]
	e.mu.Unlock()
	return e.do(ctx, Call{Method: "StartContainer", Pod: uid, Container: name}, func() error {
		if err := wait(ctx, script.Pull, nil); err != nil {
			return err
		}
		if script.PullError != nil {
			return script.PullError
		}
		e.mu.Lock()
		c, err := e.startLocked(desired, sandbox, start)
		e.mu.Unlock()
		if err != nil {
			return err
		}
		return wait(ctx, script.PostStart, c.ended)
	})
}

func (e *Engine) startLocked(desired *v1.Pod, sandbox string, start plan.Start) (*container, error) {
	p, name := e.podLocked(desired), start.Container.Name
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
		e.blameLocked("%s/%s was started in sandbox %q, which is not ready", p.name, name, sandbox)
	}
	if p.running(name) != nil {
		e.blameLocked("%s/%s was started while it ran", p.name, name)
	}
	c := &container{pod: p, script: e.scripts[name], ended: make(chan struct{}), seen: observed.Container{
		ID: observed.ContainerID{Runtime: "engine", ID: id}, Name: name, SandboxID: sandbox,
		RestartCount: start.RestartCount, CreatedAt: e.birthLocked(),
		Image:    observed.Image{Name: start.Container.Image, Ref: start.Container.Image + "@sha256:0"},
		SpecHash: plan.HashContainer(start.Container),
	}}
	p.containers = append(p.containers, c)
	e.noteLocked("start %s/%s #%d", p.name, name, start.RestartCount)
	e.runLocked(c)
	e.tellLocked(p.uid)
	return c, nil
}

package observed

// NewestSandbox is the pod's latest attempt, ready or not.
func (p *Pod) NewestSandbox() (Sandbox, bool) {
	if len(p.Sandboxes) == 0 {
		return Sandbox{}, false
	}
	return p.Sandboxes[0], true
}

// ReadySandboxes counts those that are ready. More than one means that the runtime raced with itself (GEN-25).
func (p *Pod) ReadySandboxes() int {
	ready := 0
	for _, s := range p.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	return ready
}

// Instances are the containers of that name, newest first. The first gives the status, the second the last state
// (PH-24).
func (p *Pod) Instances(name string) []Container {
	var found []Container
	for _, c := range p.Containers {
		if c.Name == name {
			found = append(found, c)
		}
	}
	return found
}

// ActiveContainers are the containers of the newest sandbox. Leftovers of an older one, from before a reboot, prove nothing about
// the present (PH-15).
func (p *Pod) ActiveContainers() []Container {
	newest, ok := p.NewestSandbox()
	if !ok {
		return nil
	}
	var active []Container
	for _, c := range p.Containers {
		if c.SandboxID == newest.ID {
			active = append(active, c)
		}
	}
	return active
}

// Running reports whether any container runs.
func (p *Pod) Running() bool {
	for _, c := range p.Containers {
		if c.State == Running {
			return true
		}
	}
	return false
}

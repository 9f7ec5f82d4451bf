package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/resize"
)

// restartsForResize reports whether the running instance has other resources than the container is allocated, and must restart
// to get them (RSZ-15).
func (p *planner) restartsForResize(container *v1.Container, instance *observed.Container) bool {
	actuated, found := p.Actuated[container.Name]
	return found && derive.ContainerState(instance) == observed.Running &&
		resize.RequiresRestart(container, actuated, resize.Of(p.Pod)[container.Name])
}

// resize requests what a resize in progress has yet to change. A container that does not run gets its resources when it starts
// (RSZ-13), and a new sandbox gets a cgroup with the pod's; the cgroup of a pod whose containers do not run is updated all the
// same (BUG-121).
func (p *planner) resize() {
	if p.Actuated == nil || !p.hasSandbox {
		return
	}
	allocated := resize.Of(p.Pod)
	change := resize.Change{Pod: p.Actuated[resize.PodLevel] != allocated[resize.PodLevel]}
	for _, containers := range [][]v1.Container{p.Pod.Spec.InitContainers, p.Pod.Spec.Containers} {
		for i := range containers {
			container := &containers[i]
			actuated, found := p.Actuated[container.Name]
			instance := p.current(container.Name)
			if !found || instance == nil || instance.State != observed.Running || actuated == allocated[container.Name] {
				continue
			}
			if p.isStopping(instance.ID) {
				change.Restarts = append(change.Restarts, container.Name)
				continue
			}
			change.Containers = append(change.Containers, resize.Container{
				Spec: container, ID: instance.ID, Current: actuated, Desired: allocated[container.Name],
			})
		}
	}
	if !change.IsEmpty() {
		p.actions.Resize = &change
	}
}

func (p *planner) isStopping(id observed.ContainerID) bool {
	return slices.ContainsFunc(p.actions.Stop, func(stop Stop) bool { return stop.ID == id })
}

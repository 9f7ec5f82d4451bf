package derive

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// restartsAll reports whether the pod is to be restarted in place: it was said before and is not done, or a container has
// ended with a code for which its rule demands it, as the runtime shows it or as it was last published.
func restartsAll(spec *v1.PodSpec, seen *observed.Pod, previous *v1.PodStatus) bool {
	if isTrue(previous.Conditions, v1.AllContainersRestarting) && !isRestarted(spec, seen) {
		return true
	}
	for i := range spec.InitContainers {
		if demandsRestart(&spec.InitContainers[i], seen, previous.InitContainerStatuses) {
			return true
		}
	}
	for i := range spec.Containers {
		if demandsRestart(&spec.Containers[i], seen, previous.ContainerStatuses) {
			return true
		}
	}
	return false
}

// isRestarted reports whether every container that the runtime has was made after the end that restarts them all. An agent
// that removes the containers instead, as the kubelet does, has no such end to show once it is done.
func isRestarted(spec *v1.PodSpec, seen *observed.Pod) bool {
	end := restart.LastRestartAll(spec, seen)
	if end.IsZero() {
		return false
	}
	for _, containers := range [...][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if newest := newestOf(seen, containers[i].Name); newest != nil && !newest.CreatedAt.After(end) {
				return false
			}
		}
	}
	return true
}

// demandsRestart looks at what was published only where the runtime has an instance that ended.
func demandsRestart(container *v1.Container, seen *observed.Pod, previous []v1.ContainerStatus) bool {
	newest := newestOf(seen, container.Name)
	if newest == nil || stateOf(newest) != observed.Exited {
		return false
	}
	const restartAll = v1.ContainerRestartRuleActionRestartAllContainers
	if restart.RuleAction(container, int32(newest.Exit.Code)) == restartAll {
		return true
	}
	published := statusOf(previous, container.Name)
	return published != nil && published.State.Terminated != nil &&
		restart.RuleAction(container, published.State.Terminated.ExitCode) == restartAll
}

// anySeen reports whether the runtime still has a record of an init or regular container of the pod.
func anySeen(spec *v1.PodSpec, seen *observed.Pod) bool {
	for i := range spec.InitContainers {
		if newestOf(seen, spec.InitContainers[i].Name) != nil {
			return true
		}
	}
	for i := range spec.Containers {
		if newestOf(seen, spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

func newestOf(seen *observed.Pod, name string) *observed.Container {
	for i := range seen.Containers {
		if seen.Containers[i].Name == name {
			return &seen.Containers[i]
		}
	}
	return nil
}

package derive

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
)

// WithProbeFacts lays the newest probe results over a status that may have been computed before them: started and ready
// of each container, and the conditions Ready and ContainersReady that follow. A status computed earlier can therefore
// not undo a result (SM-16, BUG-7). Results are matched by container ID: one for a container that was replaced changes
// nothing (SM-14).
//
// A status that already agrees is returned as it is. The phase stays; transition times are [Continue]'s business.
func WithProbeResults(pod *v1.Pod, status v1.PodStatus, facts ProbeResults) v1.PodStatus {
	if !applyProbes(pod, &status, facts) {
		return status
	}
	containers := ContainersReadyCondition(pod, initAndRegular(&status), status.Phase)
	status.Conditions = replaced(status.Conditions, gated(pod, status.Conditions, containers))
	status.Conditions = put(status.Conditions, containers)
	return status
}

// applyProbes sets started and ready of init and regular containers, in lists of its own, and reports whether any
// changed. Ephemeral containers have neither (PH-42). A status that the spec does not know is left alone.
func applyProbes(pod *v1.Pod, status *v1.PodStatus, facts ProbeResults) bool {
	var changedInit, changed bool
	status.InitContainerStatuses, changedInit = probed(status.InitContainerStatuses, func(place int) (flags, bool) {
		spec, s := initAt(&pod.Spec, status.InitContainerStatuses, place), &status.InitContainerStatuses[place]
		if spec == nil {
			return flags{}, false
		}
		return judge(spec, s, facts.of(s.ContainerID), !restart.IsSidecar(spec)), true
	})
	status.ContainerStatuses, changed = probed(status.ContainerStatuses, func(place int) (flags, bool) {
		s := &status.ContainerStatuses[place]
		spec := specOf(pod.Spec.Containers, s.Name)
		if spec == nil {
			return flags{}, false
		}
		return judge(spec, s, facts.of(s.ContainerID), false), true
	})
	return changed || changedInit
}

// flags are what probing decides about a container.
type flags struct{ started, ready bool }

// probed copies the list at the first status whose flags change.
func probed(statuses []v1.ContainerStatus, judge func(place int) (flags, bool)) ([]v1.ContainerStatus, bool) {
	changed := false
	for place := range statuses {
		status := &statuses[place]
		want, known := judge(place)
		if !known || (status.Ready == want.ready && status.Started != nil && *status.Started == want.started) {
			continue
		}
		if !changed {
			statuses, changed = slices.Clone(statuses), true
		}
		statuses[place].Started, statuses[place].Ready = new(want.started), want.ready
	}
	return statuses, changed
}

// judge is PRB-32 to PRB-35. Where a probe is declared and has not spoken, what the status says of this container
// stands (I16); the status of a container that was never judged says false.
func judge(spec *v1.Container, status *v1.ContainerStatus, facts ContainerProbeResults, runsToCompletion bool) flags {
	started := hasStarted(spec, status, facts.Startup)
	if runsToCompletion {
		return flags{started, endedWell(status.State.Terminated)}
	}
	return flags{started, started && isReady(spec, status, facts.Readiness)}
}

func hasStarted(spec *v1.Container, status *v1.ContainerStatus, startup ProbeResult) bool {
	switch {
	case status.State.Running == nil:
		return false
	case startup != ProbeUnknown:
		return startup == ProbeSuccess
	default:
		return isStarted(status) || spec.StartupProbe == nil
	}
}

func isReady(spec *v1.Container, status *v1.ContainerStatus, readiness ProbeResult) bool {
	if readiness != ProbeUnknown {
		return readiness == ProbeSuccess
	}
	return spec.ReadinessProbe == nil || status.Ready
}

func specOf(containers []v1.Container, name string) *v1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

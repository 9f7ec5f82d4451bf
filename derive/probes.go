package derive

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// ProbeResults are the newest probe results by container ID. A result of a replaced container matches nothing (SM-14).
type ProbeResults map[observed.ContainerID]ContainerProbeResults

// ContainerProbeResults are the probe results of one container.
type ContainerProbeResults struct {
	Startup, Readiness ProbeResult
}

// ProbeResult is the result of a probe after its thresholds.
type ProbeResult int

// The probe results. The zero value is a probe without a result yet.
const (
	ProbeUnknown ProbeResult = iota
	ProbeSuccess
	ProbeFailure
)

// String returns the name of the result.
func (r ProbeResult) String() string { return [...]string{"Unknown", "Success", "Failure"}[r] }

// find returns the results of the container with this ID. A container without an ID was never probed.
func (p ProbeResults) find(containerID string) ContainerProbeResults {
	if len(p) == 0 || containerID == "" {
		return ContainerProbeResults{}
	}
	return p[observed.ParseContainerID(containerID)]
}

// WithProbeResults applies the newest probe results to a status that may have been computed before them. It sets started and
// ready of each container, and the conditions Ready and ContainersReady. A status computed earlier can therefore not undo a
// result (SM-16, BUG-7). Results are matched by container ID: a result of a replaced container changes nothing (SM-14).
//
// A status that already agrees is returned unchanged. The phase is not affected. [CarryOver] sets transition times.
func WithProbeResults(pod *v1.Pod, status v1.PodStatus, results ProbeResults) v1.PodStatus {
	if !applyProbeResults(pod, &status, results) {
		return status
	}
	containersReady := ContainersReadyCondition(pod, initAndRegular(&status), status.Phase)
	status.Conditions = withCondition(status.Conditions, readyFromContainers(pod, status.Conditions, containersReady))
	status.Conditions = setCondition(status.Conditions, containersReady)
	return status
}

// applyProbeResults sets started and ready of init and regular containers and reports whether any changed. It copies a list
// before it changes it. Ephemeral containers have neither flag (PH-42). Containers that are not in the spec stay unchanged.
func applyProbeResults(pod *v1.Pod, status *v1.PodStatus, results ProbeResults) bool {
	var changedInit, changed bool
	status.InitContainerStatuses, changedInit = setFlags(status.InitContainerStatuses, func(index int) (probeFlags, bool) {
		container := initContainerAt(&pod.Spec, status.InitContainerStatuses, index)
		if container == nil {
			return probeFlags{}, false
		}
		containerStatus := &status.InitContainerStatuses[index]
		return computeFlags(container, containerStatus, results, InitContainerKind(container)), true
	})
	status.ContainerStatuses, changed = setFlags(status.ContainerStatuses, func(index int) (probeFlags, bool) {
		containerStatus := &status.ContainerStatuses[index]
		container := findContainer(pod.Spec.Containers, containerStatus.Name)
		if container == nil {
			return probeFlags{}, false
		}
		return computeFlags(container, containerStatus, results, RegularContainer), true
	})
	return changed || changedInit
}

// probeFlags are the parts of a container status that depend on probes.
type probeFlags struct{ started, ready bool }

// setFlags copies the list at the first status whose flags change.
func setFlags(
	statuses []v1.ContainerStatus, compute func(index int) (probeFlags, bool),
) (updated []v1.ContainerStatus, changed bool) {
	for i := range statuses {
		status := &statuses[i]
		want, ok := compute(i)
		if !ok || (status.Ready == want.ready && status.Started != nil && *status.Started == want.started) {
			continue
		}
		if !changed {
			statuses, changed = slices.Clone(statuses), true
		}
		statuses[i].Started, statuses[i].Ready = new(want.started), want.ready
	}
	return statuses, changed
}

// computeFlags is PRB-32 to PRB-35. A declared probe without a result leaves the flag of this container as it is (I16). The
// flag of a container without any result is false.
func computeFlags(
	container *v1.Container, status *v1.ContainerStatus, results ProbeResults, kind ContainerKind,
) probeFlags {
	result := results.find(status.ContainerID)
	started := hasStarted(container, status, result.Startup)
	if kind == InitContainer {
		return probeFlags{started, initSucceeded(status.State.Terminated)}
	}
	return probeFlags{started, started && isReady(container, status, result.Readiness)}
}

func hasStarted(container *v1.Container, status *v1.ContainerStatus, startup ProbeResult) bool {
	switch {
	case status.State.Running == nil:
		return false
	case startup != ProbeUnknown:
		return startup == ProbeSuccess
	default:
		return isStarted(status) || container.StartupProbe == nil
	}
}

func isReady(container *v1.Container, status *v1.ContainerStatus, readiness ProbeResult) bool {
	if readiness != ProbeUnknown {
		return readiness == ProbeSuccess
	}
	return container.ReadinessProbe == nil || status.Ready
}

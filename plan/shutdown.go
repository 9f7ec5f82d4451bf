package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// Ending is the stop of one instance at its pod's end, and what it waits for. All endings of a pod begin together:
//
//	wait until all of After have ended, or Stop.Grace has passed
//	stop with Stop.Later(the time that was waited)
type OrderedStop struct {
	Stop  Stop
	After []observed.ContainerID
}

// Shutdown orders the end of all that runs of a pod, or may run for all that is known: everything at once, but a sidecar
// after the regular and init containers and after the sidecars that were started later (PW-25). Nobody waits for an
// ephemeral container, nor for what has ended. Whoever is waited for stands before those who wait.
//
// pod is nil for an orphan whose spec is not known: then nothing waits.
func TerminationOrder(pod *v1.Pod, seen *observed.Pod, grace time.Duration) []OrderedStop {
	if seen == nil {
		return nil
	}
	if pod == nil {
		pod = &v1.Pod{}
	}
	var endings []OrderedStop
	sidecars := map[string][]OrderedStop{}
	var before []observed.ContainerID
	for i := range seen.Containers {
		instance := &seen.Containers[i]
		if !isAlive(instance) {
			continue
		}
		c, kind := FindContainer(pod, instance.Name)
		ending := OrderedStop{Stop: Stop{
			ID: instance.ID, Container: c, Grace: grace, Reason: StopPodTerminating, Message: "Stopping container " + instance.Name,
		}}
		switch kind {
		case derive.SidecarContainer:
			sidecars[c.Name] = append(sidecars[c.Name], ending)
			continue
		case derive.InitContainer, derive.RegularContainer:
			before = append(before, instance.ID)
		}
		endings = append(endings, ending)
	}
	return append(endings, lastToFirst(pod.Spec.InitContainers, sidecars, before)...)
}

// lastToFirst chains the sidecars: each comes after those that are behind it in the spec, and after what is before all.
func lastToFirst(
	specs []v1.Container, sidecars map[string][]OrderedStop, before []observed.ContainerID,
) []OrderedStop {
	var chain []OrderedStop
	for i := len(specs) - 1; i >= 0; i-- {
		of := sidecars[specs[i].Name]
		delete(sidecars, specs[i].Name)
		for j := range of {
			of[j].After = slices.Clone(before)
		}
		for j := range of {
			before = append(before, of[j].Stop.ID)
		}
		chain = append(chain, of...)
	}
	return chain
}

// Later is the stop after part of its grace was spent on waiting.
func (s Stop) AfterWaiting(spent time.Duration) Stop {
	s.Grace = max(s.Grace-spent, minStopGrace)
	return s
}

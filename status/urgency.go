package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// urgency says how soon a change must be known in the cluster.
type urgency int

// The classes of change, most urgent first (BUG-3).
const (
	releasing urgency = iota // a terminal phase, or an object that can be deleted: others wait for what the pod held
	readiness                // traffic is sent to the pod, or no longer
	running                  // the phase moved
	ordinary                 // anything else
	urgencies = iota
)

func (u urgency) String() string {
	return [urgencies]string{"releasing", "readiness", "running", "ordinary"}[u]
}

// urgencyOf tells how soon the cluster must know.
func urgencyOf(old, next *v1.PodStatus, p proposal) urgency {
	switch {
	case p.finished || derive.IsTerminal(next.Phase):
		return releasing
	case readyStatus(old) != readyStatus(next):
		return readiness
	case old.Phase != next.Phase:
		return running
	default:
		return ordinary
	}
}

func readyStatus(status *v1.PodStatus) v1.ConditionStatus {
	for i := range status.Conditions {
		if status.Conditions[i].Type == v1.PodReady {
			return status.Conditions[i].Status
		}
	}
	return v1.ConditionFalse
}

package status

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// VolumeCondition is one thing that is known about a volume.
type VolumeCondition struct {
	Status, Reason, Message string
}

// VolumeHealth is what is known about one volume of a pod. No conditions means healthy.
type VolumeHealth struct {
	Conditions []VolumeCondition
	// Since is when the set of statuses and reasons last changed.
	Since time.Time
}

// volumes is a pod's health by volume name. It is replaced, never modified.
type volumes map[string]VolumeHealth

// SetPodVolumeHealth records the health of one volume and reports whether it changed: by its set of statuses and reasons,
// whatever the messages say (SM-95). It is ignored for a pod without a status. Kubernetes v1.36 has no field for it, so
// that it stays on the node.
func (m *Manager) SetPodVolumeHealth(uid types.UID, volume string, conditions []VolumeCondition) bool {
	own := m.config.Pods.TranslatePodUID(uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	e, found := m.entries[own]
	if !found {
		return false
	}
	if before, known := e.health[volume]; known && sameVerdicts(before.Conditions, conditions) {
		return false
	}
	e.health = maps.Clone(e.health)
	if e.health == nil {
		e.health = volumes{}
	}
	e.health[volume] = VolumeHealth{Conditions: slices.Clone(conditions), Since: time.Now()} // SM-96
	return true
}

// GetPodVolumeHealth is the health of the pod's volumes by name. The map is the caller's.
func (m *Manager) GetPodVolumeHealth(uid types.UID) map[string]VolumeHealth {
	own := m.config.Pods.TranslatePodUID(uid)
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e, found := m.entries[own]; found {
		return maps.Clone(e.health)
	}
	return nil
}

func sameVerdicts(a, b []VolumeCondition) bool {
	set := func(conditions []VolumeCondition) map[VolumeCondition]bool {
		verdicts := map[VolumeCondition]bool{}
		for _, c := range conditions {
			verdicts[VolumeCondition{Status: c.Status, Reason: c.Reason}] = true
		}
		return verdicts
	}
	return maps.Equal(set(a), set(b))
}

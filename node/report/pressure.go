package report

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// The thresholds are those at which the kubelet begins to evict, except for PIDs, for which it has none by default.
const (
	memoryReserve  = 100 << 20 // bytes
	storagePercent = 10
	inodesPercent  = 5
	pidsPercent    = 5
)

// pressureHold is how long a pressure is told after it was last seen: the scheduler shall not be given a node that goes to
// and fro.
const pressureHold = 5 * time.Minute

// Pressures are the conditions that hold, with the time when each was last seen. Nil stands for a machine that was never
// looked at.
type Pressures map[v1.NodeConditionType]time.Time

// Next is what holds after another look at the machine. A pressure begins at once and ends some time after it was last
// seen. What an earlier agent has told counts as seen just now.
func (p Pressures) Next(machine MachineInfo, told []v1.NodeCondition, now time.Time) Pressures {
	next := Pressures{}
	for _, kind := range pressureConditions {
		last, held := p[kind]
		switch {
		case machine.short(kind):
			next[kind] = now
		case p == nil && holds(told, kind):
			next[kind] = now
		case held && now.Sub(last) < pressureHold:
			next[kind] = last
		}
	}
	return next
}

func (f MachineInfo) short(kind v1.NodeConditionType) bool {
	switch kind {
	case v1.NodeMemoryPressure:
		return f.Memory.Total > 0 && f.Memory.Available < memoryReserve
	case v1.NodeDiskPressure:
		return f.Storage.below(storagePercent) || f.Inodes.below(inodesPercent)
	case v1.NodePIDPressure:
		return f.PIDs.below(pidsPercent)
	}
	return false
}

func holds(conditions []v1.NodeCondition, kind v1.NodeConditionType) bool {
	c := conditionOf(conditions, kind)
	return c != nil && c.Status == v1.ConditionTrue
}

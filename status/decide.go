package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
)

// next is what a turn does.
type next int

const (
	nothing next = iota
	read         // the object is not known: what it says must be read before anything can be said
	write        // send merged
	remove       // delete the object
)

// decide compares the node's word with the API server's. merged is what the object should say.
func decide(j job, now time.Time) (n next, merged *v1.PodStatus) {
	base := j.target.status
	if base == nil {
		return read, nil
	}
	should := derive.Merge(*base, *j.status, j.couldRun, now)
	keepTimes(base.Conditions, should.Conditions, now)
	should = j.object.shrink.apply(should)
	switch {
	case !derive.Equal(base, &should):
		return write, &should
	case j.released && !j.target.mirror && !j.couldRun && derive.IsTerminal(base.Phase): // SM-72, SM-75
		return remove, &should
	default:
		return nothing, &should
	}
}

// isWithheld reports whether the object must still wait for the pod's terminal phase (SM-67).
func isWithheld(j job, merged *v1.PodStatus) bool {
	return derive.IsTerminal(j.status.Phase) && !derive.IsTerminal(merged.Phase)
}

// isQuiet reports whether nothing can change for the pod without a new version or a new copy from the watch. A phase that is
// held back and an object that waits for its deletion depend on the node's clean-up, which tells nobody.
func isQuiet(j job, merged *v1.PodStatus) bool {
	return !isWithheld(j, merged) && (!j.target.deleted || j.target.mirror)
}

// keepTimes makes the transition times continue those that the object has: whoever wrote them, a time moves only when the
// condition turns, and never back (I6). Where it turns, the time is that of the turn and not that of the telling. Resize
// conditions have times of their own (SM-88). The list is the caller's.
func keepTimes(base, merged []v1.PodCondition, now time.Time) {
	for i := range merged {
		condition := &merged[i]
		if !derive.IsOwnedCondition(condition.Type) || condition.Type == v1.PodResizePending || condition.Type == v1.PodResizeInProgress {
			continue
		}
		shown := conditionOf(base, condition.Type)
		switch {
		case shown == nil || shown.LastTransitionTime.IsZero():
		case shown.Status == condition.Status:
			condition.LastTransitionTime = shown.LastTransitionTime
		case condition.LastTransitionTime.Before(&shown.LastTransitionTime):
			condition.LastTransitionTime = latest(shown.LastTransitionTime, now)
		}
	}
}

func latest(a metav1.Time, b time.Time) metav1.Time {
	if a.After(b) {
		return a
	}
	return metav1.NewTime(b.Truncate(time.Second))
}

func conditionOf(conditions []v1.PodCondition, kind v1.PodConditionType) *v1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

package recent

import (
	"strconv"
	"time"

	"github.com/heraldnode/herald/transition"
)

// fields are those of pods. All others are conditions.
var fields = map[transition.Field]bool{
	transition.FieldPhase: true, transition.FieldReason: true, transition.FieldAddress: true, transition.FieldGeneration: true,
	transition.FieldStartTime: true, transition.FieldDeletion: true, transition.FieldRemoved: true, transition.FieldState: true,
	transition.FieldLastState: true, transition.FieldReady: true, transition.FieldStarted: true, transition.FieldRestartCount: true,
	transition.FieldImage: true, transition.FieldResources: true, transition.FieldOther: true,
}

// Observe adds what the changes of a pod's status say: restarts and ends of containers, and changes of conditions between two statuses.
// What a container had behind it when its status was first seen is not counted: it may have happened long ago.
func (c *Counter) Observe(namespace, pod string, changes []transition.Change, at time.Time) {
	for i := range changes {
		change := &changes[i]
		o := Object{Namespace: namespace, Pod: pod, Container: change.Container}
		switch {
		case change.Container == "":
			if !fields[change.Field] && change.From != "" && change.To != "" && change.From != change.To {
				c.Add(o, Flip(string(change.Field)), at)
			}
		case isNew(changes, change.Container):
		case change.Field == transition.FieldRestartCount:
			for range min(rise(change), MaxCount) {
				c.Add(o, Restart, at)
			}
		case change.Exit != nil && !isRepeated(changes, change):
			if change.Reason != "" {
				c.Add(o, Ended(change.Reason), at)
			}
			if change.Exit.StoppedBy != "" {
				c.Add(o, Ended(StoppedBy(change.Exit.StoppedBy)), at)
			}
		}
	}
}

// isNew reports whether the pod's previous status did not have the container.
func isNew(changes []transition.Change, container string) bool {
	change := find(changes, container, transition.FieldState)
	return change != nil && change.From == ""
}

// isRepeated reports whether the change only has another reason or message for an end that an earlier change had.
func isRepeated(changes []transition.Change, end *transition.Change) bool {
	return end.Field == transition.FieldState && end.From == transition.StateTerminated &&
		find(changes, end.Container, transition.FieldRestartCount) == nil
}

func find(changes []transition.Change, container string, field transition.Field) *transition.Change {
	for i := range changes {
		if changes[i].Container == container && changes[i].Field == field {
			return &changes[i]
		}
	}
	return nil
}

// rise returns by how much a restart count rose.
func rise(change *transition.Change) int {
	from, errFrom := strconv.Atoi(change.From)
	to, errTo := strconv.Atoi(change.To)
	if errFrom != nil || errTo != nil {
		return 0
	}
	return to - from
}

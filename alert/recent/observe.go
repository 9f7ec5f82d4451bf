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
// What a container had behind it when its status was first seen is not counted: it may have happened long ago. Restarts and ends that are
// seen again are not counted again; changes of conditions have nothing to recognize them by.
func (c *Counter) Observe(namespace, pod, uid string, changes []transition.Change, at time.Time) {
	for i := range changes {
		change := &changes[i]
		o := Object{Namespace: namespace, Pod: pod, Container: change.Container}
		switch {
		case change.Field == transition.FieldRemoved:
			c.Removed(namespace, pod, uid)
		case change.Container == "":
			if !fields[change.Field] && change.From != "" && change.To != "" && change.From != change.To {
				c.Add(o, Flip(string(change.Field)), at)
			}
		case isNew(changes, change.Container):
		case change.Field == transition.FieldRestartCount:
			c.observeRestarts(o, uid, change, at)
		case change.Exit != nil && !isRepeated(changes, change):
			if change.Reason != "" {
				c.observeEnd(o, uid, Ended(change.Reason), change.Exit, at)
			}
			if change.Exit.StoppedBy != "" {
				c.observeEnd(o, uid, Ended(StoppedBy(change.Exit.StoppedBy)), change.Exit, at)
			}
		}
	}
}

// observeRestarts adds the restarts that a restart count says, without those that were counted.
func (c *Counter) observeRestarts(o Object, uid string, change *transition.Change, at time.Time) {
	from, errFrom := strconv.Atoi(change.From)
	to, errTo := strconv.Atoi(change.To)
	if errFrom != nil || errTo != nil {
		return
	}
	mark := newMark(to, uid)
	if to < from {
		c.lowerMark(o, mark)
		return
	}
	if counted, found := c.findMark(o, Restart, mark.ID); found && uid != "" {
		from = max(from, counted.Count)
	}
	if to > from {
		c.addMarked(o, Restart, min(to-from, MaxCount), mark, at)
	}
}

// observeEnd adds the end of an instance of a container, unless it was counted. Without a container ID nobody knows.
func (c *Counter) observeEnd(o Object, uid, kind string, exit *transition.Exit, at time.Time) {
	if exit.ContainerID == "" {
		c.Add(o, kind, at)
		return
	}
	mark := newMark(0, uid, exit.ContainerID)
	if _, found := c.findMark(o, kind, mark.ID); !found {
		c.addMarked(o, kind, 1, mark, at)
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

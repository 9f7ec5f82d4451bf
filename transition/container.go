package transition

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// Names of the states of a container.
const (
	StateWaiting    = "waiting"
	StateRunning    = "running"
	StateTerminated = "terminated"
)

// containers compares two lists by the names of the containers. Normalized lists have the same order, so that the search is
// rarely needed.
func (d *differ) containers(before, after []v1.ContainerStatus) {
	for i := range after {
		var old *v1.ContainerStatus
		if i < len(before) && before[i].Name == after[i].Name {
			old = &before[i]
		} else {
			old = findContainer(before, after[i].Name)
		}
		if old == nil {
			old = &v1.ContainerStatus{}
		}
		d.container(old, &after[i])
	}
	for i := range before {
		if findContainer(after, before[i].Name) == nil {
			d.add(Change{Container: before[i].Name, Field: FieldState, From: stateName(&before[i].State)})
		}
	}
}

func findContainer(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func (d *differ) container(before, after *v1.ContainerStatus) {
	if derive.EqualContainerStatus(before, after) {
		return
	}
	count, name := len(d.changes), after.Name
	d.lastState(before, after)
	d.state(before, after)
	if before.RestartCount != after.RestartCount {
		from, to := formatInts(before.RestartCount, after.RestartCount)
		d.add(Change{Container: name, Field: FieldRestartCount, From: from, To: to})
	}
	if isTrue(before.Started) != isTrue(after.Started) {
		d.add(Change{Container: name, Field: FieldStarted, From: formatBool(isTrue(before.Started)), To: formatBool(isTrue(after.Started))})
	}
	if before.Ready != after.Ready {
		d.add(Change{Container: name, Field: FieldReady, From: formatBool(before.Ready), To: formatBool(after.Ready)})
	}
	if before.Image != after.Image && before.Name != "" {
		d.add(Change{Container: name, Field: FieldImage, From: before.Image, To: after.Image})
	}
	if len(d.changes) == count {
		field := FieldOther
		if onlyResourcesDiffer(before, after) {
			field = FieldResources
		}
		d.add(Change{Container: name, Field: field})
	}
}

func onlyResourcesDiffer(before, after *v1.ContainerStatus) bool {
	other := *after
	other.Resources, other.AllocatedResources, other.AllocatedResourcesStatus =
		before.Resources, before.AllocatedResources, before.AllocatedResourcesStatus
	return derive.EqualContainerStatus(before, &other)
}

func (d *differ) state(before, after *v1.ContainerStatus) {
	from, to := stateName(&before.State), stateName(&after.State)
	change := Change{Container: after.Name, Field: FieldState, From: from, To: to}
	switch {
	case after.State.Waiting != nil:
		if old := before.State.Waiting; old != nil && *old == *after.State.Waiting {
			return
		}
		change.Reason, change.Message = after.State.Waiting.Reason, after.State.Waiting.Message
	case after.State.Terminated != nil:
		terminated := after.State.Terminated
		if old := before.State.Terminated; old != nil && isSameEnd(old, terminated) && old.Reason == terminated.Reason &&
			old.Message == terminated.Message {
			return
		}
		change.Reason, change.Message, change.Exit = terminated.Reason, terminated.Message, newExit(terminated, after.RestartCount)
	case from == to && before.ContainerID == after.ContainerID:
		return
	}
	d.add(change)
}

// lastState adds the end of an instance whose successor's state was reported with it.
func (d *differ) lastState(before, after *v1.ContainerStatus) {
	ended := after.LastTerminationState.Terminated
	if ended == nil || hasEnd(before, ended) || after.State.Terminated != nil && isSameEnd(after.State.Terminated, ended) {
		return
	}
	attempt := after.RestartCount
	if after.State.Waiting == nil { // the successor has started and counts already
		attempt = max(0, attempt-1)
	}
	d.add(Change{
		Container: after.Name, Field: FieldLastState, From: stateName(&before.State), To: StateTerminated,
		Reason: ended.Reason, Message: ended.Message, Exit: newExit(ended, attempt),
	})
}

// hasEnd reports whether the status shows this end already.
func hasEnd(status *v1.ContainerStatus, ended *v1.ContainerStateTerminated) bool {
	for _, known := range [...]*v1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
		if known != nil && isSameEnd(known, ended) {
			return true
		}
	}
	return false
}

// isSameEnd reports whether both describe the end of one instance. The container ID may be unknown.
func isSameEnd(a, b *v1.ContainerStateTerminated) bool {
	if a.ContainerID != "" || b.ContainerID != "" {
		return a.ContainerID == b.ContainerID
	}
	return a.ExitCode == b.ExitCode && a.Signal == b.Signal && a.FinishedAt.Equal(&b.FinishedAt)
}

func newExit(terminated *v1.ContainerStateTerminated, attempt int32) *Exit {
	exit := &Exit{Code: terminated.ExitCode, Signal: terminated.Signal, Attempt: attempt, ContainerID: terminated.ContainerID}
	if started, finished := terminated.StartedAt.Time, terminated.FinishedAt.Time; !started.IsZero() && finished.After(started) {
		exit.RanMs = finished.Sub(started).Milliseconds()
	}
	return exit
}

func stateName(state *v1.ContainerState) string {
	switch {
	case state.Waiting != nil:
		return StateWaiting
	case state.Running != nil:
		return StateRunning
	case state.Terminated != nil:
		return StateTerminated
	default:
		return ""
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func formatBool(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

package table

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heraldnode/herald/internal/restart"
)

// words collects what the columns READY, STATUS and RESTARTS say.
type words struct {
	pod      *v1.Pod
	reason   string
	ready    int
	restarts count
	sidecars count // of them, those of sidecars
}

// count is how often containers were restarted, and when last.
type count struct {
	times int
	last  time.Time
}

func (c *count) add(status *v1.ContainerStatus) {
	c.times += int(status.RestartCount)
	if ended := status.LastTerminationState.Terminated; ended != nil && ended.FinishedAt.After(c.last) {
		c.last = ended.FinishedAt.Time
	}
}

// readInit looks at the init containers up to the one at which the pod is, and reports whether there is one.
func (w *words) readInit() (initializing bool) {
	for i := range w.pod.Status.InitContainerStatuses {
		status := &w.pod.Status.InitContainerStatuses[i]
		sidecar := w.isSidecar(status.Name)
		w.restarts.add(status)
		if sidecar {
			w.sidecars.add(status)
		}
		switch {
		case status.State.Terminated != nil && status.State.Terminated.ExitCode == 0:
			continue
		case sidecar && status.Started != nil && *status.Started:
			if status.Ready {
				w.ready++
			}
			continue
		case status.State.Terminated != nil:
			w.reason = "Init:" + endOf(status.State.Terminated)
		case waitsFor(status) != "" && waitsFor(status) != "PodInitializing":
			w.reason = "Init:" + waitsFor(status)
		default:
			w.reason = fmt.Sprintf("Init:%d/%d", i, len(w.pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

func (w *words) isSidecar(name string) bool {
	for i := range w.pod.Spec.InitContainers {
		if c := &w.pod.Spec.InitContainers[i]; c.Name == name {
			return restart.IsSidecar(c)
		}
	}
	return false
}

// readRegular looks at the regular containers. Of several that are not well the first has the word.
func (w *words) readRegular() {
	w.restarts = w.sidecars
	anyRuns, failed := false, ""
	for i := len(w.pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		status := &w.pod.Status.ContainerStatuses[i]
		w.restarts.add(status)
		switch {
		case waitsFor(status) != "":
			w.reason = waitsFor(status)
		case status.State.Terminated != nil:
			w.reason = endOf(status.State.Terminated)
			if status.State.Terminated.ExitCode != 0 {
				failed = w.reason
			}
		case status.Ready && status.State.Running != nil:
			anyRuns = true
			w.ready++
		}
	}
	if w.reason != "Completed" {
		return
	}
	switch { // one of several is done: how are the others?
	case anyRuns && isTrue(w.pod, v1.PodReady):
		w.reason = "Running"
	case failed != "":
		w.reason = failed
	case anyRuns:
		w.reason = "NotReady"
	}
}

func (w *words) readDeletion() {
	const nodeIsLost = "NodeLost"
	ended := w.pod.Status.Phase == v1.PodSucceeded || w.pod.Status.Phase == v1.PodFailed
	switch {
	case w.pod.DeletionTimestamp == nil:
	case w.pod.Status.Reason == nodeIsLost:
		w.reason = "Unknown"
	case !ended:
		w.reason = "Terminating"
	}
}

func (w *words) restartsText(now time.Time) string {
	if w.restarts.times == 0 || w.restarts.last.IsZero() {
		return fmt.Sprint(w.restarts.times)
	}
	return fmt.Sprintf("%d (%s ago)", w.restarts.times, duration.HumanDuration(now.Sub(w.restarts.last)))
}

func waitsFor(status *v1.ContainerStatus) string {
	if status.State.Waiting == nil {
		return ""
	}
	return status.State.Waiting.Reason
}

func endOf(end *v1.ContainerStateTerminated) string {
	switch {
	case end.Reason != "":
		return end.Reason
	case end.Signal != 0:
		return fmt.Sprintf("Signal:%d", end.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", end.ExitCode)
	}
}

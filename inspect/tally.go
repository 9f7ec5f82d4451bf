package inspect

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/podid"
)

const (
	// tallyWindow is the time that counts as recent.
	tallyWindow = time.Hour
	// maxTallied limits what is kept for each container.
	maxTallied = 64
	// maxStops limits the stops whose end was not seen yet.
	maxStops = 4096
)

// Tally counts what happened to containers in the last hour. All methods are safe for concurrent use and do not block.
type Tally struct {
	startedAt time.Time

	mu    sync.Mutex // guards the fields below
	pods  map[podid.UID]map[string]*tallied
	stops map[string]string // reasons by container ID, until the end of the instance is seen
}

// tallied is what happened to one container. The times are the newest ones, oldest first.
type tallied struct {
	restarts, flips []time.Time
	stoppedBy       string
	stoppedAt       time.Time
}

// NewTally returns an empty Tally.
func NewTally() *Tally {
	return &Tally{startedAt: time.Now(), pods: map[podid.UID]map[string]*tallied{}, stops: map[string]string{}}
}

// Stopping notes why an instance is being stopped.
func (t *Tally) Stopping(containerID, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.stops) < maxStops {
		t.stops[containerID] = reason
	}
}

// Accepted counts the changes between two statuses of a pod. before is nil for the first one.
func (t *Tally) Accepted(uid podid.UID, before, after *v1.PodStatus, at time.Time) {
	if before == nil {
		return
	}
	t.compare(uid, before.InitContainerStatuses, after.InitContainerStatuses, at)
	t.compare(uid, before.ContainerStatuses, after.ContainerStatuses, at)
}

// Forget removes a pod that is gone.
func (t *Tally) Forget(uid podid.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}

func (t *Tally) compare(uid podid.UID, before, after []v1.ContainerStatus, at time.Time) {
	for i := range after {
		if i >= len(before) || before[i].Name != after[i].Name {
			return // the spec changed
		}
		restarted, flipped := after[i].RestartCount > before[i].RestartCount, after[i].Ready != before[i].Ready
		ended := endedInstance(&after[i])
		if restarted || flipped || ended != endedInstance(&before[i]) {
			t.count(uid, after[i].Name, at, counted{restarted: restarted, flipped: flipped, ended: ended})
		}
	}
}

// endedInstance returns the ID of the newest instance that has ended, or "".
func endedInstance(status *v1.ContainerStatus) string {
	switch {
	case status.State.Terminated != nil:
		return status.State.Terminated.ContainerID
	case status.LastTerminationState.Terminated != nil:
		return status.LastTerminationState.Terminated.ContainerID
	default:
		return ""
	}
}

// counted is what happened to a container at once.
type counted struct {
	restarted, flipped bool
	ended              string // ID of the newest instance that has ended
}

func (t *Tally) count(uid podid.UID, container string, at time.Time, c counted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.talliedLocked(uid, container)
	if c.restarted {
		counts.restarts = appendBounded(counts.restarts, at)
	}
	if c.flipped {
		counts.flips = appendBounded(counts.flips, at)
	}
	if reason, found := t.stops[c.ended]; found {
		counts.stoppedBy, counts.stoppedAt = reason, at
		delete(t.stops, c.ended)
	}
}

func (t *Tally) talliedLocked(uid podid.UID, container string) *tallied {
	containers, found := t.pods[uid]
	if !found {
		containers = map[string]*tallied{}
		t.pods[uid] = containers
	}
	counts, found := containers[container]
	if !found {
		counts = &tallied{}
		containers[container] = counts
	}
	return counts
}

func appendBounded(times []time.Time, at time.Time) []time.Time {
	if len(times) == maxTallied {
		copy(times, times[1:])
		times = times[:maxTallied-1]
	}
	return append(times, at)
}

// recent returns what happened to the containers of a pod in the last hour, or nil.
func (t *Tally) recent(uid podid.UID, now time.Time) map[string]explain.Recent {
	t.mu.Lock()
	defer t.mu.Unlock()
	containers := t.pods[uid]
	if len(containers) == 0 {
		return nil
	}
	recent := make(map[string]explain.Recent, len(containers))
	since := now.Add(-tallyWindow)
	for name, counts := range containers {
		r := explain.Recent{Restarts: countSince(counts.restarts, since), Flips: countSince(counts.flips, since)}
		if counts.stoppedAt.After(since) {
			r.StoppedBy = counts.stoppedBy
		}
		if r != (explain.Recent{}) {
			recent[name] = r
		}
	}
	return recent
}

func countSince(times []time.Time, since time.Time) int {
	count := 0
	for _, at := range times {
		if at.After(since) {
			count++
		}
	}
	return count
}

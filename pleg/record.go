package pleg

import (
	"reflect"
	"slices"
	"time"

	"github.com/heraldnode/herald/observed"
)

// record is what is known of one pod. All of it is guarded by PLEG.mu; pods are replaced, never modified.
type record struct {
	pod *observed.Pod // as last inspected; nil: never
	// asked counts the reasons to inspect the pod: it looked different in a list, or somebody wants to know. answered is
	// how many of them the newest inspection that gave something came after.
	asked, answered uint64
	// err is why the newest inspection, begun at failed, gave nothing.
	err    error
	failed time.Time
	news   chan struct{} // closed when somebody who waits should look again; nil while nobody does
}

// isSuspect reports whether nobody may rely on the record before the pod is inspected.
func (r *record) isSuspect() bool { return r.asked > r.answered }

func (r *record) waitForNews() <-chan struct{} {
	if r.news == nil {
		r.news = make(chan struct{})
	}
	return r.news
}

func (r *record) announce() {
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

// asOf is the moment up to which the record is known to be true: its inspection's, or that of a list, begun later, which
// showed the same.
func (r *record) asOf(listed time.Time) time.Time {
	var inspected time.Time
	if r.pod != nil {
		inspected = r.pod.At
	}
	if r.isSuspect() || listed.Before(inspected) {
		return inspected
	}
	return listed
}

// looksLike reports whether a list shows the pod as it was inspected.
func (r *record) looksLike(listed *observed.Pod) bool {
	return r.pod != nil && slices.Equal(looks(r.pod), looks(listed))
}

// look is what a list can tell of a sandbox or a container.
type look struct {
	id    string
	state observed.State
}

func looks(pod *observed.Pod) []look {
	all := make([]look, 0, len(pod.Sandboxes)+len(pod.Containers))
	for _, s := range pod.Sandboxes {
		all = append(all, look{id: s.ID, state: sandboxState(s)})
	}
	for _, c := range pod.Containers {
		all = append(all, look{id: c.ID.ID, state: c.State})
	}
	slices.SortFunc(all, func(a, b look) int {
		switch {
		case a.id < b.id:
			return -1
		case a.id > b.id:
			return 1
		}
		return 0
	})
	return all
}

// sandboxState treats a sandbox as a container (PLEG-4).
func sandboxState(s observed.Sandbox) observed.State {
	if s.Ready {
		return observed.Running
	}
	return observed.Exited
}

// withAddresses keeps the addresses of a pod that no longer has any and is not about to get some (PLEG-10).
func withAddresses(pod, before *observed.Pod) *observed.Pod {
	if before == nil || len(pod.IPs) > 0 || len(before.IPs) == 0 || pod.ReadySandboxes() > 0 || len(pod.Sandboxes) == 0 {
		return pod
	}
	kept := *pod
	kept.IPs = before.IPs
	return &kept
}

// isNews reports whether somebody should look at the pod. That something which had ended was removed is none (PLEG-17).
func isNews(pod, before *observed.Pod) bool {
	if before == nil {
		before = &observed.Pod{}
	}
	if !reflect.DeepEqual(pod.IPs, before.IPs) && len(pod.IPs) > 0 {
		return true
	}
	after := map[string]observed.State{}
	for _, l := range looks(pod) {
		after[l.id] = l.state
	}
	for _, l := range looks(before) {
		state, there := after[l.id]
		if (there && state != l.state) || (!there && l.state != observed.Exited) {
			return true
		}
		delete(after, l.id)
	}
	return len(after) > 0
}

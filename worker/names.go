package worker

import (
	"slices"

	"github.com/heraldnode/herald/podid"
)

// names sees to it that of all static pods of one full name, one is at work at a time, in the order in which they came:
// two generations of etcd must never overlap (PW-15). Workers.mu guards it.
type names struct {
	holder  map[podid.FullName]podid.UID
	waiting map[podid.FullName][]podid.UID // in order of arrival
}

func newNames() names {
	return names{holder: map[podid.FullName]podid.UID{}, waiting: map[podid.FullName][]podid.UID{}}
}

// queue puts a pod behind those that came before it.
func (n names) queue(name podid.FullName, uid podid.UID) {
	if !slices.Contains(n.waiting[name], uid) {
		n.waiting[name] = append(n.waiting[name], uid)
	}
}

// take makes the pod the holder of its name, if it is the pod's turn.
func (n names) take(name podid.FullName, uid podid.UID) bool {
	if _, held := n.holder[name]; held || len(n.waiting[name]) == 0 || n.waiting[name][0] != uid {
		return false
	}
	n.leave(name, uid)
	n.holder[name] = uid
	return true
}

// leave takes a pod out of the queue.
func (n names) leave(name podid.FullName, uid podid.UID) {
	left := slices.DeleteFunc(n.waiting[name], func(other podid.UID) bool { return other == uid })
	if len(left) == 0 {
		delete(n.waiting, name)
	} else {
		n.waiting[name] = left
	}
}

// release frees the name, if the pod holds it (PW-18).
func (n names) release(name podid.FullName, uid podid.UID) {
	if n.holder[name] == uid {
		delete(n.holder, name)
	}
}

// first is whose turn it is when the name is free.
func (n names) first(name podid.FullName) (podid.UID, bool) {
	if len(n.waiting[name]) == 0 {
		return "", false
	}
	return n.waiting[name][0], true
}

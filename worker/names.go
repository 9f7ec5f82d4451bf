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

// advance lets a pod that waits go before those that came earlier, and reports whether there were any.
func (n names) advance(name podid.FullName, uid podid.UID) bool {
	at := slices.Index(n.waiting[name], uid)
	if at > 0 {
		n.waiting[name] = slices.Insert(slices.Delete(n.waiting[name], at, at+1), 0, uid)
	}
	return at > 0
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

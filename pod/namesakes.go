package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// namesakes are all pods and mirrors of one full name.
//
// Usually there is one of either at most. More meet when a pod was force-deleted and re-created and its old self is
// still held (PM-7), when the removal of a mirror is heard after the addition of its successor (PM-6), or when two
// sources offer the same name. The name then belongs to the newest arrival, for as long as it is held, and goes back to
// the one before it: while any pod of a name is held, the name finds one. Arrival counts, not the last update, so that
// two pods that are updated in turn do not pass the name, and with it the mirror, to and fro.
type namesakes struct {
	arrivals []*v1.Pod // everybody, the newest last

	// What the name finds, or nil; known when written, so that reading is one look into the map.
	pod    *v1.Pod // the pod to run
	mirror *v1.Pod
	static *v1.Pod // whom the mirrors stand for; never an API pod of the same name (PM-13)
}

func (n namesakes) with(pod *v1.Pod) namesakes {
	return newestOf(append(n.arrivals, pod))
}

func (n namesakes) without(held *v1.Pod) namesakes {
	return newestOf(slices.DeleteFunc(n.arrivals, func(pod *v1.Pod) bool { return pod == held }))
}

// replacing puts pod in the place of held.
func (n namesakes) replacing(held, pod *v1.Pod) namesakes {
	n.arrivals[slices.Index(n.arrivals, held)] = pod
	return newestOf(n.arrivals)
}

func newestOf(arrivals []*v1.Pod) namesakes {
	n := namesakes{arrivals: arrivals}
	for _, pod := range arrivals {
		if podid.IsMirror(pod) {
			n.mirror = pod
			continue
		}
		n.pod = pod
		if podid.IsStatic(pod) {
			n.static = pod
		}
	}
	return n
}

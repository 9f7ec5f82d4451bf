package recent

import (
	"hash/fnv"
	"slices"
)

// maxMarks is how many marks are remembered of one kind of an object: the newest. A status shows at most two ends of a container.
const maxMarks = 4

// Mark identifies something that was counted, so that it is not counted again. After a crash of the agent the status of a pod may be older
// than what was counted, so that the same change is seen once more.
type Mark struct {
	// ID is a hash: of a pod's UID for restarts, and of the UID and the container ID for ends.
	ID uint64 `json:"id,string"`
	// Count is the restart count until which the restarts of the pod were counted.
	Count int `json:"count,omitempty"`
}

func newMark(count int, parts ...string) Mark {
	hash := fnv.New64a()
	for _, part := range parts {
		_, _ = hash.Write([]byte(part))
		_, _ = hash.Write([]byte{0})
	}
	return Mark{ID: hash.Sum64(), Count: count}
}

// findMark returns the mark with that ID.
func (c *Counter) findMark(o Object, kind string, id uint64) (Mark, bool) {
	if r := c.objects[o]; r != nil {
		if i := indexMark(r.marks[kind], id); i >= 0 {
			return r.marks[kind][i], true
		}
	}
	return Mark{}, false
}

func indexMark(marks []Mark, id uint64) int {
	return slices.IndexFunc(marks, func(m Mark) bool { return m.ID == id })
}

// setMark makes the mark the newest one. It replaces that with its ID. Without times of that kind there is nothing to mark.
func (c *Counter) setMark(o Object, kind string, mark Mark) {
	r := c.objects[o]
	if r == nil || r.times[kind] == nil {
		return
	}
	marks := r.marks[kind]
	if i := indexMark(marks, mark.ID); i >= 0 {
		marks = slices.Delete(marks, i, i+1)
	} else if len(marks) >= maxMarks {
		marks = slices.Delete(marks, 0, len(marks)-maxMarks+1)
	}
	if r.marks == nil {
		r.marks = map[string][]Mark{}
	}
	r.marks[kind] = append(marks, mark)
}

// Removed says that the node has nothing of a pod any more. If it comes back with its UID, as static pods do, its restart counts may start
// again at zero.
func (c *Counter) Removed(namespace, pod, uid string) {
	var containers []Object
	for o := range c.objects {
		if o.Pod == pod && o.Namespace == namespace && o.Container != "" {
			containers = append(containers, o)
		}
	}
	slices.SortFunc(containers, Object.Compare)
	for _, o := range containers {
		c.lowerMark(o, newMark(0, uid))
	}
}

// lowerMark notes that restarts after a lower restart count are others than those that were counted.
func (c *Counter) lowerMark(o Object, mark Mark) {
	if known, found := c.findMark(o, Restart, mark.ID); found && known.Count > mark.Count {
		c.setMark(o, Restart, mark)
		c.note(Entry{Object: o, Kind: Restart, Marks: []Mark{mark}})
	}
}

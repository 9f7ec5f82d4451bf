package status

import "github.com/heraldnode/herald/podid"

// backlog is what a subscriber has not read yet, oldest first. It is every change, until there are so many that the
// subscriber may have stopped reading for good: then what a pod was in between is left out, so that it never costs more
// memory than the node's pods are worth.
type backlog struct {
	changes []Change
	limit   int // how many there may be before they are thinned out again
}

// leastLimit is how many unread changes are kept in any case.
const leastLimit = 1000

func (b *backlog) add(change Change) {
	b.changes = append(b.changes, change)
	if len(b.changes) > max(b.limit, leastLimit) {
		b.changes = thinned(b.changes)
		b.limit = 2 * len(b.changes)
	}
}

func (b *backlog) take() []Change {
	taken := b.changes
	*b = backlog{}
	return taken
}

// thinned keeps the newest change of each pod, in their order, and nothing of a pod that came and went unread.
func thinned(changes []Change) []Change {
	newest, unknown := map[podid.UID]int{}, map[podid.UID]bool{}
	for i := range changes {
		uid := changes[i].UID
		if _, seen := newest[uid]; !seen {
			unknown[uid] = changes[i].First
		}
		newest[uid] = i
	}
	var kept []Change
	for i, change := range changes {
		change.First = unknown[change.UID]
		cameAndWent := change.First && change.Removed
		if newest[change.UID] == i && !cameAndWent {
			kept = append(kept, change)
		}
	}
	return kept
}

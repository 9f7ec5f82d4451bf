package query

import "github.com/heraldnode/herald/view"

// Membership says whether the reader of a watch has an object.
type Membership int

// The memberships. That of an object which changed while the reader was away is unknown.
const (
	Unknown Membership = iota
	Outside
	Inside
)

// Transition returns the event that a watch sends when an object changed: an object that enters the filter is ADDED, one that leaves it is
// DELETED. It returns "" if there is nothing to send. A reader whose membership is unknown must treat MODIFIED as ADDED if it does not have
// the object, and ignore DELETED.
func Transition(before Membership, matches bool) view.WatchType {
	switch {
	case matches && before == Outside:
		return view.Added
	case matches:
		return view.Modified
	case before == Outside:
		return ""
	default:
		return view.Deleted
	}
}

// MembershipOf returns the membership after an event.
func MembershipOf(matches bool) Membership {
	if matches {
		return Inside
	}
	return Outside
}

package plan

// Begin tells that nothing keeps the pod from its steps any more.
func (l Lifecycle) Begin() Lifecycle {
	l.Began = true
	return l
}

// NeverBegan reports whether the pod is to end before it began, and nothing of it can be in the runtime: then there is
// nothing to do for it (PW-17). Only static pods wait to begin.
func (l Lifecycle) NeverBegan() bool {
	return l.Stage == Terminating && l.Static() && !l.Began && !l.Leftovers
}

// Forget finishes a pod that never began.
func (l Lifecycle) Forget() Lifecycle {
	l.Stage, l.Removed = Finished, true
	return l
}

// End tells that a sync step found the pod's outcome: no update is needed for it to end (PW-27).
func (l Lifecycle) End() Lifecycle {
	if l.Stage == Syncing {
		l.Stage, l.Grace = Terminating, shortestGrace(0, Update{Pod: l.Pod})
	}
	return l
}

// Reject tells that the node will not run the pod; it goes the way of every pod that ends (BUG-33).
func (l Lifecycle) Reject() Lifecycle {
	l.Rejected = true
	return l.End()
}

// Orphan tells that no source wants the pod any more (PW-44).
func (l Lifecycle) Orphan() (Lifecycle, Effects) {
	return l.Accept(Update{Op: OpKill, Pod: l.Pod}, nil)
}

// Acknowledge tells that a terminating step begins.
func (l Lifecycle) Acknowledge() Lifecycle {
	l.Acknowledged = true
	return l
}

// Stop tells that all containers have stopped. A pod that only the runtime knew is finished with that (PW-30).
func (l Lifecycle) Stop() Lifecycle {
	l.Stage = Terminated
	if l.Pod == nil {
		return l.Forget()
	}
	return l
}

// Clean tells that the pod holds nothing on the node any more but, unless it was removed, what the runtime keeps for
// readers.
func (l Lifecycle) Clean(removed bool) Lifecycle {
	l.Stage, l.Removed = Finished, removed
	return l
}

// Relapse tells that a container of a stopped pod runs after all: a call whose answer was lost did its work late. It is
// the one way back, for what runs must be stopped.
func (l Lifecycle) Relapse() Lifecycle {
	if l.Stage > Terminating {
		l.Stage, l.Removed = Terminating, false
	}
	return l
}

// Restart is the new life of a static pod that came back.
func (l Lifecycle) Restart() Lifecycle {
	again, _ := Lifecycle{}.Accept(Update{Op: OpCreate, Pod: l.Again, Mirror: l.Mirror}, nil)
	return again
}

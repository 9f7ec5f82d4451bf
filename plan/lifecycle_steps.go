package plan

// Begin tells that nothing keeps the pod from its steps any more.
func (l Lifecycle) Start() Lifecycle {
	l.Started = true
	return l
}

// NeverBegan reports whether the pod is to end before it began, and nothing of it can be in the runtime: then there is
// nothing to do for it (PW-17). Only static pods wait to begin.
func (l Lifecycle) NeverStarted() bool {
	return l.Stage == Terminating && l.IsStatic() && !l.Started && !l.MayExistInRuntime
}

// Forget finishes a pod that never began.
func (l Lifecycle) FinishUnstarted() Lifecycle {
	l.Stage, l.ContentRemoved = Finished, true
	return l
}

// End tells that a sync step found the pod's outcome: no update is needed for it to end (PW-27).
func (l Lifecycle) CompleteSync() Lifecycle {
	if l.Stage == Syncing {
		l.Stage, l.GracePeriod = Terminating, shortestGrace(0, Update{Pod: l.Pod})
	}
	return l
}

// Reject tells that the node will not run the pod; it goes the way of every pod that ends (BUG-33).
func (l Lifecycle) Reject() Lifecycle {
	l.Rejected = true
	return l.CompleteSync()
}

// Orphan tells that no source wants the pod any more (PW-44).
func (l Lifecycle) Orphan() (Lifecycle, Effects) {
	return l.Apply(Update{Op: OpKill, Pod: l.Pod}, nil)
}

// Acknowledge tells that a terminating step begins.
func (l Lifecycle) StartTerminating() Lifecycle {
	l.StartedTerminating = true
	return l
}

// Stop tells that all containers have stopped. A pod that only the runtime knew is finished with that (PW-30).
func (l Lifecycle) CompleteTerminating() Lifecycle {
	l.Stage = Terminated
	if l.Pod == nil {
		return l.FinishUnstarted()
	}
	return l
}

// Clean tells that the pod holds nothing on the node any more but, unless it was removed, what the runtime keeps for
// readers.
func (l Lifecycle) CompleteTerminated(removed bool) Lifecycle {
	l.Stage, l.ContentRemoved = Finished, removed
	return l
}

// Relapse tells that a container of a stopped pod runs after all: a call whose answer was lost did its work late. It is
// the one way back, for what runs must be stopped.
func (l Lifecycle) ResumeTerminating() Lifecycle {
	if l.Stage > Terminating {
		l.Stage, l.ContentRemoved = Terminating, false
	}
	return l
}

// Restart is the new life of a static pod that came back.
func (l Lifecycle) Restart() Lifecycle {
	again, _ := Lifecycle{}.Apply(Update{Op: OpCreate, Pod: l.Recreated, Mirror: l.Mirror}, nil)
	return again
}

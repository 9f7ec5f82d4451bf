package fakeruntime

import (
	"context"
	"slices"
	"time"

	"github.com/heraldnode/herald/podid"
)

// Call identifies one call of a method of [Runtime].
type Call struct {
	Method    string
	PodUID    podid.UID // empty if the call does not name a pod
	Container string    // container name; empty if the call does not concern a container
}

// Fault changes the outcome of a call. Delay applies first.
type Fault struct {
	// Delay passes before the operation starts. Forever: until the caller's context ends or the fault is removed.
	Delay time.Duration
	// Skip returns Err, which may be nil, without performing the operation.
	Skip bool
	// LostResponse performs the operation before Err is returned, as if the response was lost.
	LostResponse bool
	// Err is returned to the caller. Nil: the result of the operation is.
	Err error
}

// injectedFault is a fault in effect.
type injectedFault struct {
	matches func(Call) bool
	fault   Fault
	removed chan struct{} // closed when the fault is removed
}

// Inject applies the fault to all matching calls until remove is called. Removing it releases the calls that it delays.
// If several faults match a call, the one that was injected first applies.
func (r *Runtime) Inject(matches func(Call) bool, fault Fault) (remove func()) {
	injected := &injectedFault{matches, fault, make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, injected)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i := slices.Index(r.faults, injected); i >= 0 {
			r.faults = slices.Delete(r.faults, i, i+1)
			close(injected.removed)
		}
	}
}

// Method matches all calls of a method, for [Runtime.Inject].
func Method(name string) func(Call) bool {
	return func(call Call) bool { return call.Method == name }
}

// call counts the call and performs the operation, subject to the first fault that matches.
func (r *Runtime) call(ctx context.Context, call Call, operation func() error) error {
	fault, removed := r.faultFor(call)
	if err := wait(ctx, fault.Delay, removed); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if fault.Skip || (fault.Err != nil && !fault.LostResponse) {
		return fault.Err
	}
	err := operation()
	if fault.Err != nil {
		return fault.Err
	}
	return err
}

func (r *Runtime) faultFor(call Call) (fault Fault, removed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[call.Method]++
	for _, injected := range r.faults {
		if injected.matches(call) {
			return injected.fault, injected.removed
		}
	}
	return Fault{}, nil
}

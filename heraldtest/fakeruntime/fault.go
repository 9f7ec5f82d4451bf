package fakeruntime

import (
	"context"
	"slices"
	"time"

	"github.com/heraldnode/herald/podid"
)

// Call is one call of a method.
type Call struct {
	Method    string
	PodUID    podid.UID
	Container string // its name, where the call is about one
}

// Fault is what befalls a call, in the order of the fields.
type Fault struct {
	// Delay passes before anything happens. Forever: until the caller gives up.
	Delay time.Duration
	// Skip tells that the call says that it did its work, and did nothing.
	Skip bool
	// LostResponse tells that the call does its work before it fails: the answer is lost.
	LostResponse bool
	// Err is what the caller gets; nil: what the call itself says.
	Err error
}

// armed is a fault that waits for its calls.
type armed struct {
	matches func(Call) bool
	fault   Fault
	healed  chan struct{} // closed when it is over
}

// Inject lets the fault befall every call that matches, until heal is called: then those that it delays go on at once. The
// first fault that matches counts.
func (r *Runtime) Inject(matches func(Call) bool, fault Fault) (heal func()) {
	a := &armed{matches, fault, make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, a)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i := slices.Index(r.faults, a); i >= 0 {
			r.faults = slices.Delete(r.faults, i, i+1)
			close(a.healed)
		}
	}
}

// Method matches all calls of a method.
func Method(name string) func(Call) bool {
	return func(c Call) bool { return c.Method == name }
}

// do runs the work of a call under whatever fault is armed for it.
func (r *Runtime) do(ctx context.Context, call Call, work func() error) error {
	fault, healed := r.strike(call)
	if err := wait(ctx, fault.Delay, healed); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if fault.Skip || (fault.Err != nil && !fault.LostResponse) {
		return fault.Err
	}
	err := work()
	if fault.Err != nil {
		return fault.Err
	}
	return err
}

func (r *Runtime) strike(call Call) (Fault, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[call.Method]++
	for _, a := range r.faults {
		if a.matches(call) {
			return a.fault, a.healed
		}
	}
	return Fault{}, nil
}

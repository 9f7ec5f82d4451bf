// Package engine is a container runtime that exists only in memory, for tests of what drives one: its containers do what
// a script says, its calls fail, hang or lose their answers on demand, and it keeps a transcript.
//
// It needs nothing but time, which it takes from the time package, so that a testing/synctest bubble can move it.
package fakeruntime

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Runtime is the runtime. Any goroutine may call its methods, and what it returns is the caller's.
type Runtime struct {
	mu         sync.Mutex // guards all below
	pods       map[podid.UID]*pod
	scripts    map[string]Script
	faults     []*armed
	watchers   map[*watcher]struct{}
	transcript []string
	violations []string
	newest     time.Time // of all that was created, so that no two things are of the same age
	addresses  int
	calls      map[string]int
}

// pod is all that the engine holds under one UID.
type pod struct {
	uid        podid.UID
	name       podid.FullName
	sandboxes  []*observed.Sandbox
	containers []*container
}

// New is an engine that holds nothing.
func New() *Runtime {
	return &Runtime{
		pods: map[podid.UID]*pod{}, scripts: map[string]Script{}, watchers: map[*watcher]struct{}{}, calls: map[string]int{},
	}
}

// Script says what containers of that name do from now on, in every pod. Those that run go on as they are.
func (r *Runtime) SetScript(container string, script Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[container] = script
}

// Transcript lists what was done, in order: "sandbox web_shop #0", "start web_shop/app #0", "stop web_shop/app", ...
// Calls that failed before they did anything are not in it.
func (r *Runtime) Transcript() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.transcript)
}

// Calls counts the calls of a method by its name, those that failed included.
func (r *Runtime) CallCount(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[method]
}

// Violations lists what no driver of a runtime may ever do: two instances of one container at a time, a container in a
// dead sandbox, the removal of what runs.
func (r *Runtime) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// Exit ends the running instance of a container with that code, as if its process had. It reports whether there was one.
func (r *Runtime) ExitContainer(uid podid.UID, name string, code int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, found := r.pods[uid]
	if !found {
		return false
	}
	c := p.running(name)
	if c == nil {
		return false
	}
	r.endLocked(c, code, "")
	return true
}

// Reboot ends every container and every sandbox, as the power does. What was there is still known.
func (r *Runtime) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked("reboot")
	for _, p := range r.pods {
		for _, c := range p.containers {
			r.endLocked(c, 255, "Unknown")
		}
		for _, s := range p.sandboxes {
			s.Ready = false
		}
		r.tellLocked(p.uid)
	}
}

func (r *Runtime) noteLocked(format string, args ...any) {
	r.transcript = append(r.transcript, fmt.Sprintf(format, args...))
}

func (r *Runtime) blameLocked(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// birthLocked is now, or just after the youngest thing that there is.
func (r *Runtime) birthLocked() time.Time {
	now := time.Now()
	if !now.After(r.newest) {
		now = r.newest.Add(1)
	}
	r.newest = now
	return now
}

func (r *Runtime) addressLocked() netip.Addr {
	r.addresses++
	return netip.AddrFrom4([4]byte{10, 88, byte(r.addresses >> 8), byte(r.addresses)})
}

func (p *pod) running(name string) *container {
	for _, c := range p.containers {
		if c.seen.Name == name && c.seen.State == observed.Running {
			return c
		}
	}
	return nil
}

func (p *pod) sandbox(id string) *observed.Sandbox {
	for _, s := range p.sandboxes {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Package engine is a container runtime that exists only in memory, for tests of what drives one: its containers do what
// a script says, its calls fail, hang or lose their answers on demand, and it keeps a transcript.
//
// It needs nothing but time, which it takes from the time package, so that a testing/synctest bubble can move it.
package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Engine is the runtime. Any goroutine may call its methods, and what it returns is the caller's.
type Engine struct {
	mu         sync.Mutex // guards all below
	pods       map[podid.UID]*pod
	scripts    map[string]Script
	faults     []*armed
	watchers   map[*watcher]struct{}
	transcript []string
	misdeeds   []string
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
func New() *Engine {
	return &Engine{
		pods: map[podid.UID]*pod{}, scripts: map[string]Script{}, watchers: map[*watcher]struct{}{}, calls: map[string]int{},
	}
}

// Script says what containers of that name do from now on, in every pod. Those that run go on as they are.
func (e *Engine) Script(container string, script Script) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.scripts[container] = script
}

// Transcript lists what was done, in order: "sandbox web_shop #0", "start web_shop/app #0", "stop web_shop/app", ...
// Calls that failed before they did anything are not in it.
func (e *Engine) Transcript() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.transcript)
}

// Calls counts the calls of a method by its name, those that failed included.
func (e *Engine) Calls(method string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[method]
}

// Misdeeds lists what no driver of a runtime may ever do: two instances of one container at a time, a container in a
// dead sandbox, the removal of what runs.
func (e *Engine) Misdeeds() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.misdeeds)
}

// Exit ends the running instance of a container with that code, as if its process had. It reports whether there was one.
func (e *Engine) Exit(uid podid.UID, name string, code int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, found := e.pods[uid]
	if !found {
		return false
	}
	c := p.running(name)
	if c == nil {
		return false
	}
	e.endLocked(c, code, "")
	return true
}

// Reboot ends every container and every sandbox, as the power does. What was there is still known.
func (e *Engine) Reboot() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteLocked("reboot")
	for _, p := range e.pods {
		for _, c := range p.containers {
			e.endLocked(c, 255, "Unknown")
		}
		for _, s := range p.sandboxes {
			s.Ready = false
		}
		e.tellLocked(p.uid)
	}
}

func (e *Engine) noteLocked(format string, args ...any) {
	e.transcript = append(e.transcript, fmt.Sprintf(format, args...))
}

func (e *Engine) blameLocked(format string, args ...any) {
	e.misdeeds = append(e.misdeeds, fmt.Sprintf(format, args...))
}

// birthLocked is now, or just after the youngest thing that there is.
func (e *Engine) birthLocked() time.Time {
	now := time.Now()
	if !now.After(e.newest) {
		now = e.newest.Add(1)
	}
	e.newest = now
	return now
}

func (e *Engine) addressLocked() netip.Addr {
	e.addresses++
	return netip.AddrFrom4([4]byte{10, 88, byte(e.addresses >> 8), byte(e.addresses)})
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

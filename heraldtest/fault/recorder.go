package fault

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// traceLimit bounds the memory of a script: a long soak forgets its beginning.
const traceLimit = 1 << 16

// Requests is what is remembered, oldest first: the newest 65536 requests since the last [Injector.ClearRequests].
func (s *Injector) Requests() Trace { return s.trace.requests() }

// Forget empties the memory, so that a test can count from here on. Requests that are under way are forgotten too.
func (s *Injector) ClearRequests() { s.trace.forget() }

// recorder owns the remembered requests: they are changed and copied under its lock only.
type recorder struct {
	mu      sync.Mutex // guards what follows
	entries []*Request
	events  int64 // beginnings and ends so far
}

func (r *recorder) requests() Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	trace := make(Trace, len(r.entries))
	for i, entry := range r.entries {
		trace[i] = *entry
		trace[i].Forwarded = slices.Clone(entry.Forwarded)
	}
	return trace
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = nil
}

func (r *recorder) begin(req *http.Request) *Request {
	entry := &Request{
		Method: req.Method, Verb: verbOf(req), Path: req.URL.Path, Query: req.URL.RawQuery, Start: time.Now(),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	entry.began = r.events
	r.entries = append(r.entries, entry)
	if surplus := len(r.entries) - traceLimit; surplus > 0 {
		r.entries = r.entries[surplus:]
	}
	return entry
}

func (r *recorder) answered(entry *Request, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry.Status = status
}

// end is idempotent: of an error and the close that follows it, the first counts.
func (r *recorder) end(entry *Request, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if entry.ended > 0 {
		return
	}
	r.events++
	entry.ended, entry.End, entry.Err = r.events, time.Now(), err
}

func (r *recorder) sent(entry *Request, sent Forwarded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry.Forwarded = append(entry.Forwarded, sent)
}

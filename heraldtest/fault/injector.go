// Package fault injects faults into HTTP traffic between a client and an API server.
//
// An [Injector] wraps any http.RoundTripper: one that talks to a real API server, to heraldtest.APIServer, or the transport
// of a proxy. Without rules it only records requests.
//
//	faults := fault.NewInjector()
//	client.Transport = faults.Wrap(client.Transport)
//
//	faults.Add(fault.On("PATCH", `/pods/.*/status`).Times(3).Reply(429, fault.RetryAfter(2*time.Second)))
//	remove := faults.Add(fault.On("watch", "/pods").Stall())
//	...
//	remove()
//
// A [Rule] combines a [Selector], which starts with [On], with one fault.
//
// Request faults ([Selector.Delay], [Selector.Reply], [Selector.Reset] and others) nest in the order in which their rules
// were added, the first rule outermost: a delay added before a reply delays the reply, a delay added after it has no effect.
//
// Stream faults ([Selector.Cut], [Selector.CutAfter], [Selector.Stall]) act on response bodies, including responses that are
// already open when the rule is added. A test uses them to break a running watch.
//
// [Injector.Requests] returns the requests of the client, their outcome and what was forwarded to the server.
//
// The package is safe for concurrent use. It uses package time and no sockets, so it works inside a testing/synctest bubble
// if the Injector is created and used inside the bubble.
package fault

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Injector applies fault rules to requests and records the requests. It is safe for concurrent use. No lock is held during
// a request.
type Injector struct {
	recorder recorder

	mu      sync.Mutex // guards all fields below
	rules   []*activeRule
	streams map[*stream]struct{} // open response bodies
	held    int                  // requests that Hold rules detached from their client and that have no response yet
	idle    *sync.Cond           // on mu; signals that held is zero
}

// activeRule is a rule in effect.
type activeRule struct {
	*Rule
	removed chan struct{} // closed when the rule is removed
}

// NewInjector returns an injector without rules.
func NewInjector() *Injector {
	i := &Injector{streams: map[*stream]struct{}{}}
	i.idle = sync.NewCond(&i.mu)
	return i
}

// Wrap returns a transport that sends requests to next and applies the rules.
func (i *Injector) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{injector: i, next: next}
}

// Add appends a rule to the rules in effect, until remove is called. Removing a rule ends its stalls. It does not undo a
// reset or a cut, and it does not release held requests. Calling remove again has no effect.
func (i *Injector) Add(rule *Rule) (remove func()) {
	added := &activeRule{Rule: rule, removed: make(chan struct{})}
	i.mu.Lock()
	i.rules = append(slices.Clip(i.rules), added) // rulesInEffect shares the slice
	streams := i.streamsLocked()
	i.mu.Unlock()
	if rule.onStream != nil {
		for _, stream := range streams {
			stream.apply(added)
		}
	}
	return sync.OnceFunc(func() { i.remove(added) })
}

func (i *Injector) remove(removed *activeRule) {
	i.mu.Lock()
	i.rules = slices.DeleteFunc(slices.Clone(i.rules), func(rule *activeRule) bool { return rule == removed })
	i.mu.Unlock()
	close(removed.removed)
}

// rulesInEffect returns a slice that is never modified.
func (i *Injector) rulesInEffect() []*activeRule {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rules
}

// Requests returns the recorded requests, oldest first: at most the newest 65536 since the last [Injector.ClearRequests].
func (i *Injector) Requests() Trace { return i.recorder.requests() }

// ClearRequests drops the recorded requests, including those in progress.
func (i *Injector) ClearRequests() { i.recorder.clear() }

// Wait blocks until the server has responded to all requests that [Selector.HoldUntil] or [Selector.HoldFor] held.
func (i *Injector) Wait() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for i.held > 0 {
		i.idle.Wait()
	}
}

// detach runs the rest of a request independently of its client.
func (i *Injector) detach(rest func()) {
	i.mu.Lock()
	i.held++
	i.mu.Unlock()
	go func() {
		rest()
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.held--; i.held == 0 {
			i.idle.Broadcast()
		}
	}()
}

// openStream registers a stream and applies the rules in effect. Each rule is applied to each stream once, here or in Add:
// both register and read the other side in one critical section.
func (i *Injector) openStream(stream *stream) {
	i.mu.Lock()
	i.streams[stream] = struct{}{}
	rules := i.rules
	i.mu.Unlock()
	for _, rule := range rules {
		if rule.onStream != nil {
			stream.apply(rule)
		}
	}
}

func (i *Injector) closeStream(stream *stream) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.streams, stream)
}

// streamsLocked returns the open streams, oldest first, so that rules with a limit act in a predictable order.
func (i *Injector) streamsLocked() []*stream {
	streams := make([]*stream, 0, len(i.streams))
	for stream := range i.streams {
		streams = append(streams, stream)
	}
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.started, b.started) })
	return streams
}

// transport is the injector in front of one server.
type transport struct {
	injector *Injector
	next     http.RoundTripper
}

// exchange is one client request in progress.
type exchange struct {
	*transport
	record *Request // the recorder guards it
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := &exchange{transport: t, record: t.injector.recorder.start(req)}
	resp, err := x.send(t.injector.rulesInEffect(), req)
	if err != nil {
		t.injector.recorder.end(x.record, err)
		return nil, err
	}
	t.injector.recorder.setStatus(x.record, resp.StatusCode)
	return x.wrapBody(req, resp), nil
}

// send applies the first of the rules that selects the request, or forwards it to the server.
func (x *exchange) send(rules []*activeRule, req *http.Request) (*http.Response, error) {
	for i, rule := range rules {
		if rule.onRequest != nil && rule.claim(req) {
			next := func(req *http.Request) (*http.Response, error) { return x.send(rules[i+1:], req) }
			return rule.onRequest(x, req, next)
		}
	}
	forwarded := Forwarded{Start: time.Now()}
	resp, err := x.next.RoundTrip(req)
	forwarded.End, forwarded.Err = time.Now(), err
	if resp != nil {
		forwarded.Status = resp.StatusCode
	}
	x.injector.recorder.addForwarded(x.record, forwarded)
	return resp, err
}

// wrapBody makes the response body a stream. Upgraded connections are left alone: they no longer speak HTTP.
func (x *exchange) wrapBody(req *http.Request, resp *http.Response) *http.Response {
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == nil || resp.Body == http.NoBody {
		x.injector.recorder.end(x.record, nil)
		return resp
	}
	body := newStream(x, req, resp.Body)
	x.injector.openStream(body)
	resp.Body = body
	return resp
}

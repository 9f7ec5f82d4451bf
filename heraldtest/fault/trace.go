package fault

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Request is a recorded client request and its outcome.
type Request struct {
	Method    string
	Verb      string // Kubernetes API verb: get, list, watch, create, ...
	Path      string
	Query     string // raw query, without "?"
	Start     time.Time
	End       time.Time   // when the client got the last byte or the error; zero while the request is in progress
	Status    int         // status code that the client got; 0 without a response
	Err       error       // error of the request or its response body; nil if it succeeded
	Forwarded []Forwarded // what the server received: usually one request, none if a fault replaced it

	startSeq, endSeq int64 // positions among all starts and ends; endSeq is 0 while the request is in progress
}

// Forwarded is a request that the injector forwarded to the server.
type Forwarded struct {
	Start  time.Time
	End    time.Time // when the response header or the error arrived
	Status int       // status code of the server's response; 0 without a response
	Err    error
}

// Trace is a list of requests, ordered by start.
type Trace []Request

// Filter returns the requests that [On] selects with the same arguments.
func (t Trace) Filter(verb, path string) Trace {
	matcher := newMatcher(verb, path)
	var filtered Trace
	for _, request := range t {
		if matcher.matches(request.Method, request.Verb, request.Path) {
			filtered = append(filtered, request)
		}
	}
	return filtered
}

// ByPath groups the requests by path.
func (t Trace) ByPath() map[string]Trace {
	groups := map[string]Trace{}
	for _, request := range t {
		groups[request.Path] = append(groups[request.Path], request)
	}
	return groups
}

// MaxInFlight returns the maximum number of requests in progress at the same time. It goes by the order of starts and ends,
// not by the clock, so requests of zero duration count too.
func (t Trace) MaxInFlight() int {
	type event struct {
		seq   int64
		delta int
	}
	var events []event
	for _, request := range t {
		events = append(events, event{request.startSeq, +1})
		if request.endSeq > 0 {
			events = append(events, event{request.endSeq, -1})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.seq, b.seq) })
	inFlight, most := 0, 0
	for _, event := range events {
		inFlight += event.delta
		most = max(most, inFlight)
	}
	return most
}

// maxRecorded bounds the memory of long test runs.
const maxRecorded = 1 << 16

// recorder owns the recorded requests. They are accessed under its lock only.
type recorder struct {
	mu      sync.Mutex // guards all fields below
	records []*Request
	seq     int64 // starts and ends so far
}

func (r *recorder) requests() Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	trace := make(Trace, len(r.records))
	for i, record := range r.records {
		trace[i] = *record
		trace[i].Forwarded = slices.Clone(record.Forwarded)
	}
	return trace
}

func (r *recorder) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = nil
}

func (r *recorder) start(req *http.Request) *Request {
	record := &Request{
		Method: req.Method, Verb: verbOf(req), Path: req.URL.Path, Query: req.URL.RawQuery, Start: time.Now(),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	record.startSeq = r.seq
	r.records = append(r.records, record)
	if surplus := len(r.records) - maxRecorded; surplus > 0 {
		r.records = r.records[surplus:]
	}
	return record
}

func (r *recorder) setStatus(record *Request, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record.Status = status
}

// end is idempotent: after an error, the close of the body has no effect.
func (r *recorder) end(record *Request, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record.endSeq > 0 {
		return
	}
	r.seq++
	record.endSeq, record.End, record.Err = r.seq, time.Now(), err
}

func (r *recorder) addForwarded(record *Request, forwarded Forwarded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record.Forwarded = append(record.Forwarded, forwarded)
}

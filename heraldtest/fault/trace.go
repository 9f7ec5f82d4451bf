package fault

import (
	"cmp"
	"slices"
	"time"
)

// Request is one request as the client made it, and what came of it.
type Request struct {
	Method    string
	Verb      string // as Kubernetes' authorization names it: get, list, watch, create, ...
	Path      string
	Query     string // as in the URL, without the "?"
	Start     time.Time
	End       time.Time   // when the client knew the outcome: the answer's last byte, or the error; zero until then
	Status    int         // what the client was told; 0 if it had no answer
	Err       error       // what broke the request or its answer; nil if nothing did
	Forwarded []Forwarded // what the server got of it: nothing, the request, or the request twice

	began, ended int64 // places in the order of all beginnings and ends; ended is 0 until then
}

// Forwarded is a request on the server's side of the script.
type Forwarded struct {
	Start  time.Time
	End    time.Time // when the answer's header came, or the error
	Status int       // 0 if there was no answer
	Err    error
}

// Trace is requests in the order in which they began.
type Trace []Request

// Of keeps the requests that [On] would select with the same arguments.
func (t Trace) Filter(verb, path string) Trace {
	wanted := newMatcher(verb, path)
	var kept Trace
	for _, r := range t {
		if wanted.matches(r.Method, r.Verb, r.Path) {
			kept = append(kept, r)
		}
	}
	return kept
}

// ByPath sorts the requests by what they were about.
func (t Trace) ByPath() map[string]Trace {
	paths := map[string]Trace{}
	for _, r := range t {
		paths[r.Path] = append(paths[r.Path], r)
	}
	return paths
}

// MaxInFlight is the largest number of these requests that were open at one time. It goes by the order of events and not
// by the clock, so that requests of no duration count as well.
func (t Trace) MaxInFlight() int {
	type event struct {
		place int64
		step  int
	}
	var events []event
	for _, r := range t {
		events = append(events, event{r.began, +1})
		if r.ended > 0 {
			events = append(events, event{r.ended, -1})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.place, b.place) })
	open, most := 0, 0
	for _, e := range events {
		open += e.step
		most = max(most, open)
	}
	return most
}

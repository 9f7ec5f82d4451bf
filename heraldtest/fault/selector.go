package fault

import (
	"net/http"
	"regexp"
)

// Selector says which requests a rule is for. It is a value: each method returns a narrower copy, and the methods that
// name a fault ([Selector.Reply], [Selector.Cut], ...) make a [Rule] of it.
type Selector struct {
	matcher
	where  func(*http.Request) bool
	after  int
	times  int // negative: no limit
	chance float64
	seed   uint64
}

// matcher is the part of a selection that a trace can be asked about as well.
type matcher struct {
	verb string
	path *regexp.Regexp
}

// On selects requests by what they do and to which path.
//
// The verb is an HTTP method in capitals ("GET" is every GET, also a list or a watch), a Kubernetes verb in small letters
// ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"), or "*". The path is a regular
// expression that has to match somewhere in the URL's path; `^` and `$` tie it down, "" is every path.
//
// On panics when either makes no sense, as regexp.MustCompile does: the script is part of the test's text.
func On(verb, path string) Selector {
	return Selector{matcher: newMatcher(verb, path), times: -1, chance: 1, seed: 1}
}

func newMatcher(verb, path string) matcher {
	mustKnow(verb)
	return matcher{verb: verb, path: regexp.MustCompile(path)}
}

func (m matcher) matches(method, verb, path string) bool {
	return (m.verb == anyVerb || m.verb == method || m.verb == verb) && m.path.MatchString(path)
}

// Where narrows the selection to requests of which the function says yes. It must not read the body.
func (s Selector) Where(selects func(*http.Request) bool) Selector {
	before := s.where
	s.where = func(req *http.Request) bool { return (before == nil || before(req)) && selects(req) }
	return s
}

// After leaves the first n selected requests alone.
func (s Selector) After(n int) Selector {
	s.after = n
	return s
}

// Times lets the fault happen n times and no more.
func (s Selector) Times(n int) Selector {
	s.times = n
	return s
}

// Nth lets the fault happen to the n-th selected request only, counted from 1.
func (s Selector) Nth(n int) Selector { return s.After(n - 1).Times(1) }

// Chance lets the fault happen to each selected request with this probability (0..1). The same seed and the same order of
// requests give the same faults; without Chance every selected request has the fault.
func (s Selector) Probability(probability float64, seed uint64) Selector {
	s.chance, s.seed = probability, seed
	return s
}

func (s Selector) selects(req *http.Request) bool {
	return s.matches(req.Method, verbOf(req), req.URL.Path) && (s.where == nil || s.where(req))
}

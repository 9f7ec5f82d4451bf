package fault

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Selector selects requests. It is an immutable value: Where, After, Times, Nth and Probability return a narrower copy.
// The methods that name a fault, such as [Selector.Reply] and [Selector.Cut], return a [Rule].
type Selector struct {
	matcher
	where       func(*http.Request) bool
	after       int
	times       int // negative: unlimited
	probability float64
	seed        uint64
}

// matcher selects requests by verb and path. Traces use it too.
type matcher struct {
	verb string
	path *regexp.Regexp
}

// On selects requests by verb and path.
//
// The verb is an HTTP method in upper case ("GET" includes lists and watches), a Kubernetes verb in lower case ("get",
// "list", "watch", "create", "update", "patch", "delete", "deletecollection"), or "*". The path is an unanchored regular
// expression for the URL path; "" selects every path.
//
// On panics if the verb is unknown or the expression does not compile, like regexp.MustCompile.
func On(verb, path string) Selector {
	return Selector{matcher: newMatcher(verb, path), times: -1, probability: 1, seed: 1}
}

// Where narrows the selection to requests for which the function returns true. It must not read the body.
func (s Selector) Where(selects func(*http.Request) bool) Selector {
	previous := s.where
	s.where = func(req *http.Request) bool { return (previous == nil || previous(req)) && selects(req) }
	return s
}

// After skips the first n selected requests.
func (s Selector) After(n int) Selector {
	s.after = n
	return s
}

// Times limits the fault to n requests.
func (s Selector) Times(n int) Selector {
	s.times = n
	return s
}

// Nth selects only the n-th request, counted from 1.
func (s Selector) Nth(n int) Selector { return s.After(n - 1).Times(1) }

// Probability injects the fault into each selected request with probability p, from 0 to 1. The same seed and the same
// order of requests give the same faults. Defaults to 1.
func (s Selector) Probability(p float64, seed uint64) Selector {
	s.probability, s.seed = p, seed
	return s
}

func (s Selector) selects(req *http.Request) bool {
	return s.matches(req.Method, verbOf(req), req.URL.Path) && (s.where == nil || s.where(req))
}

// Rule injects one fault into the requests that its selector selects, while an [Injector] has it. It is safe for concurrent
// use. A rule that is added twice counts requests of both.
type Rule struct {
	selector Selector
	// Exactly one of the two is set.
	onRequest requestFault
	onStream  streamFault

	mu       sync.Mutex // guards all fields below
	selected int
	fired    int
	random   *rand.Rand
}

// requestFault handles a request. It may call next to pass the request on to the following rules and the server. If it does
// not, it must close the request's body.
type requestFault func(x *exchange, req *http.Request, next roundTrip) (*http.Response, error)

type roundTrip func(*http.Request) (*http.Response, error)

// streamFault disturbs the body of a response.
type streamFault func(body *stream, rule *activeRule)

func (s Selector) requestRule(fault requestFault) *Rule { return s.newRule(&Rule{onRequest: fault}) }

func (s Selector) streamRule(fault streamFault) *Rule { return s.newRule(&Rule{onStream: fault}) }

func (s Selector) newRule(rule *Rule) *Rule {
	rule.selector = s
	rule.random = rand.New(rand.NewPCG(s.seed, s.seed))
	return rule
}

// Fired returns how often the fault was injected.
func (r *Rule) Fired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// claim reports whether the fault applies to the request, and counts it if so.
func (r *Rule) claim(req *http.Request) bool {
	if !r.selector.selects(req) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.selected++
	switch s := r.selector; {
	case r.selected <= s.after, s.times >= 0 && r.fired >= s.times, s.probability < 1 && r.random.Float64() >= s.probability:
		return false
	}
	r.fired++
	return true
}

// randomDuration returns a duration from [shortest, longest].
func (r *Rule) randomDuration(shortest, longest time.Duration) time.Duration {
	if longest <= shortest {
		return shortest
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return shortest + time.Duration(r.random.Int64N(int64(longest-shortest)+1))
}

// anyVerb selects all requests.
const anyVerb = "*"

var (
	methods = []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}
	verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
)

// newMatcher panics on an unknown verb: the rule would never fire, silently.
func newMatcher(verb, path string) matcher {
	if verb != anyVerb && !slices.Contains(methods, verb) && !slices.Contains(verbs, verb) {
		panic(fmt.Sprintf("fault: unknown verb %q: want one of the HTTP methods %v, the Kubernetes verbs %v, or %q",
			verb, methods, verbs, anyVerb))
	}
	return matcher{verb: verb, path: regexp.MustCompile(path)}
}

func (m matcher) matches(method, verb, path string) bool {
	return (m.verb == anyVerb || m.verb == method || m.verb == verb) && m.path.MatchString(path)
}

// verbOf returns the Kubernetes API verb of a request, as authorization sees it.
func verbOf(req *http.Request) string {
	collection := isCollection(req.URL.Path)
	switch req.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if collection {
			return "deletecollection"
		}
		return "delete"
	case http.MethodGet, http.MethodHead, "":
		if watch, err := strconv.ParseBool(req.URL.Query().Get("watch")); err == nil && watch {
			return "watch"
		}
		if collection {
			return "list"
		}
		return "get"
	default:
		return strings.ToLower(req.Method)
	}
}

// isCollection reports whether the path names a collection, such as /api/v1/pods or /api/v1/namespaces/shop/pods, and not
// a single object.
func isCollection(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return len(parts) == 1
}

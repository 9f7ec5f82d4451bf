package fault

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Rule is a selection of requests and the fault that they get. It does nothing until a [Injector] has it.
//
// Safe for concurrent use; a rule that is added to two scripts counts for both.
type Rule struct {
	selector Selector
	// Exactly one of the two is set: what happens to the request, or what happens to the stream of its response.
	act     action
	disturb func(s *stream, by *rule)

	mu     sync.Mutex // guards what follows
	seen   int
	fired  int
	random *rand.Rand
}

// rule is a Rule while a script has it.
type rule struct {
	*Rule
	removed chan struct{} // closed on removal
}

// action deals with one request. It may call next, which hands the request to the rules after it and then to the server;
// if it does not, closing the request's body is its duty.
type action func(x *exchange, req *http.Request, next send) (*http.Response, error)

type send func(*http.Request) (*http.Response, error)

func (s Selector) request(act action) *Rule { return s.rule(&Rule{act: act}) }

func (s Selector) stream(disturb func(*stream, *rule)) *Rule { return s.rule(&Rule{disturb: disturb}) }

func (s Selector) rule(r *Rule) *Rule {
	r.selector = s
	r.random = rand.New(rand.NewPCG(s.seed, s.seed))
	return r
}

// Fired says how often the fault has happened.
func (r *Rule) Fired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// claim decides whether the fault happens to this request, and counts it if so.
func (r *Rule) claim(req *http.Request) bool {
	if !r.selector.selects(req) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	switch s := r.selector; {
	case r.seen <= s.after, s.times >= 0 && r.fired >= s.times, s.chance < 1 && r.random.Float64() >= s.chance:
		return false
	}
	r.fired++
	return true
}

// between draws a duration from [least, most].
func (r *Rule) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return least + time.Duration(r.random.Int64N(int64(most-least)+1))
}

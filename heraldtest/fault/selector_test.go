package fault_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/heraldnode/herald/heraldtest/fault"
)

const (
	pods   = "/api/v1/namespaces/shop/pods"
	pod    = pods + "/web"
	status = pod + "/status"
)

func TestARuleSelectsByMethodOrVerbAndByPath(t *testing.T) {
	tests := map[string]struct {
		verb, path  string
		method, url string
		want        bool
	}{
		"the method":                       {"PATCH", "", "PATCH", status, true},
		"another method":                   {"PATCH", "", "PUT", status, false},
		"a pattern in the middle":          {"PATCH", `/pods/.*/status`, "PATCH", status, true},
		"a pattern that is tied down":      {"PATCH", `/pods/[^/]+$`, "PATCH", status, false},
		"a watch is a GET":                 {"GET", "/pods", "GET", pods + "?watch=true", true},
		"a watch is a watch":               {"watch", "/pods", "GET", pods + "?watch=true", true},
		"a watch may say 1":                {"watch", "/pods", "GET", pods + "?watch=1", true},
		"a list is no watch":               {"watch", "/pods", "GET", pods, false},
		"a watch is no list":               {"list", "/pods", "GET", pods + "?watch=true", false},
		"a list in a namespace":            {"list", "/pods", "GET", pods, true},
		"a list of all":                    {"list", "/pods", "GET", "/api/v1/pods", true},
		"a list in a group":                {"list", "/leases", "GET", "/apis/coordination.k8s.io/v1/namespaces/x/leases", true},
		"a list of namespaces":             {"list", "", "GET", "/api/v1/namespaces", true},
		"an object is no list":             {"list", "", "GET", pod, false},
		"a namespace is no list":           {"list", "", "GET", "/api/v1/namespaces/shop", false},
		"an object is a get":               {"get", "", "GET", pod, true},
		"health is a get":                  {"get", "", "GET", "/readyz", true},
		"the root is a get":                {"get", "", "GET", "/", true},
		"a create":                         {"create", "", "POST", pods, true},
		"an update":                        {"update", "", "PUT", status, true},
		"a patch":                          {"patch", "", "PATCH", status, true},
		"a delete":                         {"delete", "", "DELETE", pod, true},
		"a delete of many":                 {"deletecollection", "", "DELETE", pods, true},
		"a delete of many is not a delete": {"delete", "", "DELETE", pods, false},
		"anything":                         {"*", "^/api/", "PUT", status, true},
		"the query is not the path":        {"*", "watch", "GET", pods + "?watch=true", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			rule := fault.On(test.verb, test.path).Reply(http.StatusServiceUnavailable)
			w.faults.Add(rule)
			if test.want || !strings.Contains(test.url, "watch=true") {
				w.try(test.method, test.url)
			}
			if got := rule.Fired() == 1; got != test.want {
				t.Fatalf("On(%q, %q) selects %s %s: %v, want %v", test.verb, test.path, test.method, test.url, got, test.want)
			}
		})
	}
}

func TestWhereNarrowsASelection(t *testing.T) {
	w := newWorld(t)
	of := func(word string) func(*http.Request) bool {
		return func(req *http.Request) bool { return strings.Contains(req.URL.RawQuery, word) }
	}
	rule := fault.On("list", "").Where(of("limit")).Where(of("continue")).Reply(http.StatusGone)
	w.faults.Add(rule)
	w.try(http.MethodGet, pods)
	w.try(http.MethodGet, pods+"?limit=5")
	w.try(http.MethodGet, pods+"?limit=5&continue=x")
	if rule.Fired() != 1 {
		t.Fatalf("fired %d times, want once", rule.Fired())
	}
}

func TestAnImpossibleSelectionPanics(t *testing.T) {
	for name, on := range map[string]func(){
		"a misspelt verb": func() { fault.On("Watch", "") },
		"a bad pattern":   func() { fault.On("GET", "(") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("it was accepted and would never have fired")
				}
			}()
			on()
		})
	}
}

func TestARuleFiresAsOftenAsItSays(t *testing.T) {
	tests := map[string]struct {
		narrow func(fault.Selector) fault.Selector
		want   string // f: faulty, .: healthy
	}{
		"always":            {func(s fault.Selector) fault.Selector { return s }, "ffffff"},
		"the first two":     {func(s fault.Selector) fault.Selector { return s.Times(2) }, "ff...."},
		"never":             {func(s fault.Selector) fault.Selector { return s.Times(0) }, "......"},
		"the third":         {func(s fault.Selector) fault.Selector { return s.Nth(3) }, "..f..."},
		"from the third on": {func(s fault.Selector) fault.Selector { return s.After(2) }, "..ffff"},
		"two after one":     {func(s fault.Selector) fault.Selector { return s.After(1).Times(2) }, ".ff..."},
		"no chance":         {func(s fault.Selector) fault.Selector { return s.Probability(0, 7) }, "......"},
		"every chance":      {func(s fault.Selector) fault.Selector { return s.Probability(1, 7) }, "ffffff"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			rule := test.narrow(fault.On("GET", "/pods")).Reset()
			w.faults.Add(rule)
			var got strings.Builder
			for range len(test.want) {
				w.try(http.MethodGet, "/readyz")
				if _, err := w.get(pod); err != nil {
					got.WriteString("f")
				} else {
					got.WriteString(".")
				}
			}
			if got.String() != test.want || rule.Fired() != strings.Count(test.want, "f") {
				t.Fatalf("have %q and %d fired, want %q", got.String(), rule.Fired(), test.want)
			}
		})
	}
}

func TestChanceRepeatsItselfWithTheSameSeed(t *testing.T) {
	play := func(seed uint64) (faulty string) {
		w := newWorld(t)
		w.faults.Add(fault.On("GET", "").Probability(0.3, seed).Reset())
		for range 200 {
			if _, err := w.get(pod); err != nil {
				faulty += "f"
			} else {
				faulty += "."
			}
		}
		return faulty
	}
	first := play(1)
	if n := strings.Count(first, "f"); n < 30 || n > 90 {
		t.Errorf("%d of 200 requests failed at a chance of 0.3", n)
	}
	if play(1) != first {
		t.Error("the same seed gave other faults")
	}
	if play(2) == first {
		t.Error("another seed gave the same faults")
	}
}

func TestARemovedRuleNoLongerFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rule := fault.On("GET", "").Reset()
		remove := w.faults.Add(rule)
		w.try(http.MethodGet, pod)
		remove()
		remove()
		if _, err := w.get(pod); err != nil || rule.Fired() != 1 {
			t.Fatalf("after its removal: %v, fired %d times", err, rule.Fired())
		}
		w.faults.Add(rule)
		if _, err := w.get(pod); err == nil || rule.Fired() != 2 {
			t.Fatalf("added again: %v, fired %d times", err, rule.Fired())
		}
	})
}

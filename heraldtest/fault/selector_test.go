package fault_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/heraldnode/herald/heraldtest/fault"
)

func TestSelector_On(t *testing.T) {
	tests := map[string]struct {
		verb, path  string
		method, url string
		want        bool
	}{
		"method":                         {"PATCH", "", "PATCH", status, true},
		"other method":                   {"PATCH", "", "PUT", status, false},
		"unanchored path":                {"PATCH", `/pods/.*/status`, "PATCH", status, true},
		"anchored path":                  {"PATCH", `/pods/[^/]+$`, "PATCH", status, false},
		"GET includes watch":             {"GET", "/pods", "GET", pods + "?watch=true", true},
		"watch":                          {"watch", "/pods", "GET", pods + "?watch=true", true},
		"watch=1":                        {"watch", "/pods", "GET", pods + "?watch=1", true},
		"list is not watch":              {"watch", "/pods", "GET", pods, false},
		"watch is not list":              {"list", "/pods", "GET", pods + "?watch=true", false},
		"list in namespace":              {"list", "/pods", "GET", pods, true},
		"list of all namespaces":         {"list", "/pods", "GET", "/api/v1/pods", true},
		"list in API group":              {"list", "/leases", "GET", "/apis/coordination.k8s.io/v1/namespaces/x/leases", true},
		"list of namespaces":             {"list", "", "GET", "/api/v1/namespaces", true},
		"object is not list":             {"list", "", "GET", pod, false},
		"namespace is not list":          {"list", "", "GET", "/api/v1/namespaces/shop", false},
		"get":                            {"get", "", "GET", pod, true},
		"get removeth":                   {"get", "", "GET", "/readyz", true},
		"get root":                       {"get", "", "GET", "/", true},
		"create":                         {"create", "", "POST", pods, true},
		"update":                         {"update", "", "PUT", status, true},
		"patch":                          {"patch", "", "PATCH", status, true},
		"delete":                         {"delete", "", "DELETE", pod, true},
		"deletecollection":               {"deletecollection", "", "DELETE", pods, true},
		"deletecollection is not delete": {"delete", "", "DELETE", pods, false},
		"any verb":                       {"*", "^/api/", "PUT", status, true},
		"query is not path":              {"*", "watch", "GET", pods + "?watch=true", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			rule := fault.On(test.verb, test.path).Reply(http.StatusServiceUnavailable)
			h.faults.Add(rule)
			if test.want || !strings.Contains(test.url, "watch=true") {
				h.try(test.method, test.url)
			}
			if got := rule.Fired() == 1; got != test.want {
				t.Fatalf("On(%q, %q) selects %s %s: got %v, want %v", test.verb, test.path, test.method, test.url, got, test.want)
			}
		})
	}
}

func TestSelector_Where(t *testing.T) {
	h := newHarness(t)
	contains := func(word string) func(*http.Request) bool {
		return func(req *http.Request) bool { return strings.Contains(req.URL.RawQuery, word) }
	}
	rule := fault.On("list", "").Where(contains("limit")).Where(contains("continue")).Reply(http.StatusGone)
	h.faults.Add(rule)
	h.try(http.MethodGet, pods)
	h.try(http.MethodGet, pods+"?limit=5")
	h.try(http.MethodGet, pods+"?limit=5&continue=x")
	if rule.Fired() != 1 {
		t.Fatalf("got %d faults, want 1", rule.Fired())
	}
}

func TestOn_Panics(t *testing.T) {
	for name, on := range map[string]func(){
		"unknown verb": func() { fault.On("Watch", "") },
		"invalid path": func() { fault.On("GET", "(") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("On did not panic")
				}
			}()
			on()
		})
	}
}

func TestSelector_Limits(t *testing.T) {
	tests := map[string]struct {
		narrow func(fault.Selector) fault.Selector
		want   string // f: fault, .: no fault
	}{
		"always":            {func(s fault.Selector) fault.Selector { return s }, "ffffff"},
		"first two":         {func(s fault.Selector) fault.Selector { return s.Times(2) }, "ff...."},
		"never":             {func(s fault.Selector) fault.Selector { return s.Times(0) }, "......"},
		"third":             {func(s fault.Selector) fault.Selector { return s.Nth(3) }, "..f..."},
		"from the third on": {func(s fault.Selector) fault.Selector { return s.After(2) }, "..ffff"},
		"two after one":     {func(s fault.Selector) fault.Selector { return s.After(1).Times(2) }, ".ff..."},
		"probability 0":     {func(s fault.Selector) fault.Selector { return s.Probability(0, 7) }, "......"},
		"probability 1":     {func(s fault.Selector) fault.Selector { return s.Probability(1, 7) }, "ffffff"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			rule := test.narrow(fault.On("GET", "/pods")).Reset()
			h.faults.Add(rule)
			var got strings.Builder
			for range len(test.want) {
				h.try(http.MethodGet, "/readyz")
				if _, err := h.get(pod); err != nil {
					got.WriteString("f")
				} else {
					got.WriteString(".")
				}
			}
			if got.String() != test.want || rule.Fired() != strings.Count(test.want, "f") {
				t.Fatalf("got %q, %d faults, want %q", got.String(), rule.Fired(), test.want)
			}
		})
	}
}

func TestSelector_ProbabilitySeed(t *testing.T) {
	run := func(seed uint64) (faults string) {
		h := newHarness(t)
		h.faults.Add(fault.On("GET", "").Probability(0.3, seed).Reset())
		for range 200 {
			if _, err := h.get(pod); err != nil {
				faults += "f"
			} else {
				faults += "."
			}
		}
		return faults
	}
	first := run(1)
	if n := strings.Count(first, "f"); n < 30 || n > 90 {
		t.Errorf("got %d of 200 faults with probability 0.3", n)
	}
	if run(1) != first {
		t.Error("same seed: got different faults")
	}
	if run(2) == first {
		t.Error("different seed: got the same faults")
	}
}

func TestInjector_RemoveRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		rule := fault.On("GET", "").Reset()
		remove := h.faults.Add(rule)
		h.try(http.MethodGet, pod)
		remove()
		remove()
		if _, err := h.get(pod); err != nil || rule.Fired() != 1 {
			t.Fatalf("after removal: got %v, %d faults, want nil, 1", err, rule.Fired())
		}
		h.faults.Add(rule)
		if _, err := h.get(pod); err == nil || rule.Fired() != 2 {
			t.Fatalf("added again: got %v, %d faults, want an error, 2", err, rule.Fired())
		}
	})
}

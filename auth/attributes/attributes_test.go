package attributes_test

import (
	"slices"
	"testing"

	"github.com/heraldnode/herald/auth/attributes"
)

func TestSRV20_Verbs(t *testing.T) {
	for method, want := range map[string]string{
		"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete",
		"HEAD": "", "OPTIONS": "", "CONNECT": "", "": "", "get": "",
	} {
		if got := attributes.For(method, "/pods").Verb; got != want {
			t.Errorf("%s: got %q, want %q", method, got, want)
		}
	}
}

func TestSRV21_Subresources(t *testing.T) {
	for path, want := range map[string][]string{
		"/pods": {"pods", "proxy"}, "/pods/": {"pods", "proxy"}, "/runningpods/": {"pods", "proxy"}, "/runningpods": {"pods", "proxy"},
		"/healthz": {"healthz", "proxy"}, "/healthz/syncloop": {"healthz", "proxy"}, "/configz": {"configz", "proxy"},
		"/stats/summary": {"stats"}, "/metrics": {"metrics"}, "/metrics/cadvisor": {"metrics"}, "/logs/": {"log"}, "/logs/a/b": {"log"},
		"/checkpoint/a/b/c": {"checkpoint"}, "/statusz": {"statusz"}, "/flagz": {"configz"},
		"/containerLogs/a/b/c": {"proxy"}, "/exec/a/b/c": {"proxy"}, "/debug/pprof/": {"proxy"},
		// Only whole segments count.
		"/podsx": {"proxy"}, "/metricsx/cadvisor": {"proxy"}, "/Pods": {"proxy"}, "//pods": {"proxy"}, "pods": {"proxy"}, "": {"proxy"}, "/": {"proxy"},
	} {
		if got := attributes.For("GET", path).Subresources; !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", path, got, want)
		}
	}
}

func TestSRV23_RunningCodeIsCreate(t *testing.T) {
	for _, path := range []string{
		"/exec/a/b/c", "/attach/a/b/c", "/run/a/b/c", "/portForward/a/b", "/exec", "/exec/", "//exec/a/b/c", "/pods/../exec/a/b/c", "/./run/a/b/c",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "HEAD", ""} {
			if got := attributes.For(method, path).Verb; got != "create" {
				t.Errorf("%s %s: got verb %q, want create", method, path, got)
			}
		}
	}
	for _, path := range []string{"/runningpods/", "/executor", "/portforward/a/b", "/containerLogs/exec/run/attach"} {
		if got := attributes.For("GET", path).Verb; got != "get" {
			t.Errorf("%s: got verb %q, want get", path, got)
		}
	}
}

// TestLists compares the lists of all verbs and subresources with the answers.
func TestLists(t *testing.T) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if verb := attributes.For(method, "/").Verb; !slices.Contains(attributes.Verbs(), verb) {
			t.Errorf("verb %q is missing", verb)
		}
	}
	seen := map[string]bool{}
	for _, path := range []string{"/", "/pods", "/healthz", "/configz", "/stats", "/metrics", "/logs", "/checkpoint", "/statusz"} {
		for _, subresource := range attributes.For("GET", path).Subresources {
			seen[subresource] = true
		}
	}
	for _, subresource := range attributes.Subresources() {
		if !seen[subresource] {
			t.Errorf("subresource %q is never asked for", subresource)
		}
	}
	if len(seen) != len(attributes.Subresources()) {
		t.Errorf("got %d subresources, listed are %d", len(seen), len(attributes.Subresources()))
	}
}

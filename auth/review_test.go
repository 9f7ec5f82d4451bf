package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heraldnode/herald/auth"
)

var reviews = schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}

// expectCode sends a request and compares the status code.
func expectCode(t *testing.T, handler http.Handler, request, token string, want int) {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	if code, body := send(handler, method, path, token); code != want {
		t.Errorf("%s with token %q: got %d %q, want %d", request, token, code, body, want)
	}
}

// TestSRV12_TokenCache checks that yes and no are kept for two minutes.
func TestSRV12_TokenCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
		for range 3 {
			expectCode(t, handler, "GET /pods", "alice", 200)
			expectCode(t, handler, "GET /pods", "mallory", 401)
			time.Sleep(59 * time.Second)
		}
		if tokens, _ := server.asked(); !slices.Equal(tokens, []string{"alice", "mallory"}) {
			t.Errorf("within two minutes: asked %v", tokens)
		}
		delete(server.users, "alice")
		time.Sleep(3 * time.Second)
		expectCode(t, handler, "GET /pods", "alice", 401)
	})
}

// TestSRV12_ErrorsAreNotKept covers errors of the request and those in the answer.
func TestSRV12_ErrorsAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.status = "the issuer cannot be reached"
		handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
		expectCode(t, handler, "GET /pods", "late", 401)
		server.users["late"] = authenticationv1.UserInfo{Username: "alice"}
		expectCode(t, handler, "GET /pods", "late", 200)

		server.err = func(int) error { return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED} }
		expectCode(t, handler, "GET /pods", "alice", 401)
		server.err = nil
		expectCode(t, handler, "GET /pods", "alice", 200)
	})
}

// TestSRV12_Retries checks how often and how long the API server is asked.
func TestSRV12_Retries(t *testing.T) {
	const s = time.Second
	tests := map[string]struct {
		err      error
		tries    int
		min, max time.Duration
	}{
		"500":           {apierrors.NewInternalError(errors.New("oops")), 5, 4 * s, 5 * s},
		"503":           {apierrors.NewServiceUnavailable("starting"), 5, 4 * s, 5 * s},
		"504":           {apierrors.NewTimeoutError("slow", 0), 5, 4 * s, 5 * s},
		"429":           {apierrors.NewTooManyRequestsError("busy"), 5, 4 * s, 5 * s},
		"reset":         {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, 5, 4 * s, 5 * s},
		"429, wait 3 s": {apierrors.NewTooManyRequests("busy", 3), 5, 12 * s, 13 * s},
		"429, wait 9 s": {apierrors.NewTooManyRequests("busy", 9), 4, 27 * s, 28 * s},
		"429, too long": {apierrors.NewTooManyRequests("busy", 31), 1, 0, 0},
		"refused":       {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 1, 0, 0},
		"forbidden":     {apierrors.NewForbidden(reviews, "", errors.New("no")), 1, 0, 0},
		"unauthorized":  {apierrors.NewUnauthorized("expired"), 1, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				server.err = func(int) error { return fmt.Errorf("create token review: %w", test.err) }
				handler := newHandler(t, auth.Config{API: server, ReviewTokens: true, Anonymous: true})
				start := time.Now()
				expectCode(t, handler, "GET /pods", "alice", 401)
				took := time.Since(start)
				if tokens, _ := server.asked(); len(tokens) != test.tries || took < test.min || took > test.max {
					t.Errorf("tokens: %d tries in %v, want %d in %v to %v", len(tokens), took, test.tries, test.min, test.max)
				}
				start = time.Now()
				expectCode(t, handler, "GET /metrics", "", 500)
				took = time.Since(start)
				if _, accesses := server.asked(); len(accesses) != test.tries || took < test.min || took > test.max {
					t.Errorf("access: %d tries in %v, want %d in %v to %v", len(accesses), took, test.tries, test.min, test.max)
				}
			})
		})
	}
}

// TestSRV12_RetrySucceeds checks that a failure that passes is not noticed by the client.
func TestSRV12_RetrySucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.err = func(try int) error {
			if try <= 4 {
				return apierrors.NewInternalError(errors.New("starting"))
			}
			return nil
		}
		expectCode(t, newHandler(t, auth.Config{API: server, ReviewTokens: true}), "GET /pods", "alice", 200)
	})
}

// TestSRV12_APIServerHangs checks that the client gets an answer after 30 seconds at the latest.
func TestSRV12_APIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.block = make(chan struct{})
		handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
		start := time.Now()
		expectCode(t, handler, "GET /pods", "alice", 401)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		close(server.block)
		expectCode(t, handler, "GET /pods", "alice", 200)
	})
}

// TestSRV25_AccessCache checks that a yes is kept for five minutes and a no for 30 seconds, whatever the path.
func TestSRV25_AccessCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.allowed = map[string]bool{"alice get metrics": true}
		handler := newHandler(t, auth.Config{API: server, ReviewTokens: true, TokenTTL: time.Hour})
		expectCode(t, handler, "GET /metrics", "alice", 200)
		expectCode(t, handler, "GET /metrics/cadvisor", "alice", 200)
		expectCode(t, handler, "GET /stats/summary", "alice", 403)
		expectCode(t, handler, "GET /stats/", "alice", 403)
		if _, accesses := server.asked(); !slices.Equal(accesses, []string{"alice get metrics", "alice get stats"}) {
			t.Errorf("asked %v", accesses)
		}
		server.allowed = map[string]bool{"alice get stats": true}
		time.Sleep(29 * time.Second)
		expectCode(t, handler, "GET /stats/summary", "alice", 403)
		time.Sleep(2 * time.Second)
		expectCode(t, handler, "GET /stats/summary", "alice", 200)
		time.Sleep(4*time.Minute + 28*time.Second)
		expectCode(t, handler, "GET /metrics", "alice", 200)
		time.Sleep(2 * time.Second)
		expectCode(t, handler, "GET /metrics", "alice", 403)
		// Another verb is another question.
		expectCode(t, handler, "POST /stats/summary", "alice", 403)
	})
}

// TestSRV25_KeyIsTheWholeUser checks that two users with one name do not share answers.
func TestSRV25_KeyIsTheWholeUser(t *testing.T) {
	server := newAPIServer()
	variants := map[string]authenticationv1.UserInfo{
		"name": {Username: "a"}, "uid": {Username: "a", UID: "1"}, "groups": {Username: "a", Groups: []string{"g", "h"}},
		"one group": {Username: "a", Groups: []string{"g,h"}}, "extra": {Username: "a", Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
		"extra value": {Username: "a", Extra: map[string]authenticationv1.ExtraValue{"k": {"w"}}},
	}
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
	for range 2 {
		for name, user := range variants {
			token := strings.ReplaceAll(name, " ", "-")
			server.users[token] = user
			expectCode(t, handler, "GET /metrics", token, 403)
		}
	}
	if _, accesses := server.asked(); len(accesses) != len(variants) {
		t.Errorf("got %d reviews of %d users", len(accesses), len(variants))
	}
}

// TestSRV47_OneRequestPerQuestion checks that concurrent requests with one token share a review.
func TestSRV47_OneRequestPerQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.block = make(chan struct{})
		handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { expectCode(t, handler, "GET /pods", "alice", 200) })
		}
		synctest.Wait()
		close(server.block)
		group.Wait()
		if tokens, accesses := server.asked(); len(tokens) != 1 || len(accesses) != 1 {
			t.Errorf("asked %v %v", tokens, accesses)
		}
	})
}

// TestSRV47_ClientLeaves checks that a review ends when the last client that waits for it leaves, and not before.
func TestSRV47_ClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		server.block = make(chan struct{})
		handler := newHandler(t, auth.Config{API: server, ReviewTokens: true})
		var group sync.WaitGroup
		ask := func(want int) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			group.Go(func() {
				if code, _ := sendRequest(handler, newRequest("GET", "/pods", "alice").WithContext(ctx)); code != want {
					t.Errorf("got %d, want %d", code, want)
				}
			})
			synctest.Wait()
			return cancel
		}
		leaveFirst, leaveSecond := ask(401), ask(401)
		leaveFirst()
		synctest.Wait()
		if server.cancelled != 0 {
			t.Error("the review ended although a client waits for it")
		}
		leaveSecond()
		synctest.Wait()
		if server.cancelled != 1 {
			t.Error("the review goes on although nobody waits for it")
		}
		defer ask(200)() // a new review
		close(server.block)
		group.Wait()
		if tokens, _ := server.asked(); len(tokens) != 2 {
			t.Errorf("got %d reviews, want 2", len(tokens))
		}
	})
}

// TestSRV47_Flood checks that many unknown tokens at once neither flood the API server nor keep certificates and cached tokens from
// being served.
func TestSRV47_Flood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer()
		handler := newHandler(t, auth.Config{API: server, ReviewTokens: true, Anonymous: true})
		expectCode(t, handler, "GET /pods", "alice", 200)
		server.asked()
		server.block = make(chan struct{})
		var group sync.WaitGroup
		for i := range 500 {
			group.Go(func() { expectCode(t, handler, "GET /pods", fmt.Sprintf("unknown-%d", i), 401) })
		}
		synctest.Wait()
		if tokens, _ := server.asked(); len(tokens) != 16 {
			t.Errorf("got %d requests at once, want 16", len(tokens))
		}
		expectCode(t, handler, "GET /pods", "alice", 200)
		close(server.block)
		server.mu.Lock()
		server.block = nil
		server.mu.Unlock()
		group.Wait()
		expectCode(t, handler, "GET /healthz", "", 200)
	})
}

// TestSRV47_Bounded checks that the least recently used token is forgotten, and the one in use is not.
func TestSRV47_Bounded(t *testing.T) {
	server := newAPIServer()
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true, TokenTTL: time.Hour})
	expectCode(t, handler, "GET /pods", "root", 200)
	for i := range 8200 {
		expectCode(t, handler, "GET /pods", fmt.Sprintf("unknown-%d", i), 401)
		if i%1000 == 0 {
			expectCode(t, handler, "GET /pods", "root", 200)
		}
	}
	server.asked()
	expectCode(t, handler, "GET /pods", "root", 200)
	expectCode(t, handler, "GET /pods", "unknown-0", 401)
	expectCode(t, handler, "GET /pods", "unknown-8199", 401)
	if tokens, _ := server.asked(); !slices.Equal(tokens, []string{"unknown-0"}) {
		t.Errorf("asked again about %v", tokens)
	}
}

func TestMetrics(t *testing.T) {
	server, registry := newAPIServer(), prometheus.NewRegistry()
	handler := newHandler(t, auth.Config{API: server, ReviewTokens: true, Metrics: registry})
	expectCode(t, handler, "GET /pods", "alice", 200)
	expectCode(t, handler, "GET /pods", "alice", 200)
	server.err = func(int) error { return apierrors.NewForbidden(reviews, "", errors.New("no")) }
	expectCode(t, handler, "GET /pods", "root", 401)
	server.err = func(int) error { return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED} }
	expectCode(t, handler, "GET /metrics", "alice", 500)
	want := `
# HELP apiserver_delegated_authn_request_total Number of token reviews sent to the API server, by status code.
# TYPE apiserver_delegated_authn_request_total counter
apiserver_delegated_authn_request_total{code="201"} 1
apiserver_delegated_authn_request_total{code="403"} 1
# HELP apiserver_delegated_authz_request_total Number of access reviews sent to the API server, by status code.
# TYPE apiserver_delegated_authz_request_total counter
apiserver_delegated_authz_request_total{code="201"} 1
apiserver_delegated_authz_request_total{code="<error>"} 1
# HELP authentication_token_cache_request_total Number of tokens looked up in the cache, by hit and miss.
# TYPE authentication_token_cache_request_total counter
authentication_token_cache_request_total{status="hit"} 2
authentication_token_cache_request_total{status="miss"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "apiserver_delegated_authn_request_total",
		"apiserver_delegated_authz_request_total", "authentication_token_cache_request_total"); err != nil {
		t.Error(err)
	}
	if _, err := auth.New(auth.Config{NodeName: "n", Metrics: registry}); err == nil {
		t.Error("metrics were registered twice")
	}
}

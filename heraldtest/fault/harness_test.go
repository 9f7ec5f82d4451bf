package fault_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/heraldnode/herald/heraldtest/fault"
)

const (
	pods   = "/api/v1/namespaces/shop/pods"
	pod    = pods + "/web"
	status = pod + "/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeServer records requests, numbers its responses and streams to watchers.
type fakeServer struct {
	mu       sync.Mutex // guards all fields below
	executed []string   // "METHOD path body"
	watchers []*io.PipeWriter
}

func (s *fakeServer) RoundTrip(req *http.Request) (*http.Response, error) {
	var content []byte
	if req.Body != nil {
		content, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.executed = append(s.executed, strings.TrimSpace(fmt.Sprintf("%s %s %s", req.Method, req.URL.Path, content)))
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req}
	if req.URL.Query().Get("watch") == "true" {
		r, w := io.Pipe()
		s.watchers = append(s.watchers, w)
		resp.Body = r
		return resp, nil
	}
	resp.Body = io.NopCloser(strings.NewReader(fmt.Sprintf("response %d", len(s.executed))))
	return resp, nil
}

func (s *fakeServer) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.executed, ", ")
}

// send streams a line to the i-th watcher.
func (s *fakeServer) send(t *testing.T, i int, line string) {
	t.Helper()
	s.mu.Lock()
	w := s.watchers[i]
	s.mu.Unlock()
	if _, err := io.WriteString(w, line); err != nil {
		t.Errorf("watcher %d: %v", i, err)
	}
}

// requestBody records whether it was closed.
type requestBody struct {
	io.Reader
	mu     sync.Mutex // guards closed
	closed bool
}

func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *requestBody) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// harness is a client, an injector and a server.
type harness struct {
	t      *testing.T
	faults *fault.Injector
	server *fakeServer
	client http.RoundTripper
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{t: t, faults: fault.NewInjector(), server: &fakeServer{}}
	h.client = h.faults.Wrap(h.server)
	return h
}

// call sends a request and reads the response. It checks that the transport closed the request body.
func (h *harness) call(ctx context.Context, method, url, content string) (string, error) {
	h.t.Helper()
	body := &requestBody{Reader: strings.NewReader(content)}
	req, err := http.NewRequestWithContext(ctx, method, "https://api"+url, body)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := h.client.RoundTrip(req)
	if !body.isClosed() {
		h.t.Errorf("%s %s: request body not closed", method, url)
	}
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return string(read), err
}

func (h *harness) get(url string) (string, error) {
	h.t.Helper()
	return h.call(h.t.Context(), http.MethodGet, url, "")
}

// try sends a request and ignores the outcome.
func (h *harness) try(method, url string) {
	h.t.Helper()
	if _, err := h.call(h.t.Context(), method, url, "{}"); err != nil {
		h.t.Logf("%s %s: %v", method, url, err)
	}
}

// watch opens a watch.
func (h *harness) watch(ctx context.Context, path string) io.ReadCloser {
	h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api"+path+"?watch=true", http.NoBody)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := h.client.RoundTrip(req)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.Body
}

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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the API server of these tests: it executes what it gets, numbers its answers and streams to watchers.
type server struct {
	mu       sync.Mutex // guards what follows
	executed []string   // "METHOD path body"
	watchers []*io.PipeWriter
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
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
	resp.Body = io.NopCloser(strings.NewReader(fmt.Sprintf("answer %d", len(s.executed))))
	return resp, nil
}

func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.executed, ", ")
}

// send streams a line to the i-th watcher.
func (s *server) send(t *testing.T, i int, line string) {
	t.Helper()
	s.mu.Lock()
	w := s.watchers[i]
	s.mu.Unlock()
	if _, err := io.WriteString(w, line); err != nil {
		t.Errorf("watcher %d: %v", i, err)
	}
}

// body is a request's body that knows whether it was closed.
type body struct {
	io.Reader
	mu     sync.Mutex // guards closed
	closed bool
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *body) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// world is a script, the server behind it and the client in front of it.
type world struct {
	t      *testing.T
	faults *fault.Injector
	server *server
	client http.RoundTripper
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, faults: fault.NewInjector(), server: &server{}}
	w.client = w.faults.Wrap(w.server)
	return w
}

// call makes a request and reads its answer; every test checks a transport's duty to close what it was given.
func (w *world) call(ctx context.Context, method, url, content string) (string, error) {
	w.t.Helper()
	sent := &body{Reader: strings.NewReader(content)}
	req, err := http.NewRequestWithContext(ctx, method, "https://api"+url, sent)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.client.RoundTrip(req)
	if !sent.isClosed() {
		w.t.Errorf("%s %s: the request's body was left open", method, url)
	}
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return string(read), err
}

func (w *world) get(url string) (string, error) {
	w.t.Helper()
	return w.call(w.t.Context(), http.MethodGet, url, "")
}

// try makes a request of which only the traces matter.
func (w *world) try(method, url string) {
	w.t.Helper()
	if _, err := w.call(w.t.Context(), method, url, "{}"); err != nil {
		w.t.Logf("%s %s: %v", method, url, err)
	}
}

// watch opens a stream.
func (w *world) watch(ctx context.Context, path string) io.ReadCloser {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api"+path+"?watch=true", http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.client.RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Body
}

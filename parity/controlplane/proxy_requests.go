package controlplane

import (
	"net/http"
	"sync"
)

// requests is a handler that can be waited for, which http.Server's Close does not do.
type requests struct {
	next http.Handler

	mu     sync.Mutex // guards closed, and that running grows only before it
	closed bool
	// running are the requests under way.
	running sync.WaitGroup
}

func (r *requests) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.begin() {
		panic(http.ErrAbortHandler)
	}
	defer r.running.Done()
	r.next.ServeHTTP(w, req)
}

func (r *requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running.Add(1)
	return true
}

// close lets no request begin any more, and waits for those that have.
func (r *requests) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}

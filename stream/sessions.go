package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/heraldnode/herald/podid"
)

// Causes of a stream that the node ends.
var (
	errShutdown   = errors.New("the node agent is shutting down")
	errTerminated = errors.New("the pod has been terminated")
	errIdle       = errors.New("the stream was idle for too long")
	errClientLeft = errors.New("the client has left")
)

// terminatedGrace is how long the streams of a terminated pod may stay open. The runtime reports the exit codes of their commands
// meanwhile.
const terminatedGrace = 10 * time.Second

// sessions limits the open streams, and ends them.
type sessions struct {
	maxTotal, maxPerPod int

	mu       sync.Mutex // guards the fields below
	isClosed bool       // no stream may begin any more
	total    int
	byPod    map[podid.UID]map[*session]bool
	running  sync.WaitGroup
}

// session is an open stream.
type session struct {
	end context.CancelCauseFunc
}

func newSessions(config Config) *sessions {
	return &sessions{
		maxTotal: config.MaxStreams, maxPerPod: config.MaxStreamsPerPod, byPod: map[podid.UID]map[*session]bool{},
	}
}

// begin counts a stream of the pod. Its context ends with ctx, when the node ends the stream, and when the caller calls end, which it
// must. The cause of the context is why.
func (s *sessions) begin(ctx context.Context, uid podid.UID) (_ context.Context, end context.CancelCauseFunc, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosed:
		return nil, nil, &Error{Code: http.StatusServiceUnavailable, Message: errShutdown.Error()}
	case s.total >= s.maxTotal:
		return nil, nil, tooMany("this node", s.maxTotal)
	case len(s.byPod[uid]) >= s.maxPerPod:
		return nil, nil, tooMany("this pod", s.maxPerPod)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	current := &session{end: cancel}
	if s.byPod[uid] == nil {
		s.byPod[uid] = map[*session]bool{}
	}
	s.byPod[uid][current] = true
	s.total++
	s.running.Add(1)
	return ctx, func(cause error) {
		cancel(cause)
		s.remove(uid, current)
	}, nil
}

func tooMany(of string, limit int) error {
	return &Error{
		Code: http.StatusTooManyRequests, RetryAfter: time.Second,
		Message: fmt.Sprintf("too many streams: %s has %d open, which is its limit", of, limit),
	}
}

func (s *sessions) remove(uid podid.UID, current *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.byPod[uid][current] {
		return
	}
	delete(s.byPod[uid], current)
	if len(s.byPod[uid]) == 0 {
		delete(s.byPod, uid)
	}
	s.total--
	s.running.Done()
}

// ofPod returns the open streams of a pod.
func (s *sessions) ofPod(uid podid.UID) []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make([]*session, 0, len(s.byPod[uid]))
	for current := range s.byPod[uid] {
		open = append(open, current)
	}
	return open
}

// close ends all streams. None can begin afterwards.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed = true
	for _, open := range s.byPod {
		for current := range open {
			current.end(errShutdown)
		}
	}
}

// PodTerminated ends the streams of a pod whose containers have all stopped. A command in a shared PID namespace, or a client that does not
// notice the end, would keep them open (STR-17). It does not block: the streams have some seconds to end by themselves.
func (p *Proxy) PodTerminated(uid podid.UID) {
	open := p.sessions.ofPod(uid)
	if len(open) == 0 {
		return
	}
	time.AfterFunc(p.terminatedGrace, func() {
		for _, current := range open {
			current.end(errTerminated) // no effect on one that has ended
		}
	})
}

// Shutdown ends all streams and waits until they have ended, or until ctx ends. Clients that speak version 4 or 5 of the protocol receive
// a status first, so that they do not take the end for the success of the command (STR-14, SRV-9).
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.sessions.close()
	ended := make(chan struct{})
	go func() {
		p.sessions.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stream: wait for streams to end: %w", ctx.Err())
	}
}

// Open returns the number of open streams.
func (p *Proxy) Open() int {
	p.sessions.mu.Lock()
	defer p.sessions.mu.Unlock()
	return p.sessions.total
}

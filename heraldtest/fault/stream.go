package fault

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// Cut breaks the connection under a response: one that is open now ends at once, one that begins later ends right after its
// header. A client sees io.ErrUnexpectedEOF.
func (s Selector) Cut() *Rule { return s.CutAfter(0) }

// CutAfter breaks the connection under a response once n bytes of its body were delivered. A response that is already
// longer ends at once.
func (s Selector) CutAfter(n int64) *Rule {
	return s.stream(func(stream *stream, _ *rule) { stream.cutAfter(n) })
}

// Stall stops a response without closing it: its client gets no further byte, no end and no error until the rule is
// removed, the request's context ends or the client closes the body.
func (s Selector) Stall() *Rule { return s.stream((*stream).stall) }

// stream is the body of a response, read by the client and disturbed by rules.
//
// Read and Close are the client's, as usual for a body; cutAfter and stall may be called by any goroutine at any time.
type stream struct {
	x      *exchange
	req    *http.Request
	body   io.ReadCloser
	shut   func() error  // closes body, once
	leave  func()        // closes closed, once
	closed chan struct{} // the client is done with the body
	snap   func()        // closes cut, once
	cut    chan struct{} // as many bytes as limit were delivered
	opened int64         // the request's place among all

	mu        sync.Mutex // guards what follows
	delivered int64
	limit     int64 // negative: none
	stalls    []*rule
}

func newStream(x *exchange, req *http.Request, body io.ReadCloser) *stream {
	closed, cut := make(chan struct{}), make(chan struct{})
	return &stream{
		x: x, req: req, body: body, shut: sync.OnceValue(body.Close),
		leave: sync.OnceFunc(func() { close(closed) }), closed: closed,
		snap: sync.OnceFunc(func() { close(cut) }), cut: cut,
		opened: x.entry.began, limit: -1,
	}
}

// meet lets a rule disturb the stream, if it selects its request.
func (s *stream) meet(r *rule) {
	if r.claim(s.req) {
		r.disturb(s, r)
	}
}

func (s *stream) stall(by *rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalls = append(s.stalls, by)
}

func (s *stream) cutAfter(n int64) {
	s.mu.Lock()
	if s.limit < 0 || n < s.limit {
		s.limit = n
	}
	broken := s.brokenLocked()
	s.mu.Unlock()
	if broken {
		_ = s.shut() // wakes a reader
	}
}

// brokenLocked says, and makes known, whether the limit is reached.
func (s *stream) brokenLocked() bool {
	if s.limit < 0 || s.delivered < s.limit {
		return false
	}
	s.snap()
	return true
}

// Read delivers what the server sent, as far as the rules let it.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.read(p)
	if err != nil {
		s.end(err)
	}
	return n, err
}

func (s *stream) read(p []byte) (int, error) {
	if s.isCut() {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := s.body.Read(p)
	if failed := s.waitForStalls(); failed != nil {
		return 0, failed
	}
	return s.admit(n, err)
}

// waitForStalls returns when no rule stalls the stream, or with the error that ends the waiting.
func (s *stream) waitForStalls() error {
	for {
		stall := s.firstStall()
		if stall == nil {
			return nil
		}
		select {
		case <-stall.removed:
			s.forgetStall()
		case <-s.cut:
			return io.ErrUnexpectedEOF
		case <-s.closed:
			return http.ErrBodyReadAfterClose
		case <-s.req.Context().Done():
			return context.Cause(s.req.Context())
		}
	}
}

func (s *stream) firstStall() *rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stalls) == 0 {
		return nil
	}
	return s.stalls[0]
}

func (s *stream) forgetStall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalls = s.stalls[1:]
}

// admit counts n bytes as delivered, or as many as a cut allows.
func (s *stream) admit(n int, err error) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit >= 0 && s.delivered+int64(n) >= s.limit {
		n = int(max(0, s.limit-s.delivered))
		err = io.ErrUnexpectedEOF
	}
	s.delivered += int64(n)
	s.brokenLocked()
	return n, err
}

func (s *stream) isCut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.brokenLocked()
}

// Close ends the stream for the client.
func (s *stream) Close() error {
	s.leave()
	err := s.shut()
	s.end(nil)
	return err
}

// end notes the outcome that the client saw.
func (s *stream) end(err error) {
	s.x.script.closed(s)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.x.script.trace.end(s.x.entry, err)
}

package fault

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// Cut breaks the connection under a response: a response that is open ends at once, a later one ends after its header. The
// client gets io.ErrUnexpectedEOF.
func (s Selector) Cut() *Rule { return s.CutAfter(0) }

// CutAfter breaks the connection under a response after n bytes of its body. A response that has delivered more ends at
// once.
func (s Selector) CutAfter(n int64) *Rule {
	return s.streamRule(func(body *stream, _ *activeRule) { body.cutAfter(n) })
}

// Stall stops a response without closing it: the client gets no data and no error until the rule is removed, the request's
// context ends or the client closes the body.
func (s Selector) Stall() *Rule { return s.streamRule((*stream).stall) }

// stream is a response body that stream rules act on. Read and Close belong to the client, as for any body. The other
// methods are safe for concurrent use.
type stream struct {
	x          *exchange
	req        *http.Request
	body       io.ReadCloser
	closeBody  func() error  // closes body, once
	markClosed func()        // closes closed, once
	closed     chan struct{} // closed when the client closes the stream
	markCut    func()        // closes cut, once
	cut        chan struct{} // closed when limit bytes were delivered
	started    int64         // position of the request's start

	mu        sync.Mutex // guards all fields below
	delivered int64
	limit     int64 // negative: unlimited
	stalls    []*activeRule
}

func newStream(x *exchange, req *http.Request, body io.ReadCloser) *stream {
	closed, cut := make(chan struct{}), make(chan struct{})
	return &stream{
		x: x, req: req, body: body, closeBody: sync.OnceValue(body.Close),
		markClosed: sync.OnceFunc(func() { close(closed) }), closed: closed,
		markCut: sync.OnceFunc(func() { close(cut) }), cut: cut,
		started: x.record.startSeq, limit: -1,
	}
}

// apply applies the rule if it selects the stream's request.
func (s *stream) apply(rule *activeRule) {
	if rule.claim(s.req) {
		rule.onStream(s, rule)
	}
}

func (s *stream) stall(rule *activeRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalls = append(s.stalls, rule)
}

func (s *stream) cutAfter(n int64) {
	s.mu.Lock()
	if s.limit < 0 || n < s.limit {
		s.limit = n
	}
	cut := s.checkCutLocked()
	s.mu.Unlock()
	if cut {
		_ = s.closeBody() // unblocks Read
	}
}

// checkCutLocked reports whether the limit is reached, and closes cut if so.
func (s *stream) checkCutLocked() bool {
	if s.limit < 0 || s.delivered < s.limit {
		return false
	}
	s.markCut()
	return true
}

// Read implements [io.Reader].
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
	if stallErr := s.waitForStalls(); stallErr != nil {
		return 0, stallErr
	}
	return s.deliver(n, err)
}

func (s *stream) isCut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkCutLocked()
}

// waitForStalls returns nil when no rule stalls the stream, or the error that ends the wait.
func (s *stream) waitForStalls() error {
	for {
		stall := s.firstStall()
		if stall == nil {
			return nil
		}
		select {
		case <-stall.removed:
			s.removeFirstStall()
		case <-s.cut:
			return io.ErrUnexpectedEOF
		case <-s.closed:
			return http.ErrBodyReadAfterClose
		case <-s.req.Context().Done():
			return context.Cause(s.req.Context())
		}
	}
}

func (s *stream) firstStall() *activeRule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stalls) == 0 {
		return nil
	}
	return s.stalls[0]
}

func (s *stream) removeFirstStall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalls = s.stalls[1:]
}

// deliver counts n bytes, or as many as the limit allows, as delivered and returns the result of Read.
func (s *stream) deliver(n int, err error) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit >= 0 && s.delivered+int64(n) >= s.limit {
		n = int(max(0, s.limit-s.delivered))
		err = io.ErrUnexpectedEOF
	}
	s.delivered += int64(n)
	s.checkCutLocked()
	return n, err
}

// Close implements [io.Closer].
func (s *stream) Close() error {
	s.markClosed()
	err := s.closeBody()
	s.end(nil)
	return err
}

// end records the outcome that the client got.
func (s *stream) end(err error) {
	s.x.injector.closeStream(s)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.x.injector.recorder.end(s.x.record, err)
}

package fault

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// Delay lets the request wait before it goes on.
func (s Selector) Delay(d time.Duration) *Rule { return s.DelayBetween(d, d) }

// DelayBetween lets the request wait for a random time in [least, most]. The seed is [Selector.Probability]'s.
func (s Selector) DelayBetween(least, most time.Duration) *Rule {
	var r *Rule
	r = s.request(func(_ *exchange, req *http.Request, next send) (*http.Response, error) {
		timer := time.NewTimer(r.between(least, most))
		defer timer.Stop()
		select {
		case <-timer.C:
			return next(req)
		case <-req.Context().Done():
			return nil, abandon(req, context.Cause(req.Context()))
		}
	})
	return r
}

// Hang never answers: the client waits until the request's context ends. The server does not get the request.
func (s Selector) Hang() *Rule {
	return s.request(func(_ *exchange, req *http.Request, _ send) (*http.Response, error) {
		<-req.Context().Done()
		return nil, abandon(req, context.Cause(req.Context()))
	})
}

// Refuse fails as a server does that is not there. The server does not get the request, and the client can know it.
func (s Selector) Refuse() *Rule {
	return s.request(func(_ *exchange, req *http.Request, _ send) (*http.Response, error) {
		return nil, abandon(req, broken("dial", "connect", syscall.ECONNREFUSED))
	})
}

// Reset breaks the connection before the server gets the request, which the client cannot know.
func (s Selector) Reset() *Rule {
	return s.request(func(_ *exchange, req *http.Request, _ send) (*http.Response, error) {
		return nil, abandon(req, errReset())
	})
}

// LoseReply breaks the connection after the server executed the request, which the client cannot know either.
func (s Selector) LoseReply() *Rule {
	return s.request(func(_ *exchange, req *http.Request, next send) (*http.Response, error) {
		resp, err := next(req)
		if err != nil {
			return nil, err
		}
		drain(resp)
		return nil, errReset()
	})
}

// Duplicate has the server execute the request twice, one after the other. The client gets the second answer, as if the
// first had been lost on the way and somebody in between had tried again.
func (s Selector) Duplicate() *Rule {
	return s.request(func(_ *exchange, req *http.Request, next send) (*http.Response, error) {
		copied, err := repeatable(req)
		if err != nil {
			return nil, err
		}
		first, err := next(copied(req.Context()))
		if err != nil {
			return nil, err
		}
		drain(first)
		return next(copied(req.Context()))
	})
}

// abandon does a transport's duty towards a request that goes no further, and returns the error.
func abandon(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return err
}

// drain reads an answer that nobody wants to its end: then the server is done with it.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// repeatable takes the request's body, and returns how to make copies of the request that outlive it.
func repeatable(req *http.Request) (copied func(context.Context) *http.Request, err error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req.Clone, nil
	}
	content, err := io.ReadAll(req.Body)
	if err := abandon(req, err); err != nil {
		return nil, err
	}
	return func(ctx context.Context) *http.Request {
		again := req.Clone(ctx)
		again.Body = io.NopCloser(bytes.NewReader(content))
		return again
	}, nil
}

func errReset() error { return broken("read", "read", syscall.ECONNRESET) }

// broken is the error that the net package would return.
func broken(op, call string, cause syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(call, cause)}
}

package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Delay delays the request before it is sent.
func (s Selector) Delay(d time.Duration) *Rule { return s.DelayBetween(d, d) }

// DelayBetween delays the request by a random duration from [shortest, longest]. [Selector.Probability] sets the seed.
func (s Selector) DelayBetween(shortest, longest time.Duration) *Rule {
	var rule *Rule
	rule = s.requestRule(func(_ *exchange, req *http.Request, next roundTrip) (*http.Response, error) {
		timer := time.NewTimer(rule.randomDuration(shortest, longest))
		defer timer.Stop()
		select {
		case <-timer.C:
			return next(req)
		case <-req.Context().Done():
			return nil, closeBody(req, context.Cause(req.Context()))
		}
	})
	return rule
}

// Hang never responds: the client waits until the request's context ends. The server does not receive the request.
func (s Selector) Hang() *Rule {
	return s.requestRule(func(_ *exchange, req *http.Request, _ roundTrip) (*http.Response, error) {
		<-req.Context().Done()
		return nil, closeBody(req, context.Cause(req.Context()))
	})
}

// Refuse fails with ECONNREFUSED. The server does not receive the request, and the client can tell.
func (s Selector) Refuse() *Rule {
	return s.requestRule(func(_ *exchange, req *http.Request, _ roundTrip) (*http.Response, error) {
		return nil, closeBody(req, netError("dial", "connect", syscall.ECONNREFUSED))
	})
}

// Reset fails with ECONNRESET before the server receives the request. The client cannot tell it from [Selector.LoseReply].
func (s Selector) Reset() *Rule {
	return s.requestRule(func(_ *exchange, req *http.Request, _ roundTrip) (*http.Response, error) {
		return nil, closeBody(req, connectionReset())
	})
}

// LoseReply fails with ECONNRESET after the server has executed the request. The client cannot tell it from
// [Selector.Reset].
func (s Selector) LoseReply() *Rule {
	return s.requestRule(func(_ *exchange, req *http.Request, next roundTrip) (*http.Response, error) {
		resp, err := next(req)
		if err != nil {
			return nil, err
		}
		drain(resp)
		return nil, connectionReset()
	})
}

// Duplicate makes the server execute the request twice, one after the other, as if an intermediary had retried it. The
// client gets the second response.
func (s Selector) Duplicate() *Rule {
	return s.requestRule(func(_ *exchange, req *http.Request, next roundTrip) (*http.Response, error) {
		newCopy, err := bufferRequest(req)
		if err != nil {
			return nil, err
		}
		first, err := next(newCopy(req.Context()))
		if err != nil {
			return nil, err
		}
		drain(first)
		return next(newCopy(req.Context()))
	})
}

// HoldUntil holds the request until release is closed and then sends it to the server, even if the client has given up. A
// held write can thereby reach the server after a newer one. A client that still waits gets the response. [Injector.Wait]
// waits for all held requests.
func (s Selector) HoldUntil(release <-chan struct{}) *Rule {
	return s.hold(func() { <-release })
}

// HoldFor holds the request for a duration; otherwise it acts like [Selector.HoldUntil].
func (s Selector) HoldFor(d time.Duration) *Rule {
	return s.hold(func() { time.Sleep(d) })
}

func (s Selector) hold(wait func()) *Rule {
	type result struct {
		resp *http.Response
		err  error
	}
	return s.requestRule(func(x *exchange, req *http.Request, next roundTrip) (*http.Response, error) {
		newCopy, err := bufferRequest(req)
		if err != nil {
			return nil, err
		}
		ctx := req.Context()
		results := make(chan result)
		x.injector.detach(func() {
			wait()
			resp, err := next(newCopy(context.WithoutCancel(ctx)))
			select {
			case results <- result{resp, err}:
			case <-ctx.Done():
				if err == nil {
					drain(resp)
				}
			}
		})
		select {
		case result := <-results:
			return result.resp, result.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
}

// Rewrite changes the server's response before the client gets it. An error fails the request. To change the body, close
// and replace it.
func (s Selector) Rewrite(change func(*http.Response) error) *Rule {
	return s.requestRule(func(_ *exchange, req *http.Request, next roundTrip) (*http.Response, error) {
		resp, err := next(req)
		if err != nil {
			return nil, err
		}
		if err := change(resp); err != nil {
			_ = resp.Body.Close()
			return nil, err
		}
		return resp, nil
	})
}

// Stale answers all requests for a URL with the first successful response to it, like a server with a lagging cache. Use it
// for "list" and "get" only: it reads the response to its end, and a watch has none.
func (s Selector) Stale() *Rule {
	var responses sync.Map // URL and Accept header to *response
	return s.requestRule(func(_ *exchange, req *http.Request, next roundTrip) (*http.Response, error) {
		key := req.URL.RequestURI() + " " + req.Header.Get("Accept")
		if stale, found := responses.Load(key); found {
			return stale.(*response).to(req), closeBody(req, nil)
		}
		resp, err := next(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			return resp, err
		}
		fresh, err := readResponse(resp)
		if err != nil {
			return nil, err
		}
		first, _ := responses.LoadOrStore(key, fresh)
		return first.(*response).to(req), nil
	})
}

// Reply responds in place of the server, which does not receive the request. The body is a metav1.Status as the API server
// writes it, unless options change it.
func (s Selector) Reply(code int, options ...ReplyOption) *Rule {
	reply := newReply(code)
	for _, option := range options {
		option(&reply)
	}
	response := reply.response()
	return s.requestRule(func(_ *exchange, req *http.Request, _ roundTrip) (*http.Response, error) {
		return response.to(req), closeBody(req, nil)
	})
}

// ReplyOption changes the response of [Selector.Reply].
type ReplyOption func(*reply)

// RetryAfter sets the Retry-After header and the delay in the status, rounded up to seconds.
func RetryAfter(d time.Duration) ReplyOption {
	seconds := int((d + time.Second - 1) / time.Second)
	return func(r *reply) {
		r.header.Set("Retry-After", strconv.Itoa(seconds))
		r.status.Details.RetryAfterSeconds = int32(seconds)
	}
}

// Reason sets the reason in the status. Defaults to the API server's reason for the code.
func Reason(reason metav1.StatusReason) ReplyOption {
	return func(r *reply) { r.status.Reason = reason }
}

// Message sets the message in the status.
func Message(message string) ReplyOption {
	return func(r *reply) { r.status.Message = message }
}

// InvalidField adds an invalid field to the causes in the status, as in a 422 response.
func InvalidField(field, message string) ReplyOption {
	cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}
	return func(r *reply) { r.status.Details.Causes = append(r.status.Details.Causes, cause) }
}

// Body replaces the status with an arbitrary body.
func Body(contentType string, body []byte) ReplyOption {
	return func(r *reply) {
		r.header.Set("Content-Type", contentType)
		r.body = body
	}
}

// reply is a response under construction.
type reply struct {
	code   int
	header http.Header
	status metav1.Status
	body   []byte // replaces status unless nil
}

// reasons maps status codes to the API server's reasons.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusNotFound:              metav1.StatusReasonNotFound,
	http.StatusConflict:              metav1.StatusReasonConflict,
	http.StatusGone:                  metav1.StatusReasonExpired,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnprocessableEntity:   metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError:   metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}

func newReply(code int) reply {
	return reply{
		code:   code,
		header: http.Header{"Content-Type": {"application/json"}},
		status: metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Message:  fmt.Sprintf("fault injected by a test: %d %s", code, http.StatusText(code)),
			Reason:   reasons[code],
			Details:  &metav1.StatusDetails{},
			Code:     int32(code),
		},
	}
}

func (r reply) response() *response {
	body := r.body
	if body == nil {
		var err error
		if body, err = json.Marshal(r.status); err != nil {
			panic(fmt.Sprintf("fault: marshal status: %v", err))
		}
	}
	return &response{code: r.code, header: r.header, body: body}
}

// response is a response in memory. It can be sent any number of times.
type response struct {
	code   int
	header http.Header
	body   []byte
}

// readResponse reads a response to its end.
func readResponse(resp *http.Response) (*response, error) {
	body, err := io.ReadAll(resp.Body)
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return &response{code: resp.StatusCode, header: resp.Header, body: body}, nil
}

// to returns the response to a request.
func (r *response) to(req *http.Request) *http.Response {
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", r.code, http.StatusText(r.code)),
		StatusCode: r.code,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        r.header.Clone(),
		Body:          io.NopCloser(bytes.NewReader(r.body)),
		ContentLength: int64(len(r.body)),
		Request:       req,
	}
}

// closeBody closes the body of a request that is not passed on, as a transport must, and returns err.
func closeBody(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return err
}

// drain reads a response to its end, so that the server has finished with it.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// bufferRequest reads the request's body. newCopy returns copies of the request that are independent of it.
func bufferRequest(req *http.Request) (newCopy func(context.Context) *http.Request, err error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req.Clone, nil
	}
	content, err := io.ReadAll(req.Body)
	if err := closeBody(req, err); err != nil {
		return nil, err
	}
	return func(ctx context.Context) *http.Request {
		clone := req.Clone(ctx)
		clone.Body = io.NopCloser(bytes.NewReader(content))
		return clone
	}, nil
}

func connectionReset() error { return netError("read", "read", syscall.ECONNRESET) }

// netError returns an error as package net does.
func netError(op, syscallName string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(syscallName, errno)}
}

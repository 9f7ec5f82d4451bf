package fault

import (
	"context"
	"net/http"
	"time"
)

// HoldUntil keeps the request back until release is closed and sends it to the server then, whether or not its client is
// still there: a client that gave up, and wrote something newer, has made a zombie. If the client is still waiting it gets
// the answer. [Injector.Wait] tells when all held requests were answered.
func (s Selector) HoldUntil(release <-chan struct{}) *Rule {
	return s.hold(func() { <-release })
}

// HoldFor keeps the request back for a time, and then does as [Selector.HoldUntil] does.
func (s Selector) HoldFor(d time.Duration) *Rule {
	return s.hold(func() { time.Sleep(d) })
}

func (s Selector) hold(wait func()) *Rule {
	return s.request(func(x *exchange, req *http.Request, next send) (*http.Response, error) {
		copied, err := repeatable(req)
		if err != nil {
			return nil, err
		}
		ctx := req.Context()
		answers := make(chan answer)
		x.script.detach(func() {
			wait()
			resp, err := next(copied(context.WithoutCancel(ctx)))
			select {
			case answers <- answer{resp, err}:
			case <-ctx.Done():
				if err == nil {
					drain(resp)
				}
			}
		})
		select {
		case a := <-answers:
			return a.resp, a.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
}

// answer is what RoundTrip returns.
type answer struct {
	resp *http.Response
	err  error
}

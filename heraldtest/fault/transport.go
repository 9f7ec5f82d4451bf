package fault

import (
	"net/http"
	"time"
)

// transport is a script in front of one server.
type transport struct {
	script *Injector
	next   http.RoundTripper
}

// exchange is one request of the client on its way through the script.
type exchange struct {
	*transport
	entry *Request // the recorder's
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := &exchange{transport: t, entry: t.script.trace.begin(req)}
	resp, err := x.pass(t.script.inForce(), req)
	if err != nil {
		t.script.trace.end(x.entry, err)
		return nil, err
	}
	t.script.trace.answered(x.entry, resp.StatusCode)
	return x.deliver(req, resp), nil
}

// pass hands the request to the first of the rules that wants it, or to the server.
func (x *exchange) pass(rules []*rule, req *http.Request) (*http.Response, error) {
	for i, r := range rules {
		if r.act != nil && r.claim(req) {
			return r.act(x, req, func(req *http.Request) (*http.Response, error) { return x.pass(rules[i+1:], req) })
		}
	}
	sent := Forwarded{Start: time.Now()}
	resp, err := x.next.RoundTrip(req)
	sent.End, sent.Err = time.Now(), err
	if resp != nil {
		sent.Status = resp.StatusCode
	}
	x.script.trace.sent(x.entry, sent)
	return resp, err
}

// deliver puts the response's body under the script's eyes. An upgraded connection is no longer HTTP and is left alone.
func (x *exchange) deliver(req *http.Request, resp *http.Response) *http.Response {
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == nil || resp.Body == http.NoBody {
		x.script.trace.end(x.entry, nil)
		return resp
	}
	body := newStream(x, req, resp.Body)
	x.script.opened(body)
	resp.Body = body
	return resp
}

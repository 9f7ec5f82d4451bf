package fault

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Rewrite lets the function change the server's answer before the client sees it; an error from it breaks the request. To
// change the body, replace it and close the old one.
func (s Selector) Rewrite(change func(*http.Response) error) *Rule {
	return s.request(func(_ *exchange, req *http.Request, next send) (*http.Response, error) {
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

// Stale repeats itself: the first good answer to a URL is the answer to all later requests for it, as from a server whose
// cache lags behind. It is meant for "list" and "get": the answer to a watch has no end to wait for.
func (s Selector) Stale() *Rule {
	var remembered sync.Map // from URL to *canned
	return s.request(func(_ *exchange, req *http.Request, next send) (*http.Response, error) {
		url := req.URL.RequestURI() + " " + req.Header.Get("Accept")
		if old, found := remembered.Load(url); found {
			return old.(*canned).response(req), abandon(req, nil)
		}
		resp, err := next(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			return resp, err
		}
		fresh, err := can(resp)
		if err != nil {
			return nil, err
		}
		first, _ := remembered.LoadOrStore(url, fresh)
		return first.(*canned).response(req), nil
	})
}

// canned is an answer that can be given any number of times.
type canned struct {
	code   int
	header http.Header
	body   []byte
}

// can reads an answer to its end.
func can(resp *http.Response) (*canned, error) {
	body, err := io.ReadAll(resp.Body)
	if closed := resp.Body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	return &canned{code: resp.StatusCode, header: resp.Header, body: body}, nil
}

func (c *canned) response(req *http.Request) *http.Response {
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", c.code, http.StatusText(c.code)),
		StatusCode: c.code,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        c.header.Clone(),
		Body:          io.NopCloser(bytes.NewReader(c.body)),
		ContentLength: int64(len(c.body)),
		Request:       req,
	}
}

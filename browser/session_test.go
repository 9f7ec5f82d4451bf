package browser_test

import (
	"context"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// failFirst lets the first request for an address fail as if the server had closed the connection.
func (b *tab) failFirst(pattern string) {
	b.t.Helper()
	var failed sync.Once
	executor := cdp.WithExecutor(b.ctx, chromedp.FromContext(b.ctx).Target)
	chromedp.ListenTarget(b.ctx, func(event any) {
		paused, isPaused := event.(*fetch.EventRequestPaused)
		if !isPaused {
			return
		}
		go func() { // a listener must not wait
			var action interface{ Do(context.Context) error } = fetch.ContinueRequest(paused.RequestID)
			failed.Do(func() { action = fetch.FailRequest(paused.RequestID, network.ErrorReasonConnectionReset) })
			_ = action.Do(executor) // ends with the tab
		}()
	})
	b.run(fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: pattern}}))
}

// A connection that is closed before the session is open, or before the stream is, does not leave the page waiting for ever.
func TestP1_FirstRequestFails(t *testing.T) {
	n := newNode(t, shop)
	for _, pattern := range []string{"*/session", "*/herald/v1/watch*"} {
		b := newTab(t)
		b.failFirst(pattern)
		b.open(startUI(t, n.address()))
		b.wait(isLive)
		b.wait(status("web-n1") + ` === 'Running'`)
	}
}

package kubeapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/heraldnode/herald/internal/latency"
)

// timedTransport measures requests until the header of the response, watches aside.
type timedTransport struct {
	http.RoundTripper
	recent *latency.Recent
}

// RoundTrip implements http.RoundTripper.
func (t timedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	started := time.Now()
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && !strings.Contains(request.URL.RawQuery, "watch=true") {
		now := time.Now()
		t.recent.Observe(now, now.Sub(started))
	}
	return response, err
}

// WrappedRoundTripper returns the transport, for those who look for features of it.
func (t timedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// RequestP99 returns the time that 99 of 100 requests of the last 15 minutes did not exceed, without watches and those that got no
// response. It returns false if there was none.
func (c *Client) RequestP99(now time.Time) (time.Duration, bool) { return c.recent.P99(now) }

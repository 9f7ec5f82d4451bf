package notify

import (
	"net/http"

	"github.com/heraldnode/herald/alert"
)

// WithTransport returns the configuration of a Notifier whose requests go through the transport.
func WithTransport(config Config, transport http.RoundTripper) Config {
	config.transport = func(HTTP, bool) (http.RoundTripper, error) { return transport, nil }
	return config
}

// Fingerprint exports fingerprint.
func Fingerprint(labels alert.Labels) string { return fingerprint(labels) }

// Size returns the number of alerts and of units of retries that are kept.
func (n *Notifier) Size() (items, units int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sinks {
		units += len(s.units)
	}
	return len(n.items), units
}

// Limits of the package.
const (
	MaxItems      = maxItems
	RequestBurst  = requestBurst
	RequestRate   = requestRate
	MaxRetryAfter = maxRetryAfter
)

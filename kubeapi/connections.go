package kubeapi

import (
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

// ownConnections makes the config's connections those of one Client and of no other: client-go would give clients with
// the same credentials one HTTP/2 connection, and what fills or blocks that would hold up everybody. A config with a
// Transport of its own has none of client-go's.
func ownConnections(cfg *rest.Config) *connrotation.ConnectionTracker {
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	tracked := connrotation.NewConnectionTracker()
	cfg.Dial = connrotation.NewDialerWithTracker(dial, tracked).DialContext
	return tracked
}

// freshTokens has a token file read again after an answer of 401 (F29); client-go by itself reads it once a minute,
// whatever the server says.
//
// Certificates need no such help. Client-go reads their files again with each new connection, if it has not done so
// within a second, and looks every five minutes whether it must close the old ones; the API server closes a connection
// whose certificate it refuses.
func freshTokens(cfg *rest.Config) {
	if cfg.BearerTokenFile == "" {
		return
	}
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(cfg.BearerTokenFile)))
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
}

// CloseConnections makes the next request use a new connection. Requests under way fail, watches too. It is for when
// answers do not come: a connection that leads nowhere any more is found out by HTTP/2 itself only after 45 s (F3).
func (c *Client) CloseConnections() { c.connections.CloseAll() }

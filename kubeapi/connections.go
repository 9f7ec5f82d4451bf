package kubeapi

import (
	"bytes"
	"io"
	"net"
	"net/http"
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
// Certificates that are files are read again by client-go with each new connection, if it has not done so within a
// second; see freshCertificates. Those that stand in the kubeconfig itself are read once, as everything else in it.
func freshTokens(cfg *rest.Config) {
	if cfg.BearerTokenFile == "" {
		return
	}
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(cfg.BearerTokenFile)))
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
}

// freshCertificates ends the connections of a client that shows a certificate from a file when the server does not know
// it (F29): the next has the certificate that is in the file now. The API server does the same of itself since v1.29;
// client-go alone would go on with the old one for up to five minutes.
func freshCertificates(cfg *rest.Config, own *connrotation.ConnectionTracker) {
	if cfg.CertFile == "" {
		return
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &reconnecting{next, own} })
}

// reconnecting ends the connections when the server does not know who asks.
type reconnecting struct {
	http.RoundTripper
	connections *connrotation.ConnectionTracker
}

// RoundTrip implements http.RoundTripper.
func (r *reconnecting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	if err != nil || (response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden) {
		return response, err
	}
	const enough = 64 << 10
	why, _ := io.ReadAll(io.LimitReader(response.Body, enough)) // while there is a connection to read it from
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(why))
	if response.StatusCode == http.StatusUnauthorized || bytes.Contains(why, []byte(anonymous)) {
		r.connections.CloseAll()
	}
	return response, nil
}

// anonymous is whom a server that lets strangers in takes the holder of an expired certificate for: it forbids, and does
// not say that it does not know who asks.
const anonymous = "system:anonymous"

// CloseConnections makes the next request use a new connection. Requests under way fail, watches too. It is for when
// answers do not come: a connection that leads nowhere any more is found out by HTTP/2 itself only after 45 s (F3).
func (c *Client) CloseConnections() { c.connections.CloseAll() }

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

// CloseConnections closes all connections, so that the next request opens a new one. Pending requests and watches fail. Use it
// when responses do not arrive: HTTP/2 detects a dead connection only after 45s (F3).
func (c *Client) CloseConnections() { c.connections.CloseAll() }

// trackConnections gives the client its own connections. client-go shares one HTTP/2 connection between clients with the same
// credentials, so that a client that fills or blocks it would stall the others. It has no effect on a config with its own
// Transport.
func trackConnections(config *rest.Config) *connrotation.ConnectionTracker {
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	connections := connrotation.NewConnectionTracker()
	config.Dial = connrotation.NewDialerWithTracker(dial, connections).DialContext
	return connections
}

// reloadToken makes the client read a token file again after a 401 (F29). client-go reads it once a minute, whatever the
// server responds.
//
// Certificate files are read again by client-go for each new connection, at most once a second; see reloadCertificate.
// Credentials inside a kubeconfig are read once, like everything else in it.
func reloadToken(config *rest.Config) {
	if config.BearerTokenFile == "" {
		return
	}
	config.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(config.BearerTokenFile)))
	config.BearerToken, config.BearerTokenFile = "", ""
}

// reloadCertificate closes the connections of a client whose certificate may change when the server does not recognize the
// certificate (F29), so that the next connection uses the current one. API servers since v1.29 close the
// connection themselves; client-go alone would use the old certificate for up to five minutes.
func reloadCertificate(config *rest.Config, connections *connrotation.ConnectionTracker) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &reconnectingTransport{next, connections} })
}

// reconnectingTransport closes all connections when the server does not recognize the client.
type reconnectingTransport struct {
	http.RoundTripper
	connections *connrotation.ConnectionTracker
}

// anonymousUser is the user that a server with anonymous access assigns to the holder of an expired certificate. It responds
// with 403 instead of 401, and only the message names the user.
const anonymousUser = "system:anonymous"

// RoundTrip implements http.RoundTripper.
func (t *reconnectingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err != nil || (response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden) {
		return response, err
	}
	const maxBody = 64 << 10
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // before its connection is closed
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if response.StatusCode == http.StatusUnauthorized || bytes.Contains(body, []byte(anonymousUser)) {
		t.connections.CloseAll()
	}
	return response, nil
}

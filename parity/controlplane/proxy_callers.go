package controlplane

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"net/http"
	"strings"
	"sync"
)

// callers hands each request on in the name of whoever made it, with a certificate for the same user and groups.
type callers struct {
	authority *authority

	mu         sync.Mutex // guards transports
	transports map[string]*http.Transport
}

func newCallers(authority *authority) *callers {
	return &callers{authority: authority, transports: map[string]*http.Transport{}}
}

// RoundTrip sends the request over the caller's own connections. The request is the proxy's copy of the caller's, and still
// has its TLS state.
func (c *callers) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return c.transport(nil).RoundTrip(req)
	}
	return c.transport(&req.TLS.PeerCertificates[0].Subject).RoundTrip(req)
}

// transport is for one caller; nil has no certificate, but perhaps a token.
func (c *callers) transport(caller *pkix.Name) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := ""
	if caller != nil {
		key = caller.CommonName + "\n" + strings.Join(caller.Organization, "\n")
	}
	if known := c.transports[key]; known != nil {
		return known
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.authority.pool()}
	if caller != nil {
		config = c.authority.clientTLS(c.authority.forUser(caller.CommonName, caller.Organization...))
	}
	// Bodies pass as they are: compression is between the client and the API server.
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	c.transports[key] = transport
	return transport
}

func (c *callers) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, transport := range c.transports {
		transport.CloseIdleConnections()
	}
}

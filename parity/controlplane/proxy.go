package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// maxStreams is the limit that kube-apiserver announces for one HTTP/2 connection.
const maxStreams = 100

// Proxy is a reverse proxy of the API server that injects faults, for clients in any process. It serves HTTP/2 with TLS and
// forwards requests with the identity of the client's certificate.
//
// Whatever breaks a request (an injected reset, an API server that is down) breaks the client's stream: the client sees a request
// without a response, never a message from a proxy.
//
// All methods are safe for concurrent use.
type Proxy struct {
	cp          *ControlPlane
	address     *net.TCPAddr
	server      *http.Server
	connections *connections
	transport   *identityTransport
	handler     *trackingHandler
	cancel      context.CancelFunc // cancels all requests
	served      chan struct{}      // closed when the server no longer accepts connections
}

// NewProxy starts a proxy on a free port. It stops on Close or with the control plane.
func (cp *ControlPlane) NewProxy(faults *fault.Injector) (*Proxy, error) {
	target, err := url.Parse(cp.url)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	listener, err := net.ListenTCP("tcp4", loopback(0))
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	transport := &identityTransport{ca: cp.ca, transports: map[string]*http.Transport{}}
	p := &Proxy{
		cp: cp, address: loopback(listener.Addr().(*net.TCPAddr).Port), transport: transport,
		connections: &connections{open: map[net.Conn]struct{}{}},
		handler:     &trackingHandler{next: newReverseProxy(target, faults.Wrap(transport))},
		cancel:      cancel, served: make(chan struct{}),
	}
	p.server = &http.Server{
		Handler:           p.handler,
		TLSConfig:         cp.ca.serverTLS(cp.ca.issueServer("proxy")),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: time.Minute,
		ConnState:         p.connections.track,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          discardLogger(),
	}
	go func() {
		defer close(p.served)
		_ = p.server.ServeTLS(listener, "", "") // returns only on Close
	}()
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.proxies = append(cp.proxies, p)
	return p, nil
}

func newReverseProxy(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // forward each watch event immediately
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      discardLogger(),
	}
}

// discardLogger suppresses the errors that tests inject.
func discardLogger() *log.Logger { return log.New(io.Discard, "", 0) }

// URL returns the address of the proxy.
func (p *Proxy) URL() string { return "https://" + p.address.String() }

// AdminConfig returns a client configuration with all permissions that uses the proxy.
func (p *Proxy) AdminConfig() *rest.Config { return p.cp.config(p.URL(), p.cp.adminPair()) }

// NodeConfig returns a client configuration with the permissions of this node's kubelet that uses the proxy.
func (p *Proxy) NodeConfig(nodeName string) *rest.Config {
	return p.cp.config(p.URL(), p.cp.nodePair(nodeName))
}

// NodeKubeconfig writes a kubeconfig with the identity of this node's kubelet that uses the proxy, and returns its path.
func (p *Proxy) NodeKubeconfig(nodeName string) (string, error) {
	path := p.cp.path(fmt.Sprintf("node-%s-by-proxy-%d.kubeconfig", nodeName, p.address.Port))
	return path, writeKubeconfig(path, p.NodeConfig(nodeName))
}

// ResetConnections resets all TCP connections to the proxy. Every request and every watch on them fails.
func (p *Proxy) ResetConnections() { p.connections.reset() }

// Close cancels all requests and stops the proxy. It may be called more than once.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.server.Close()
	<-p.served
	p.handler.close()
	p.transport.close()
	if err != nil {
		return fmt.Errorf("close proxy at %s: %w", p.URL(), err)
	}
	return nil
}

// identityTransport forwards each request with a certificate for the same user and groups as the client's.
type identityTransport struct {
	ca *authority

	mu         sync.Mutex // guards transports
	transports map[string]*http.Transport
}

// RoundTrip sends the request over connections of the client's identity. The proxy's copy of the request keeps the TLS state of
// the original.
func (t *identityTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return t.forSubject(nil).RoundTrip(req)
	}
	return t.forSubject(&req.TLS.PeerCertificates[0].Subject).RoundTrip(req)
}

// forSubject returns the transport of one client. A nil subject has no certificate, but may have a token.
func (t *identityTransport) forSubject(subject *pkix.Name) *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := ""
	if subject != nil {
		key = subject.CommonName + "\n" + strings.Join(subject.Organization, "\n")
	}
	if known := t.transports[key]; known != nil {
		return known
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.ca.pool()}
	if subject != nil {
		config = t.ca.clientTLS(t.ca.issueClient(subject.CommonName, subject.Organization...))
	}
	// Bodies are forwarded unchanged: the client and the API server negotiate compression.
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	t.transports[key] = transport
	return transport
}

func (t *identityTransport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, transport := range t.transports {
		transport.CloseIdleConnections()
	}
}

// connections tracks the open connections of a server.
type connections struct {
	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

// track implements http.Server.ConnState.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// reset closes all connections with RST instead of FIN.
func (c *connections) reset() {
	c.mu.Lock()
	open := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, conn := range open {
		if wrapped, isTLS := conn.(*tls.Conn); isTLS {
			conn = wrapped.NetConn()
		}
		if tcp, isTCP := conn.(*net.TCPConn); isTCP {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// trackingHandler waits for its requests on close, which http.Server.Close does not.
type trackingHandler struct {
	next http.Handler

	mu       sync.Mutex // guards closed; inFlight grows only while closed is false
	closed   bool
	inFlight sync.WaitGroup
}

func (h *trackingHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !h.begin() {
		panic(http.ErrAbortHandler)
	}
	defer h.inFlight.Done()
	h.next.ServeHTTP(w, req)
}

func (h *trackingHandler) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.inFlight.Add(1)
	return true
}

// close rejects new requests and waits for those in flight.
func (h *trackingHandler) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.inFlight.Wait()
}

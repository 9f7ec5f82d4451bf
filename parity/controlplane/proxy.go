package controlplane

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// maxStreams is what kube-apiserver announces for one HTTP/2 connection.
const maxStreams = 100

// Proxy stands in front of the API server and does what a fault.Injector says, for clients in any process. It speaks HTTP/2
// and TLS, and hands requests on in the name of the client's own certificate.
//
// Whatever breaks a request (a reset in the script, an API server that is down) breaks the client's stream: it sees a
// request without an answer, never a message from a proxy.
//
// All methods may be called by any goroutine.
type Proxy struct {
	cp          *ControlPlane
	address     *net.TCPAddr
	server      *http.Server
	connections *connections
	callers     *callers
	requests    *requests
	abandon     context.CancelFunc // ends all requests
	served      chan struct{}      // closed when the server no longer accepts
}

// NewProxy starts a proxy on a free port. It ends with Close, or with the control plane.
func (cp *ControlPlane) NewProxy(script *fault.Injector) (*Proxy, error) {
	target, err := url.Parse(cp.url)
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	listener, err := net.ListenTCP("tcp4", loopback(0))
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	ctx, abandon := context.WithCancel(context.Background())
	callers := newCallers(cp.users)
	p := &Proxy{
		cp: cp, address: loopback(listener.Addr().(*net.TCPAddr).Port), connections: newConnections(), callers: callers,
		requests: &requests{next: forward(target, script.Wrap(callers))}, abandon: abandon, served: make(chan struct{}),
	}
	p.server = &http.Server{
		Handler:           p.requests,
		TLSConfig:         cp.users.serverTLS(cp.users.forServer("proxy")),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: time.Minute,
		ConnState:         p.connections.note,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          silence(),
	}
	go func() {
		defer close(p.served)
		_ = p.server.ServeTLS(listener, "", "") // ends with Close, for no other reason
	}()
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.proxies = append(cp.proxies, p)
	return p, nil
}

func forward(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // each event of a watch at once
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      silence(),
	}
}

// silence is for servers whose failures are what the test wants.
func silence() *log.Logger { return log.New(io.Discard, "", 0) }

// URL is the proxy's address.
func (p *Proxy) URL() string { return "https://" + p.address.String() }

// AdminConfig is for a client that may do everything, through the proxy.
func (p *Proxy) AdminConfig() *rest.Config { return p.cp.config(p.URL(), p.cp.admin()) }

// NodeConfig is for a client that may do what the kubelet of this node may do, through the proxy.
func (p *Proxy) NodeConfig(name string) *rest.Config { return p.cp.config(p.URL(), p.cp.node(name)) }

// NodeKubeconfig writes a kubeconfig with the identity of this node's kubelet that leads through the proxy, and returns its
// path.
func (p *Proxy) NodeKubeconfig(name string) (string, error) {
	path := p.cp.path(fmt.Sprintf("node-%s-by-proxy-%d.kubeconfig", name, p.address.Port))
	return path, writeKubeconfig(path, p.NodeConfig(name))
}

// ResetConnections breaks all TCP connections to the proxy at once, with a RST: every request and every watch on them ends.
func (p *Proxy) ResetConnections() { p.connections.reset() }

// Close ends all requests and the proxy. It may be called more than once.
func (p *Proxy) Close() error {
	p.abandon()
	err := p.server.Close()
	<-p.served
	p.requests.close()
	p.callers.close()
	if err != nil {
		return fmt.Errorf("close the proxy at %s: %w", p.URL(), err)
	}
	return nil
}

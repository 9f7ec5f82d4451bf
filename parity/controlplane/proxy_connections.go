package controlplane

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
)

// connections are the open connections of a server.
type connections struct {
	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

func newConnections() *connections { return &connections{open: map[net.Conn]struct{}{}} }

// note is an http.Server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// reset ends all connections with a RST instead of a FIN.
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

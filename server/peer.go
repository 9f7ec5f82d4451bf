package server

import (
	"context"
	"net"

	"github.com/heraldnode/herald/internal/permission"
)

// peerListener accepts connections whose remote address tells the user at the other end of a unix socket.
type peerListener struct{ net.Listener }

// Accept implements net.Listener.
func (l peerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if socket, isUnix := conn.(*net.UnixConn); err == nil && isUnix {
		if uid, err := permission.PeerUID(socket); err == nil {
			return peerConn{socket, peerAddr{socket.RemoteAddr(), uid}}, nil
		}
	}
	return conn, err
}

type peerConn struct {
	*net.UnixConn
	addr peerAddr
}

// RemoteAddr implements net.Conn. Wrappers of the connection pass it on.
func (c peerConn) RemoteAddr() net.Addr { return c.addr }

// peerAddr is the address of a client of a unix socket.
type peerAddr struct {
	net.Addr
	uid uint32
}

type peerKey struct{}

// withPeer adds the user of the connection to the context of its requests.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if addr, isPeer := conn.RemoteAddr().(peerAddr); isPeer {
		return context.WithValue(ctx, peerKey{}, addr.uid)
	}
	return ctx
}

// peerOf returns the user who sent the request, and false if it did not come over a unix socket.
func peerOf(ctx context.Context) (uid uint32, isKnown bool) {
	uid, isKnown = ctx.Value(peerKey{}).(uint32)
	return uid, isKnown
}

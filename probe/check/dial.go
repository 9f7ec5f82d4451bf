package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// network opens connections.
type network struct {
	// guarded refuses addresses that belong to the node alone.
	guarded bool
	// patient tries again where nobody listens yet.
	patient bool
}

// refusedError is about an address that the pod must not reach through its probes.
type refusedError struct{ address netip.Addr }

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s is refused: a pod with a network of its own must not reach the node's loopback and link-local "+
		"addresses by its probes; leave host empty, or set hostNetwork", e.address)
}

// dial opens a connection that leaves nothing behind when it is closed: a reset instead of a TIME_WAIT, of which
// thousands of probes would make enough to use up all ports (PRB-29, F25). Nothing that we sent can get lost by it, for
// by then the answer is there.
func (n network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	const first, longest = 10 * time.Millisecond, 200 * time.Millisecond
	var refused error
	for pause := first; ; pause = min(2*pause, longest) {
		conn, err := n.dialOnce(ctx, kind, address)
		var timed net.Error
		switch {
		case n.patient && errors.Is(err, syscall.ECONNREFUSED):
			refused = err
		case refused != nil && errors.As(err, &timed) && timed.Timeout():
			return nil, refused // says more than that the time was over in the middle of the last try
		default:
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, refused
		case <-time.After(pause):
		}
	}
}

func (n network) dialOnce(ctx context.Context, kind, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1}
	if n.guarded {
		dialer.Control = refuseLocal
	}
	if to, err := netip.ParseAddrPort(address); err == nil { // nothing to look up, which is the usual case
		conn, err := dialer.DialTCP(ctx, kind, netip.AddrPort{}, to)
		var failed *net.OpError
		if errors.As(err, &failed) {
			failed.Source = nil // no address of ours was asked for, and ":0" in an event would puzzle its reader
		}
		return resetting(conn, err)
	}
	conn, err := dialer.DialContext(ctx, kind, address)
	if err != nil {
		return nil, withLack(err)
	}
	return resetting(conn.(*net.TCPConn), nil)
}

// withLack adds that nothing can be opened here to what came of a name: who looks names up does not say so (F28).
func withLack(err error) error {
	var nobody *net.DNSError
	if !errors.As(err, &nobody) {
		return err
	}
	socket, lack := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if lack != nil {
		return fmt.Errorf("%w: %w", err, lack)
	}
	_ = syscall.Close(socket)
	return err
}

// resetting is the connection if there is one, never a nil that looks like one.
func resetting(conn *net.TCPConn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	if err := conn.SetLinger(0); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// refuseLocal sees the address that a name was resolved to, so that no name leads around it.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap()
	if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() {
		return &refusedError{ip}
	}
	return nil
}

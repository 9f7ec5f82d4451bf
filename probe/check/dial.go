package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/nodeaddress"
	"github.com/heraldnode/herald/probe/judge"
)

const (
	minRetryDelay = 10 * time.Millisecond
	maxRetryDelay = 100 * time.Millisecond
)

// dialer opens connections.
type dialer struct {
	// rejectLocal rejects the node's addresses and metadata services.
	rejectLocal bool
	// retryRefused retries refused connections.
	retryRefused bool
}

// checkTCP is PRB-27: an accepted connection is a success.
func (d dialer) checkTCP(ctx context.Context, action *v1.TCPSocketAction, target Target) Outcome {
	port, err := resolvePort(action.Port, target.Container)
	if err != nil {
		return newError(err)
	}
	conn, err := d.dial(ctx, "tcp", net.JoinHostPort(targetHost(action.Host, target), strconv.Itoa(int(port))))
	if err != nil {
		return newDialOutcome(err)
	}
	_ = conn.Close() // it was opened: nothing else matters
	return Outcome{Result: judge.Success}
}

// newDialOutcome returns a failure of the target, or an error if the target was never reached for other reasons.
func newDialOutcome(err error) Outcome {
	var rejected *nodeaddress.Error
	switch {
	case errors.As(err, &rejected):
		return newError(rejected)
	case isExhausted(err):
		return newError(err)
	default:
		return newFailure(err.Error())
	}
}

// isExhausted reports whether the node lacks descriptors, memory or ports. No container restarts for that (F28).
func isExhausted(err error) bool {
	for _, cause := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// dial opens a connection that is reset when it is closed. Otherwise thousands of probes would exhaust the ports with
// connections in TIME_WAIT (PRB-29, F25). The reset loses no data, because the response has arrived by then.
func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var refused error
	for delay := minRetryDelay; ; delay = min(delay+delay/4, maxRetryDelay) {
		conn, err := d.dialOnce(ctx, network, address)
		var netError net.Error
		switch {
		case d.retryRefused && errors.Is(err, syscall.ECONNREFUSED):
			refused = err
		case refused != nil && errors.As(err, &netError) && netError.Timeout():
			return nil, refused // more helpful than a timeout in the last attempt
		default:
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, refused
		case <-time.After(delay):
		}
	}
}

func (d dialer) dialOnce(ctx context.Context, network, address string) (net.Conn, error) {
	netDialer := net.Dialer{KeepAlive: -1}
	if d.rejectLocal {
		netDialer.Control = nodeaddress.Control
	}
	if addrPort, err := netip.ParseAddrPort(address); err == nil { // the usual case: nothing to resolve
		conn, err := netDialer.DialTCP(ctx, network, netip.AddrPort{}, addrPort)
		var opError *net.OpError
		if errors.As(err, &opError) {
			opError.Source = nil // no source address was requested, and ":0" in an event would be confusing
		}
		return resetOnClose(conn, err)
	}
	conn, err := netDialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, withExhaustion(err)
	}
	return resetOnClose(conn.(*net.TCPConn), nil)
}

// withExhaustion adds the cause to a resolver error if no socket can be opened: the resolver does not report it (F28).
func withExhaustion(err error) error {
	var dnsError *net.DNSError
	if !errors.As(err, &dnsError) {
		return err
	}
	socket, socketErr := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if socketErr != nil {
		return fmt.Errorf("%w: %w", err, socketErr)
	}
	_ = syscall.Close(socket)
	return err
}

// resetOnClose never returns a typed nil as a connection.
func resetOnClose(conn *net.TCPConn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	if err := conn.SetLinger(0); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// forwardPort connects a client with a port of the pod until both have ended their side (STR-23). Pods use the host network, so it
// is a port of the host's loopback addresses.
func (s *Server) forwardPort(client context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error {
	sb, err := s.findSandbox(sandboxID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(client)
	defer cancel(nil)
	defer s.stopStreams(cancel)()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel(nil)
	waiting.Go(func() {
		select {
		case <-sb.ended:
			cancel(fmt.Errorf("pod sandbox %q is stopped", sb.id))
		case <-ctx.Done():
		}
	})
	conn, err := dialLoopback(ctx, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	err = copyBoth(ctx, conn, stream)
	if cause := context.Cause(ctx); cause != nil && client.Err() == nil {
		return cause
	}
	return err
}

// dialLoopback tries IPv4 first, as other runtimes do.
func dialLoopback(ctx context.Context, port int32) (*net.TCPConn, error) {
	var dialer net.Dialer
	var errs []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// copyBoth copies in both directions. An end of one side is passed to the other, which may go on. If a copy fails or ctx ends, both
// end.
func copyBoth(ctx context.Context, conn *net.TCPConn, stream io.ReadWriteCloser) error {
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, stream)
		if err = connectionError(err); err != nil {
			_ = conn.Close()
		} else {
			_ = conn.CloseWrite()
		}
		sent <- err
	}()
	_, err := io.Copy(stream, conn)
	if err = connectionError(err); err != nil {
		_ = conn.Close()
	}
	_ = stream.Close()
	select {
	case sendErr := <-sent:
		return errors.Join(err, sendErr)
	case <-ctx.Done(): // the copy ends with the stream, which the caller ends
		return err
	}
}

// connectionError returns nil for the errors that are ends of a connection.
func connectionError(err error) error {
	for _, end := range []error{syscall.EPIPE, syscall.ECONNRESET, net.ErrClosed, io.EOF} {
		if errors.Is(err, end) {
			return nil
		}
	}
	return err
}

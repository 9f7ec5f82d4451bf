package server_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/watch"
)

// exchange is a listener whose calls are pipes, for which time is the bubble's.
type exchange struct {
	calls  chan net.Conn
	closed chan struct{}
}

func newExchange() *exchange { return &exchange{make(chan net.Conn), make(chan struct{})} }

func (e *exchange) Accept() (net.Conn, error) {
	select {
	case call := <-e.calls:
		return call, nil
	case <-e.closed:
		return nil, net.ErrClosed
	}
}

func (e *exchange) Close() error   { close(e.closed); return nil }
func (e *exchange) Addr() net.Addr { return &net.UnixAddr{} }

// dial returns the caller's end, if the call is taken at all.
func (e *exchange) dial() (caller net.Conn, taken bool) {
	caller, agent := net.Pipe()
	synctest.Wait()
	select {
	case e.calls <- agent:
		return caller, true
	default:
		return nil, false
	}
}

// serveOn answers until the test calls what it returns.
func serveOn(t *testing.T, n *node, at *exchange) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	s := newServer(t, n)
	go func() { ended <- s.Serve(ctx, at) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestWhoDoesNotReadHisWatchIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{changes: make(chan watch.Event), left: make(chan struct{})}
		at := newExchange()
		defer serveOn(t, n, at)()
		caller, _ := at.dial()
		defer caller.Close()
		if _, err := io.WriteString(caller, "GET /pods?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReaderSize(caller, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		n.changes <- watch.Event{Type: watch.Modified, Object: pod("web")} // and it is never read
		<-n.left
	})
}

func TestNobodyUsesUpTheAgentsDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := newExchange()
		defer serveOn(t, &node{}, at)()
		var callers []net.Conn
		for caller, taken := at.dial(); taken; caller, taken = at.dial() {
			if callers = append(callers, caller); len(callers) > 1000 {
				t.Fatal("everybody is let in")
			}
		}
		if len(callers) == 0 {
			t.Fatal("nobody is let in")
		}
		_ = callers[0].Close()
		another, taken := at.dial()
		if !taken {
			t.Fatal("nobody is let in although one has left")
		}
		for _, caller := range append(callers[1:], another) {
			_ = caller.Close()
		}
	})
}

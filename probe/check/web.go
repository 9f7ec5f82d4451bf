package check

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxHeader is how many bytes of headers are read, those of the 1xx answers before the real one included.
const maxHeader = 128 << 10

// web makes HTTP requests over a network, each over a connection of its own, through no proxy.
//
// They are written and read by the goroutine that asks: http.Transport would start three more for each connection, which
// is most of what a probe costs, and would not end a TLS handshake when the request's time is over (F24).
type web struct {
	network network
	buffers sync.Pool // of *buffer
}

func newWeb(n network) *web {
	return &web{network: n, buffers: sync.Pool{New: func() any { return &buffer{} }}}
}

// RoundTrip implements http.RoundTripper.
func (w *web) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := sendable(request); err != nil {
		return nil, err
	}
	ctx := request.Context()
	conn, err := w.network.dial(ctx, "tcp", addressOf(request))
	if err != nil {
		return nil, err
	}
	ends := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	x := &exchange{conn: conn, ends: ends, buffer: w.buffers.Get().(*buffer), pool: &w.buffers}
	response, err := x.askSecurely(request)
	if err != nil {
		_ = x.Close()
		if cause := ctx.Err(); cause != nil {
			err = fmt.Errorf("no answer: %w", cause)
		}
		return nil, err
	}
	x.Reader, response.Body = response.Body, x
	return response, nil
}

func addressOf(request *http.Request) string {
	if request.URL.Port() == "" {
		return net.JoinHostPort(request.URL.Hostname(), request.URL.Scheme)
	}
	return request.URL.Host
}

// buffer is what an exchange needs in memory.
type buffer struct {
	limited io.LimitedReader
	in      bufio.Reader
	out     bytes.Buffer
}

// exchange is one request and its response over one connection. It becomes the response's body, and ends with it.
type exchange struct {
	io.Reader
	conn   net.Conn
	ends   func() bool
	buffer *buffer
	pool   *sync.Pool
}

// ask speaks HTTP/1.1 over the connection, or what was put around it.
func (x *exchange) ask(over io.ReadWriter, request *http.Request) (*http.Response, error) {
	closing := *request
	closing.Close = true
	b := x.buffer
	b.out.Reset()
	if err := closing.Write(&b.out); err != nil {
		return nil, err
	}
	if _, err := over.Write(b.out.Bytes()); err != nil {
		return nil, err
	}
	b.limited = io.LimitedReader{R: over, N: maxHeader}
	b.in.Reset(&b.limited)
	for {
		response, err := http.ReadResponse(&b.in, request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode/100 != 1 || response.StatusCode == http.StatusSwitchingProtocols {
			b.limited.N = maxHeader // the body is cut by who reads it; its chunks have headers too
			return response, nil
		}
	}
}

// Close ends the exchange. Nothing can be read after it: the buffer is another's then.
func (x *exchange) Close() error {
	if x.buffer == nil {
		return nil
	}
	x.ends()
	err := x.conn.Close()
	x.buffer.limited.R = nil
	x.pool.Put(x.buffer)
	x.buffer, x.Reader = nil, http.NoBody
	return err
}

package check

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxHeader limits how many bytes of headers are read, including those of 1xx responses.
const maxHeader = 128 << 10

const protocolHTTP2 = "h2"

// transport sends each HTTP request over its own connection, without a proxy.
//
// The calling goroutine reads and writes. http.Transport would start three goroutines per connection, which is most of the
// cost of a probe, and would not end a TLS handshake when the request times out (F24).
type transport struct {
	dialer  dialer
	buffers sync.Pool // of *buffers
}

func newTransport(d dialer) *transport {
	return &transport{dialer: d, buffers: sync.Pool{New: func() any { return &buffers{} }}}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := validateRequest(request); err != nil {
		return nil, err
	}
	ctx := request.Context()
	conn, err := t.dialer.dial(ctx, "tcp", requestAddress(request))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	x := &exchange{conn: conn, stop: stop, buffers: t.buffers.Get().(*buffers), pool: &t.buffers}
	response, err := x.send(request)
	if err != nil {
		_ = x.Close()
		if cause := ctx.Err(); cause != nil {
			err = fmt.Errorf("no response: %w", cause)
		}
		return nil, err
	}
	x.Reader, response.Body = response.Body, x
	return response, nil
}

func requestAddress(request *http.Request) string {
	if request.URL.Port() == "" {
		return net.JoinHostPort(request.URL.Hostname(), request.URL.Scheme)
	}
	return request.URL.Host
}

// buffers are the buffers of one exchange.
type buffers struct {
	limited io.LimitedReader
	in      bufio.Reader
	out     bytes.Buffer
}

// exchange is one request and its response over one connection. It becomes the response's body and is closed with it.
type exchange struct {
	io.Reader
	conn    net.Conn
	stop    func() bool // releases the context
	buffers *buffers
	pool    *sync.Pool
}

// send sends the request over TLS if its scheme is https. The certificate is not verified (PRB-24).
func (x *exchange) send(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return x.sendHTTP1(x.conn, request)
	}
	conn := tls.Client(x.conn, &tls.Config{
		InsecureSkipVerify: true, ServerName: request.URL.Hostname(), NextProtos: []string{protocolHTTP2, "http/1.1"},
	})
	if err := conn.HandshakeContext(request.Context()); err != nil {
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol == protocolHTTP2 {
		return sendHTTP2(conn, request)
	}
	return x.sendHTTP1(conn, request)
}

// sendHTTP1 uses HTTP/1.1 over the connection or over TLS on top of it.
func (x *exchange) sendHTTP1(conn io.ReadWriter, request *http.Request) (*http.Response, error) {
	closing := *request
	closing.Close = true
	b := x.buffers
	b.out.Reset()
	if err := closing.Write(&b.out); err != nil {
		return nil, err
	}
	if _, err := conn.Write(b.out.Bytes()); err != nil {
		return nil, err
	}
	b.limited = io.LimitedReader{R: conn, N: maxHeader}
	b.in.Reset(&b.limited)
	for {
		response, err := http.ReadResponse(&b.in, request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode/100 != 1 || response.StatusCode == http.StatusSwitchingProtocols {
			b.limited.N = maxHeader // the reader limits the body; its chunks have headers too
			return response, nil
		}
	}
}

// sendHTTP2 uses http.Transport. Everything that it starts ends with the connection.
func sendHTTP2(conn *tls.Conn, request *http.Request) (*http.Response, error) {
	dial := dialOnce(conn)
	transport := http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },

		ForceAttemptHTTP2: true, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	return transport.RoundTrip(request)
}

// Close ends the exchange. Nothing can be read afterwards: the buffers belong to another exchange then.
func (x *exchange) Close() error {
	if x.buffers == nil {
		return nil
	}
	x.stop()
	err := x.conn.Close()
	x.buffers.limited.R = nil
	x.pool.Put(x.buffers)
	x.buffers, x.Reader = nil, http.NoBody
	return err
}

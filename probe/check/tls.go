package check

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
)

const http2 = "h2"

// askSecurely puts TLS between if the request wants it. Nobody is verified (PRB-24).
func (x *exchange) askSecurely(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return x.ask(x.conn, request)
	}
	conn := tls.Client(x.conn, &tls.Config{
		InsecureSkipVerify: true, ServerName: request.URL.Hostname(), NextProtos: []string{http2, "http/1.1"},
	})
	if err := conn.HandshakeContext(request.Context()); err != nil {
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol == http2 {
		return askHTTP2(conn, request)
	}
	return x.ask(conn, request)
}

// askHTTP2 leaves the newer protocol to http.Transport. All that it starts ends with the connection.
func askHTTP2(conn *tls.Conn, request *http.Request) (*http.Response, error) {
	only := make(chan net.Conn, 1)
	only <- conn
	transport := http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case conn := <-only:
				return conn, nil
			default:
				return nil, errors.New("the server wants another connection")
			}
		},
		ForceAttemptHTTP2: true, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	return transport.RoundTrip(request)
}

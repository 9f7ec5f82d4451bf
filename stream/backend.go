package stream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// handshakeTimeout is how long the runtime may take to accept a connection and to upgrade it.
	handshakeTimeout = 30 * time.Second
	// maxRefusal limits what is passed on of a response that refuses a stream.
	maxRefusal = 64 << 10
)

// backend is an upgraded connection to the runtime.
type backend struct {
	net.Conn
	reader   *bufio.Reader // has what the runtime sent after its header
	response *http.Response
}

func (b *backend) Read(data []byte) (int, error) { return b.reader.Read(data) }

// dial sends an upgrade request to the runtime. A runtime that refuses it is an *Error with the runtime's own response (STR-7).
func (p *Proxy) dial(ctx context.Context, location, method string, header http.Header) (*backend, error) {
	target, err := url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("the runtime's URL of the stream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, err := p.dialURL(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("error dialing backend: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	upgraded, err := upgrade(conn, &http.Request{Method: method, URL: target, Host: target.Host, Header: header})
	if !stop() && err == nil {
		err = fmt.Errorf("error upgrading backend: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return upgraded, nil
}

// dialURL connects to the host of a URL.
func (p *Proxy) dialURL(ctx context.Context, target *url.URL) (net.Conn, error) {
	port := target.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
	}
	conn, err := p.config.Dial(ctx, "tcp", net.JoinHostPort(target.Hostname(), port))
	if err != nil || target.Scheme != "https" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{ServerName: target.Hostname(), MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

func upgrade(conn net.Conn, request *http.Request) (*backend, error) {
	if err := request.Write(conn); err != nil {
		return nil, fmt.Errorf("error sending request: %w", err)
	}
	reader := bufio.NewReaderSize(conn, copyBuffer)
	response, err := http.ReadResponse(reader, request) //nolint:bodyclose // ends with the connection
	if err != nil {
		return nil, fmt.Errorf("error reading response: %w", err)
	}
	switch {
	case response.StatusCode == http.StatusSwitchingProtocols:
		return &backend{Conn: conn, reader: reader, response: response}, nil
	case response.StatusCode < http.StatusBadRequest:
		return nil, fmt.Errorf("invalid upgrade response: status code %d", response.StatusCode)
	}
	message, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		return nil, fmt.Errorf("error reading response: %w", err)
	}
	return nil, &Error{Code: response.StatusCode, Message: strings.TrimSuffix(string(message), "\n")}
}

package stream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// lingerTimeout is how long a client may take to notice the end of its stream.
const lingerTimeout = 5 * time.Second

// connect connects a client with a stream of the runtime until it ends. The runtime is connected first, so that its refusal is a response
// with a status code. An error means that the client has no response yet.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request, stream remote) error {
	switch {
	case !stream.isPortForward && isV5(r.Header):
		return p.translate(w, r, stream)
	case stream.isPortForward && isTunnel(r.Header):
		return p.tunnel(w, r, stream)
	default:
		return p.copy(w, r, stream)
	}
}

// copy connects a client and a runtime that speak the same protocol.
func (p *Proxy) copy(w http.ResponseWriter, r *http.Request, stream remote) error {
	remote, err := p.dial(r.Context(), stream.url, r.Method, upgradeHeader(r.Header))
	if err != nil {
		return err
	}
	defer func() { _ = remote.Close() }()
	ctx, client, err := p.hijack(r.Context(), w)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	header := bufio.NewWriter(client)
	_, _ = fmt.Fprintf(header, "HTTP/1.1 %d %s\r\n", http.StatusSwitchingProtocols, http.StatusText(http.StatusSwitchingProtocols))
	_ = remote.response.Header.Write(header)
	_, _ = header.WriteString("\r\n")
	if header.Flush() != nil {
		return nil // the client has left
	}
	c := &copier{client: client, remote: remote, frames: framesOf(remote.response)}
	if stream.isPortForward {
		c.frames = noFrames{}
	}
	c.run(ctx)
	return nil
}

// clientConn is a hijacked connection. Close lets the client read what was sent: a close with unread input would reset the connection, and
// the client would lose output that it has not read yet.
type clientConn struct {
	net.Conn
	buffered *bufio.Reader // has what the client sent after its header
	onUse    func()
	closing  sync.Once
	closed   chan struct{} // closed when Close begins
}

// hijack takes over the client's connection. The context that it returns also ends when the connection is closed or idle.
func (p *Proxy) hijack(ctx context.Context, w http.ResponseWriter) (context.Context, *clientConn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("error hijacking connection: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	idle := time.AfterFunc(p.config.IdleTimeout, func() { end(errIdle) }) // STR-18
	client := &clientConn{
		Conn: conn, buffered: buffered.Reader, closed: make(chan struct{}), onUse: func() { idle.Reset(p.config.IdleTimeout) },
	}
	go func() {
		select {
		case <-client.closed:
			end(errClientLeft)
		case <-ctx.Done():
		}
		idle.Stop()
	}()
	return ctx, client, nil
}

func (c *clientConn) Read(data []byte) (n int, err error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if c.buffered.Buffered() > 0 {
		n, err = c.buffered.Read(data)
	} else {
		n, err = c.Conn.Read(data)
	}
	if n > 0 {
		c.onUse()
	}
	return n, err
}

func (c *clientConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if n > 0 {
		c.onUse()
	}
	return n, err
}

// Close tells the client that nothing follows, and waits for a moment until it closes its side.
func (c *clientConn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		close(c.closed)
		_ = c.SetDeadline(time.Now().Add(lingerTimeout)) // also ends a write that the client does not read
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, c.Conn)
		}
		err = c.Conn.Close()
	})
	return err
}

// hijackedWriter passes a connection that is hijacked already to a web socket server.
type hijackedWriter struct{ client *clientConn }

func (w hijackedWriter) Header() http.Header            { return http.Header{} }
func (w hijackedWriter) Write(data []byte) (int, error) { return w.client.Write(data) }
func (w hijackedWriter) WriteHeader(int)                {}

func (w hijackedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.client, bufio.NewReadWriter(bufio.NewReader(w.client), bufio.NewWriter(w.client)), nil
}

package heraldtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
)

// transport carries requests to the server and answers back inside this process, as a connection would: a client that
// gives up does not stop a request that has arrived, and an answer can be read while it is being written.
type transport struct {
	server *APIServer
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	request = request.Clone(ctx)
	if request.Body == nil {
		request.Body = http.NoBody
	}
	err := context.Cause(ctx)
	if err == nil && t.server.isDown() {
		err = refused()
	}
	if err != nil {
		_ = request.Body.Close()
		return nil, err
	}
	served, hangUp := context.WithCancel(ctx)
	e := newExchange(hangUp)
	go e.serve(t.server.door, request.WithContext(served))
	select {
	case <-e.begun:
		return e.response(request), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// exchange is one request and its answer, and the [http.ResponseWriter] in between. The goroutine that serves owns the
// fields until it closes begun; from then on the client may read them, and only the pipe is common ground. An answer that
// is never flushed is handed over whole, so that no one waits for a client that does not read it.
type exchange struct {
	header    http.Header
	code      int
	whole     bytes.Buffer
	begun     chan struct{}
	streaming bool
	body      streamedBody
	writer    *io.PipeWriter
}

// streamedBody is a body that is read while it is written; to close it is to hang up.
type streamedBody struct {
	*io.PipeReader
	hangUp context.CancelFunc
}

// Close implements [io.Closer].
func (b streamedBody) Close() error {
	b.hangUp()
	return b.PipeReader.Close()
}

func newExchange(hangUp context.CancelFunc) *exchange {
	e := &exchange{header: http.Header{}, code: http.StatusOK, begun: make(chan struct{})}
	e.body.hangUp = hangUp
	e.body.PipeReader, e.writer = io.Pipe()
	return e
}

// serve ends when the handler does. The request's context ends when the client cancels, or hangs up; a handler that just
// then waits for the client to read waits no longer.
func (e *exchange) serve(door http.Handler, request *http.Request) {
	ctx := request.Context()
	unblock := context.AfterFunc(ctx, func() { e.writer.CloseWithError(context.Cause(ctx)) })
	defer e.body.hangUp()
	defer unblock()
	defer request.Body.Close()
	defer e.finish(ctx)
	door.ServeHTTP(e, request)
}

// finish hands the answer over, or ends it; a handler that aborts breaks it off in the middle.
func (e *exchange) finish(ctx context.Context) {
	end := io.EOF
	if ctx.Err() != nil {
		end = context.Cause(ctx)
	}
	if failure := recover(); failure != nil {
		if failure != http.ErrAbortHandler { //nolint:errorlint // a panic's value, and net/http compares it so too
			panic(failure)
		}
		e.Flush()
		end = io.ErrUnexpectedEOF
	}
	e.writer.CloseWithError(end)
	if !e.streaming {
		close(e.begun)
	}
}

func (e *exchange) response(request *http.Request) *http.Response {
	r := &http.Response{
		Status: fmt.Sprintf("%d %s", e.code, http.StatusText(e.code)), StatusCode: e.code, Header: e.header, Request: request,
		Proto: "HTTP/2.0", ProtoMajor: 2, ContentLength: -1, Body: e.body,
	}
	if !e.streaming {
		r.ContentLength, r.Body = int64(e.whole.Len()), io.NopCloser(&e.whole)
	}
	return r
}

// Header implements [http.ResponseWriter].
func (e *exchange) Header() http.Header { return e.header }

// WriteHeader implements [http.ResponseWriter].
func (e *exchange) WriteHeader(code int) { e.code = code }

// Write implements [http.ResponseWriter].
func (e *exchange) Write(data []byte) (int, error) {
	if e.streaming {
		return e.writer.Write(data)
	}
	return e.whole.Write(data)
}

// Flush implements [http.Flusher]: what was written reaches the client, and so does what is written from now on.
func (e *exchange) Flush() {
	if e.streaming {
		return
	}
	e.streaming = true
	close(e.begun)
	if e.whole.Len() > 0 { // a pipe hands over even nothing, and waits until it is taken
		_, _ = e.writer.Write(e.whole.Bytes())
	}
}

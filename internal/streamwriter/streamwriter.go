// Package streamwriter lets an HTTP response last as long as its client reads it.
package streamwriter

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// Handler returns a handler without limits of time, except that each write must end within the timeout. Without it, the server's own
// limits apply to the whole request.
func Handler(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		controller := http.NewResponseController(w) // its errors do not matter: an httptest.ResponseRecorder has no deadlines
		_ = controller.SetReadDeadline(time.Time{})
		_ = controller.SetWriteDeadline(time.Time{})
		stream := &writer{ResponseWriter: w, controller: controller, timeout: timeout}
		next.ServeHTTP(stream, r)
		if !stream.isHijacked {
			_ = controller.SetWriteDeadline(time.Now().Add(timeout)) // for what is still buffered
		}
	})
}

// writer sets a deadline for each write. Between writes there is none: in HTTP/2 it would end the stream.
type writer struct {
	http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration
	isHijacked bool
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	defer w.limit()()
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *writer) FlushError() error {
	defer w.limit()()
	return w.controller.Flush()
}

// Hijack implements http.Hijacker. Who takes over the connection takes over its limits too.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.controller.Hijack()
	w.isHijacked = err == nil
	return conn, buffered, err
}

// Unwrap returns the writer below for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) limit() (end func()) {
	_ = w.controller.SetWriteDeadline(time.Now().Add(w.timeout))
	return func() { _ = w.controller.SetWriteDeadline(time.Time{}) }
}

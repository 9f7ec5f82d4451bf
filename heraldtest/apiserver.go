// Package heraldtest helps to test node agents without a cluster. It provides an in-memory API server and builders for
// pods. The subpackages provide HTTP faults (fault), an in-memory container runtime (fakeruntime) and a conformance suite
// for runtimes (runtimesuite).
//
// [APIServer] works with client-go's REST client, its Reflector and everything built on them. Resource versions, status
// subresources, content negotiation, watches, expiry and validation errors follow the measured behaviour of the real API
// server.
package heraldtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/kubeapi"
)

// APIServer is an in-memory API server for pods, nodes, leases, events, config maps, secrets, services, runtime classes and
// service account tokens. It is safe for concurrent use.
//
// It opens no sockets and blocks on channels and timers only, so it works inside a testing/synctest bubble if it is created
// there.
//
// It has no authentication, admission or schema validation, sets few defaults, and does not support server-side apply, JSON
// patches and paginated lists. Every client is treated as a node: it cannot change labels through the status.
type APIServer struct {
	pods, nodes, configMaps, secrets, services, events, leases, runtimeClasses *resource

	storage *storage
	codecs  serializer.CodecFactory
	handler http.Handler

	mu       sync.Mutex // guards all fields below
	requests []Request
	down     bool
	cut      chan struct{} // closed to break the open watches; replaced immediately, or when the server comes up again
}

// NewAPIServer returns an empty API server. It needs no cleanup.
func NewAPIServer() *APIServer {
	s := &APIServer{
		pods: newPodResource(), nodes: newNodeResource(), configMaps: newConfigMapResource(), secrets: newSecretResource(),
		services: newServiceResource(), events: newEventResource(), leases: newLeaseResource(),
		runtimeClasses: newRuntimeClassResource(),
		storage:        newStorage(), codecs: kubeapi.NewCodecs(), cut: make(chan struct{}),
	}
	s.handler = s.newHandler()
	return s
}

// Config returns a client-go configuration for the server, without a rate limit.
func (s *APIServer) Config() *rest.Config {
	return &rest.Config{Host: "http://apiserver.test", Transport: s.Transport(), QPS: -1}
}

// Transport returns a transport that sends all requests to the server, whatever their host. Wrap it to inject faults, see
// package fault.
func (s *APIServer) Transport() http.RoundTripper { return transport{server: s} }

// SetDown stops the server, or starts it again with all its objects. While it is down, it refuses connections. Stopping it
// breaks open watches.
func (s *APIServer) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if down && !s.down {
		close(s.cut)
	}
	if s.down && !down {
		s.cut = make(chan struct{})
	}
	s.down = down
}

func (s *APIServer) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// CutWatches breaks the connections of all open watches.
func (s *APIServer) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down {
		close(s.cut)
		s.cut = make(chan struct{})
	}
}

func (s *APIServer) currentCut() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// Compact drops the history of all changes so far, as etcd does periodically. A watch that has not seen them, or starts
// before them, fails with 410 Expired.
func (s *APIServer) Compact() { s.storage.compact() }

// Request is a request that reached the server.
type Request struct {
	Verb                  string // Kubernetes API verb: get, list, watch, create, update, patch or delete
	Resource, Subresource string
	Namespace, Name       string
	Query                 url.Values
}

// Requests returns the requests that reached the server, in order of arrival. If verbs are given, it returns requests with
// these verbs only.
func (s *APIServer) Requests(verbs ...string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(request Request) bool {
		return len(verbs) > 0 && !slices.Contains(verbs, request.Verb)
	})
}

func (s *APIServer) recordRequest(resource *resource, req *http.Request) {
	request := Request{
		Verb: verbOf(req), Resource: resource.name, Subresource: subresourceOf(req),
		Namespace: req.PathValue("namespace"), Name: req.PathValue("name"), Query: req.URL.Query(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
}

func verbOf(req *http.Request) string {
	switch {
	case isWatch(req):
		return "watch"
	case req.Method == http.MethodGet && req.PathValue("name") == "":
		return "list"
	}
	return map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[req.Method]
}

// transport is an in-process connection to the server. As with a real connection, a client that gives up does not stop a
// request that has arrived, and a response can be read while it is written.
type transport struct {
	server *APIServer
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	req = req.Clone(ctx)
	if req.Body == nil {
		req.Body = http.NoBody
	}
	err := context.Cause(ctx)
	if err == nil && t.server.isDown() {
		err = connectionRefused()
	}
	if err != nil {
		_ = req.Body.Close()
		return nil, err
	}
	serveCtx, disconnect := context.WithCancel(ctx)
	e := newExchange(disconnect)
	go e.serve(t.server.handler, req.WithContext(serveCtx))
	select {
	case <-e.ready:
		return e.response(req), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func connectionRefused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// exchange is one request, its response, and the [http.ResponseWriter] of the handler. The serving goroutine owns the
// fields until it closes ready. After that the client may read them, and the two share the pipe only. A response that is
// never flushed is buffered, so the handler does not wait for a client that does not read it.
type exchange struct {
	header    http.Header
	code      int
	buffer    bytes.Buffer
	ready     chan struct{} // closed when the client may read the response
	streaming bool
	body      streamBody
	writer    *io.PipeWriter
}

// streamBody is a response body that is read while it is written. Closing it disconnects the client.
type streamBody struct {
	*io.PipeReader
	disconnect context.CancelFunc
}

// Close implements [io.Closer].
func (b streamBody) Close() error {
	b.disconnect()
	return b.PipeReader.Close()
}

func newExchange(disconnect context.CancelFunc) *exchange {
	e := &exchange{header: http.Header{}, code: http.StatusOK, ready: make(chan struct{})}
	e.body.disconnect = disconnect
	e.body.PipeReader, e.writer = io.Pipe()
	return e
}

// serve runs the handler. The request's context ends when the client cancels or disconnects; that also unblocks a handler
// that waits for the client to read.
func (e *exchange) serve(handler http.Handler, req *http.Request) {
	ctx := req.Context()
	unblock := context.AfterFunc(ctx, func() { e.writer.CloseWithError(context.Cause(ctx)) })
	defer e.body.disconnect()
	defer unblock()
	defer req.Body.Close()
	defer e.finish(ctx)
	handler.ServeHTTP(e, req)
}

// finish ends the response. If the handler panicked with http.ErrAbortHandler, the response breaks off.
func (e *exchange) finish(ctx context.Context) {
	end := io.EOF
	if ctx.Err() != nil {
		end = context.Cause(ctx)
	}
	if recovered := recover(); recovered != nil {
		if recovered != http.ErrAbortHandler { //nolint:errorlint // a panic value; net/http compares it the same way
			panic(recovered)
		}
		e.Flush()
		end = io.ErrUnexpectedEOF
	}
	e.writer.CloseWithError(end)
	if !e.streaming {
		close(e.ready)
	}
}

func (e *exchange) response(req *http.Request) *http.Response {
	resp := &http.Response{
		Status: fmt.Sprintf("%d %s", e.code, http.StatusText(e.code)), StatusCode: e.code, Header: e.header, Request: req,
		Proto: "HTTP/2.0", ProtoMajor: 2, ContentLength: -1, Body: e.body,
	}
	if !e.streaming {
		resp.ContentLength, resp.Body = int64(e.buffer.Len()), io.NopCloser(&e.buffer)
	}
	return resp
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
	return e.buffer.Write(data)
}

// Flush implements [http.Flusher]. From then on, writes go to the client directly.
func (e *exchange) Flush() {
	if e.streaming {
		return
	}
	e.streaming = true
	close(e.ready)
	if e.buffer.Len() > 0 { // a pipe blocks on empty writes too
		_, _ = e.writer.Write(e.buffer.Bytes())
	}
}

package process

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// streamHost is the host in the URLs of streams. Clients connect to the stream socket instead.
const streamHost = "unix"

// Limits of streams, as in other runtimes.
const (
	maxPendingStreams    = 1000
	pendingStreamTimeout = time.Minute
	streamIdleTimeout    = 4 * time.Hour
	readHeaderTimeout    = 10 * time.Second
)

var errStopping = errors.New("the runtime is stopping")

// streamServer serves the streams of Exec, Attach and PortForward on a socket of its own. Each CRI call leaves a request, which
// the client fetches once with the token in the URL.
type streamServer struct {
	runtime *Server
	context context.Context //nolint:containedctx // of run, which ends when the server stops

	mu       sync.Mutex // guards all below
	pending  map[string]pendingStream
	stopping bool
	conns    map[*streamConn]struct{}
	sessions sync.WaitGroup // of running sessions; not added to once stopping
}

type pendingStream struct {
	request any
	expires time.Time
}

func newStreamServer(runtime *Server) *streamServer {
	return &streamServer{runtime: runtime, pending: map[string]pendingStream{}, conns: map[*streamConn]struct{}{}}
}

// Exec returns the URL of a command's streams. The command starts when a client connects.
func (s *Server) Exec(_ context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if len(request.GetCmd()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "cmd is empty")
	}
	if err := s.checkStreams(request); err != nil {
		return nil, err
	}
	url, err := s.streams.add("exec", request)
	return &runtimeapi.ExecResponse{Url: url}, err
}

// Attach returns the URL of the streams of a running container.
func (s *Server) Attach(_ context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if err := s.checkStreams(request); err != nil {
		return nil, err
	}
	url, err := s.streams.add("attach", request)
	return &runtimeapi.AttachResponse{Url: url}, err
}

// PortForward returns the URL for connections to ports of the pod, which are ports of the host.
func (s *Server) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if _, err := s.findSandbox(request.GetPodSandboxId()); err != nil {
		return nil, err
	}
	url, err := s.streams.add("portforward", request)
	return &runtimeapi.PortForwardResponse{Url: url}, err
}

// streamRequest is a request for the streams of a container.
type streamRequest interface {
	GetContainerId() string
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
}

func streamOptions(r streamRequest) *remotecommand.Options {
	return &remotecommand.Options{Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(), TTY: r.GetTty()}
}

func (s *Server) checkStreams(r streamRequest) error {
	c, err := s.findContainer(r.GetContainerId())
	switch {
	case err != nil:
		return err
	case r.GetTty() && r.GetStderr():
		return status.Error(codes.InvalidArgument, "tty and stderr cannot both be true: a terminal has one output")
	case !r.GetStdin() && !r.GetStdout() && !r.GetStderr():
		return status.Error(codes.InvalidArgument, "one of stdin, stdout and stderr must be true")
	case !s.isRunning(c):
		return status.Errorf(codes.FailedPrecondition, "container %q is not running", c.record.ID)
	}
	return nil
}

// add keeps the request until a client fetches it, and returns its URL.
func (s *streamServer) add(kind string, request any) (url string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for token, pending := range s.pending {
		if now.After(pending.expires) {
			delete(s.pending, token)
		}
	}
	if len(s.pending) >= maxPendingStreams {
		return "", status.Error(codes.ResourceExhausted, "too many requests for streams that no client has used")
	}
	token := newID()
	s.pending[token] = pendingStream{request: request, expires: now.Add(pendingStreamTimeout)}
	return "http://" + streamHost + "/" + kind + "/" + token, nil
}

// take returns the request of a token, once.
func (s *streamServer) take(token string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.pending[token]
	delete(s.pending, token)
	if time.Now().After(pending.expires) {
		return nil
	}
	return pending.request
}

// ServeHTTP implements http.Handler.
func (s *streamServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session := &session{server: s, client: r.Context()}
	defer session.end()
	switch request := s.take(r.PathValue("token")).(type) {
	case *runtimeapi.ExecRequest:
		session.options = streamOptions(request)
		remotecommand.ServeExec(w, r, session, "", "", request.GetContainerId(), request.GetCmd(), session.options,
			streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	case *runtimeapi.AttachRequest:
		session.options = streamOptions(request)
		remotecommand.ServeAttach(w, r, session, "", "", request.GetContainerId(), session.options,
			streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	case *runtimeapi.PortForwardRequest:
		portforward.ServePortForward(w, r, session, request.GetPodSandboxId(), "", &portforward.V4Options{Ports: request.GetPort()},
			streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
	default:
		http.Error(w, "the URL of a stream can be used once, within a minute", http.StatusNotFound)
	}
}

// run serves the listener until ctx ends. Then it ends all sessions: a client gets an error as the result of its command rather than
// nothing, which it would take for success (STR-14).
func (s *streamServer) run(ctx context.Context, listener net.Listener) error {
	s.context = ctx
	mux := http.NewServeMux()
	mux.Handle("/{kind}/{token}", s)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: readHeaderTimeout,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context { return conn.(*streamConn).withContext(ctx) },
		ErrorLog:    slog.NewLogLogger(s.runtime.config.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(streamListener{listener, s}) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.sessions.Wait()
	_ = server.Close()
	<-served
	s.closeConns()
	return nil
}

func (s *streamServer) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Conn.Close()
	}
}

// begin reports whether a session may start.
func (s *streamServer) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.sessions.Add(1)
	return true
}

// session is a client's connection with its streams. It implements what the packages remotecommand and portforward call.
type session struct {
	server  *streamServer
	client  context.Context //nolint:containedctx // ends with the client's connection
	options *remotecommand.Options

	begun sync.Once
	begin bool
}

func (x *session) start() error {
	x.begun.Do(func() { x.begin = x.server.begin() })
	if !x.begin {
		return errStopping
	}
	return nil
}

// end is called when the session's result has been sent.
func (x *session) end() {
	x.begun.Do(func() {})
	if x.begin {
		x.server.sessions.Done()
	}
}

// ExecInContainer implements remotecommand.Executor.
//
//nolint:revive // argument-limit: of the interface
func (x *session) ExecInContainer(
	_ context.Context, _, _, containerID string, args []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	if err := x.start(); err != nil {
		return err
	}
	return x.server.runtime.execStreams(x.client, containerID, args, x.streams(in, out, errOut, tty, resize))
}

// AttachContainer implements remotecommand.Attacher.
//
//nolint:revive // argument-limit: of the interface
func (x *session) AttachContainer(
	_ context.Context, _, _, containerID string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	if err := x.start(); err != nil {
		return err
	}
	return x.server.runtime.attachStreams(x.client, containerID, x.streams(in, out, errOut, tty, resize))
}

// PortForward implements portforward.PortForwarder. Its own context never ends.
func (x *session) PortForward(_ context.Context, sandboxID, _ string, port int32, stream io.ReadWriteCloser) error {
	if !x.server.begin() {
		return errStopping
	}
	defer x.server.sessions.Done()
	return x.server.runtime.forwardPort(x.client, sandboxID, port, stream)
}

// streams returns the streams that were asked for. Those of a web socket exist anyway.
func (x *session) streams(
	in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize,
) standardStreams {
	streams := standardStreams{tty: tty, resize: resize}
	if x.options.Stdin {
		streams.stdin = in
	}
	if x.options.Stdout {
		streams.stdout = out
	}
	if x.options.Stderr {
		streams.stderr = errOut
	}
	return streams
}

// streamListener accepts connections that know when they end.
type streamListener struct {
	net.Listener
	server *streamServer
}

func (l streamListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &streamConn{Conn: conn, server: l.server}
	l.server.mu.Lock()
	l.server.conns[tracked] = struct{}{}
	l.server.mu.Unlock()
	return tracked, nil
}

// streamConn ends the contexts of its requests when the client leaves: net/http stops watching a connection that is upgraded.
type streamConn struct {
	net.Conn
	server *streamServer
	cancel context.CancelFunc
}

func (c *streamConn) withContext(ctx context.Context) context.Context {
	ctx, c.cancel = context.WithCancel(ctx)
	return ctx
}

func (c *streamConn) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // net/http uses a deadline to stop reading
		c.cancel()
	}
	return n, err
}

func (c *streamConn) Close() error {
	c.cancel()
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}

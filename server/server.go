package server

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Node is what is asked about. Nobody changes what it returns.
type Node interface {
	// LocalPods are the pods with what the node itself says of them.
	LocalPods() []*v1.Pod
	// WatchLocalPods yields the pods that there are, and then every change, until ctx ends.
	WatchLocalPods(ctx context.Context) iter.Seq[watch.Event]
	// Healthy says what keeps the agent from its work, or nil.
	Healthy() error
}

// Config is what a Server needs. Node is required.
type Config struct {
	Node Node
	// Metrics answers /metrics. Default: nothing is there.
	Metrics http.Handler
	// Logger. Default: silence.
	Logger *slog.Logger
}

// Server answers questions. Any goroutine may use it.
type Server struct {
	config Config
	routes http.Handler
}

// New makes a Server. It listens where Serve is told to.
func New(config Config) (*Server, error) {
	if config.Node == nil {
		return nil, errors.New("server.Config: Node is required")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: config}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.index)
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /healthz", s.healthz)
	if config.Metrics != nil {
		mux.Handle("GET /metrics", config.Metrics)
	}
	s.routes = onlyByLocalNames(mux)
	return s, nil
}

// ServeHTTP answers one question.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

// How long somebody may take to ask, to ask again, and to read a part of his answer.
const (
	askTimeout  = 10 * time.Second
	idleTimeout = 2 * time.Minute
	readTimeout = time.Minute
)

// shutdownTimeout is how long a stopping server waits for the questions that it is about to answer.
const shutdownTimeout = 2 * time.Second

// maxConnections is how many may ask at once. Others wait, so that nobody who may ask can use up the descriptors that the agent
// needs for its pods.
const maxConnections = 64

// Serve answers on the listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: askTimeout, IdleTimeout: idleTimeout, WriteTimeout: readTimeout, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return asking },
		ErrorLog:    slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(netutil.LimitListener(listener, maxConnections)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop() // those who watch would never end by themselves
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close()
	}
	<-ended
	return nil
}

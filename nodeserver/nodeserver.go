package nodeserver

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/internal/httpmetrics"
)

// Agent provides the pods to serve. The server does not modify what it returns.
type Agent interface {
	// LocalPods returns the pods with their local status.
	LocalPods() []*v1.Pod
	// WatchLocalPods yields the existing pods and then every change until ctx ends.
	WatchLocalPods(ctx context.Context) iter.Seq[watch.Event]
}

// Summarizer measures the node and its pods.
type Summarizer interface {
	// Summary returns the use of resources. What could not be measured is left out.
	Summary(ctx context.Context, onlyCPUAndMemory bool) *statsapi.Summary
}

// Config configures a Server. Address, Certificate, Require and Agent are required. A nil handler disables its path.
type Config struct {
	// Address is where to listen, like 0.0.0.0:10250.
	Address string
	// TLS configures connections.
	TLS TLS
	// Require returns a handler that authenticates and authorizes requests before next.
	Require func(next http.Handler) http.Handler
	// UserOf returns the name of the user of a request that Require has let through, for limits per user. Nil limits only all users
	// together.
	UserOf func(context.Context) string

	Agent Agent
	// RunningPods lists the pods that run in the container runtime.
	RunningPods func(context.Context) ([]*v1.Pod, error)
	Summarizer  Summarizer
	// Containers serves logs and streams of containers, see NewContainerHandler.
	Containers http.Handler
	// Configz returns the configuration as the JSON of a KubeletConfiguration.
	Configz func() ([]byte, error)
	// Health serves /healthz.
	Health *Health
	// Metrics are the handlers below /metrics.
	Metrics Metrics
	// Debugging switches handlers off.
	Debugging Debugging
	// Requests counts the requests.
	Requests *RequestMetrics
	// Logger receives log messages. Defaults to a logger that discards them.
	Logger *slog.Logger
}

// RequestMetrics are the kubelet's metrics of the requests to all servers of the agent.
type RequestMetrics = httpmetrics.Requests

// Metrics are handlers of metrics.
type Metrics struct {
	Agent, Probes, Resource http.Handler
}

// Debugging configures the handlers that the kubelet's enableDebuggingHandlers, enableSystemLogHandler and enableProfilingHandler
// switch.
type Debugging struct {
	// Enabled serves everything but health, pods, stats and metrics.
	Enabled bool
	// SystemLogs serves LogDir at /logs/. LogDir defaults to /var/log.
	SystemLogs bool
	LogDir     string
	// Profiling serves /debug/pprof/.
	Profiling bool
}

// Server serves a node over HTTPS. It is an http.Handler, and safe for concurrent use.
type Server struct {
	config  Config
	handler http.Handler
	limits  *limits
	// bindErr is why the address could not be listened on at the last try.
	bindErr atomic.Pointer[error]
}

// New returns a server. Call Run to listen.
func New(config Config) (*Server, error) {
	switch {
	case config.Agent == nil || config.Require == nil || config.TLS.GetCertificate == nil:
		return nil, errors.New("nodeserver.Config: Agent, Require and TLS.GetCertificate are required")
	case config.Address == "":
		return nil, errors.New("nodeserver.Config: Address is required")
	}
	if err := config.TLS.check(); err != nil {
		return nil, err
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.UserOf == nil {
		config.UserOf = func(context.Context) string { return "" }
	}
	if config.Debugging.LogDir == "" {
		config.Debugging.LogDir = "/var/log"
	}
	if config.Health == nil {
		config.Health = NewHealth()
	}
	s := &Server{config: config, limits: newLimits(descriptorLimit())}
	s.handler = s.observe(config.Require(s.limit(s.routes())))
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Listening returns why the server does not listen, or nil.
func (s *Server) Listening() error {
	if err := s.bindErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Package server serves the state of one node over HTTP to local clients: its pods with their local status, the health of the
// agent, metrics, and the query API of docs/queries.md.
//
//	GET /                lists the paths
//	GET /pods            returns a v1.PodList, or with ?watch=true a stream of watch events like the API server's
//	GET /healthz         returns "ok", or status 500 and the error
//	GET /metrics         returns Prometheus metrics; /metrics/probes those of probes
//	GET /metrics/resource   returns the use of resources as the kubelet does, for metrics-server
//	GET /stats/summary      returns the use of resources as the kubelet does; with ?only_cpu_and_memory=true no disks
//	GET /herald/v1/history  returns records of the history, see serveHistory; /herald/v1/events those of events
//	GET /herald/v1/pods     returns views of pods, see servePodViews; /herald/v1/pods/NAMESPACE/NAME one of them
//	GET /herald/v1/node, /herald/v1/sources, /herald/v1/schema
//	GET /herald/v1/explain/NAMESPACE/NAME  says why a pod is as it is
//	GET /herald/v1/load     returns the load of the last 24 hours, see serveLoad
//	GET /herald/v1/alerts, /herald/v1/rules, /herald/v1/silences, /herald/v1/actions
//	GET /herald/v1/watch    streams changes, see serveWatch
//	GET /containerLogs/NAMESPACE/POD/CONTAINER  returns a log as the kubelet does
//	GET, POST /exec, /attach, /run, /portForward  as the kubelet's, by web socket or SPDY
//	POST /herald/v1/restart, /herald/v1/probe  restart a container, check its probes once
//	POST /herald/v1/silences, DELETE /herald/v1/silences/ID  silence alerts, end a silence
//	POST /herald/v1/actions/resume  lets actions happen again that were suspended
//
// Reading needs no authentication. The server therefore listens on loopback addresses and unix sockets only, and rejects requests
// for other host names, which a browser can be tricked into sending. A POST or DELETE, and what runs a command in a container or
// connects to it, is accepted on a unix socket from root and the agent's user, and over TCP with a bearer token. Connections and the
// time to send a request or read a response are bounded, so that a client can delay other clients but not the agent.
package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/netutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/expression"
)

// Agent provides the state to serve. The server does not modify what it returns.
type Agent interface {
	// LocalPods returns the pods with their local status.
	LocalPods() []*v1.Pod
	// WatchLocalPods yields the existing pods and then every change until ctx ends.
	WatchLocalPods(ctx context.Context) iter.Seq[watch.Event]
	// Healthy returns an error if the agent cannot work.
	Healthy() error
}

// Config configures a Server. Agent is required.
type Config struct {
	Agent Agent
	// Metrics serves /metrics, ProbeMetrics /metrics/probes, ResourceMetrics /metrics/resource. Nil disables the path.
	Metrics, ProbeMetrics, ResourceMetrics http.Handler
	// Requests counts the requests. Nil counts none.
	Requests *RequestMetrics
	// Summarizer serves /stats/summary. Nil disables the path.
	Summarizer Summarizer
	// History serves /herald/v1/history and /herald/v1/events. Nil disables the paths.
	History History
	// Inspector serves the query API, with a History also /herald/v1/watch. Nil disables the paths.
	Inspector Inspector
	// Loads adds the loads of pods to their views and serves /herald/v1/load. It requires an Inspector. Nil leaves them out.
	Loads Loads
	// Operator serves requests that change something. Nil disables their paths.
	Operator Operator
	// Alerting serves alerts, rules and silences, Actions serves actions. Nil answers that alerting is off.
	Alerting Alerting
	Actions  Actions
	// Containers serves the kubelet's /containerLogs to all clients, and /exec, /attach, /run and /portForward to those that may change
	// something, see nodeserver.NewContainerHandler. Nil disables the paths.
	Containers http.Handler
	// Token authorizes requests that change something over TCP. Empty refuses them.
	Token string
	// Logger receives log messages. Defaults to a logger that discards them.
	Logger *slog.Logger
}

// Server is an HTTP handler for local clients. It is safe for concurrent use.
type Server struct {
	config      Config
	routes      http.Handler
	expressions *expression.Environment
	// lastSeq is the newest record when the server was created, which may be one of the previous run of the agent.
	lastSeq uint64
}

// New returns a server. Call Serve to accept connections.
func New(config Config) (*Server, error) {
	if config.Agent == nil {
		return nil, errors.New("server.Config: Agent is required")
	}
	if config.Operator != nil && config.Inspector == nil {
		return nil, errors.New("server.Config: an Operator requires an Inspector")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: config}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.serveIndex)
	mux.HandleFunc("GET /pods", s.servePods)
	mux.HandleFunc("GET /healthz", s.serveHealth)
	if config.Metrics != nil {
		mux.Handle("GET /metrics", config.Metrics)
	}
	if config.ProbeMetrics != nil {
		mux.Handle("GET /metrics/probes", config.ProbeMetrics)
	}
	if config.ResourceMetrics != nil {
		mux.Handle("GET /metrics/resource", config.ResourceMetrics)
	}
	if config.Summarizer != nil {
		mux.HandleFunc("GET /stats/summary", s.serveSummary)
	}
	if config.History != nil {
		s.lastSeq = config.History.LastSeq()
		mux.HandleFunc("GET "+apiPrefix+"history", s.serveHistory)
		mux.HandleFunc("GET "+apiPrefix+"events", s.serveEvents)
	}
	if config.Inspector != nil {
		var err error
		if s.expressions, err = expression.NewEnvironment(); err != nil {
			return nil, err
		}
		s.addQueries(mux)
		s.addAlerting(mux)
	}
	if config.Operator != nil {
		mux.HandleFunc("POST "+apiPrefix+"restart", s.authorized(s.serveRestart))
		mux.HandleFunc("POST "+apiPrefix+"probe", s.authorized(s.serveProbe))
	}
	if config.Containers != nil {
		s.addContainers(mux)
	}
	s.routes = RequireLocalHost(observe(config.Requests, mux))
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	writeTimeout      = time.Minute // per response, and per event of a watch
	shutdownTimeout   = 2 * time.Second
	// maxConnections bounds concurrent connections. Further ones wait, so that clients cannot use up the descriptors that the
	// agent needs.
	maxConnections = 64
)

// Serve serves the listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return Serve(ctx, listener, nil, s, s.config.Logger)
}

// Serve serves the listener with the handler until ctx ends, and closes it. Connections use TLS if it is configured. Their
// number and the times of requests are bounded; a handler that streams must extend the write deadline.
func Serve(ctx context.Context, listener net.Listener, tlsConfig *tls.Config, handler http.Handler, logger *slog.Logger) error {
	listener = netutil.LimitListener(peerListener{listener}, maxConnections)
	if tlsConfig != nil {
		listener = tls.NewListener(listener, tlsConfig) // outermost: http.Server looks for it to speak HTTP/2
	}
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, WriteTimeout: writeTimeout,
		MaxHeaderBytes: 64 << 10,
		BaseContext:    func(net.Listener) context.Context { return requests },
		ConnContext:    withPeer,
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	cancelRequests() // watches do not end by themselves
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		_ = server.Close()
	}
	<-served
	return nil
}

func (s *Server) serveIndex(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("/pods\n/pods?watch=true\n/healthz\n"))
	if s.config.Metrics != nil {
		_, _ = w.Write([]byte("/metrics\n"))
	}
	if s.config.ProbeMetrics != nil {
		_, _ = w.Write([]byte("/metrics/probes\n"))
	}
	if s.config.ResourceMetrics != nil {
		_, _ = w.Write([]byte("/metrics/resource\n"))
	}
	if s.config.Summarizer != nil {
		_, _ = w.Write([]byte("/stats/summary\n"))
	}
	if s.config.History != nil {
		_, _ = w.Write([]byte("/herald/v1/history\n/herald/v1/events\n"))
	}
	if s.config.Inspector != nil {
		_, _ = w.Write([]byte("/herald/v1/pods\n/herald/v1/node\n/herald/v1/explain/NAMESPACE/NAME\n/herald/v1/sources\n/herald/v1/schema\n"))
		if s.config.Loads != nil {
			_, _ = w.Write([]byte("/herald/v1/load\n"))
		}
		if s.config.Alerting != nil {
			_, _ = w.Write([]byte("/herald/v1/alerts\n/herald/v1/rules\n/herald/v1/silences\n"))
		}
		if s.config.Actions != nil {
			_, _ = w.Write([]byte("/herald/v1/actions\n"))
		}
		if s.config.History != nil {
			_, _ = w.Write([]byte("/herald/v1/watch\n"))
		}
	}
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if err := s.config.Agent.Healthy(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// servePods serves a list or a watch (PM-16).
func (s *Server) servePods(w http.ResponseWriter, r *http.Request) {
	isWatch := false
	if value := r.URL.Query().Get("watch"); value != "" {
		var err error
		if isWatch, err = strconv.ParseBool(value); err != nil {
			http.Error(w, "watch must be true or false", http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if isWatch {
		if r.Method != http.MethodHead {
			s.servePodWatch(w, r)
		}
		return
	}
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
	for _, pod := range s.config.Agent.LocalPods() {
		list.Items = append(list.Items, *pod)
	}
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.config.Logger.Debug("Failed to write pods", "err", err)
	}
}

// watchEvent is an event in the API server's encoding.
type watchEvent struct {
	Type   string         `json:"type"`
	Object runtime.Object `json:"object"`
}

func (s *Server) servePodWatch(w http.ResponseWriter, r *http.Request) {
	controller := http.NewResponseController(w)
	if controller.Flush() != nil { // send the header even if there are no events yet
		return
	}
	encoder := json.NewEncoder(w)
	for event := range s.config.Agent.WatchLocalPods(r.Context()) {
		pod := *event.Object.(*v1.Pod)
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // an httptest.ResponseRecorder has no deadlines
		if encoder.Encode(watchEvent{Type: string(event.Type), Object: &pod}) != nil || controller.Flush() != nil {
			return
		}
	}
}

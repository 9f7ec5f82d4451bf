// Package localapi serves the pods, events and the Node of one machine in the form of the Kubernetes API, so that an unmodified
// kubectl and client-go informers work against a node without any API server.
//
// Objects are read-only: get, list and watch of pods, nodes, events and namespaces, as objects, tables and metadata, with
// label and field selectors, get and list of the use of resources for kubectl top, discovery and OpenAPI documents. The logs of
// containers, commands in them and connections to their ports are passed to a handler in the form of the kubelet's server. Other
// requests are answered with an explanation.
package localapi

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Agent provides the pods. The server does not modify them.
type Agent interface {
	// LocalPods returns the pods with their local status.
	LocalPods() []*v1.Pod
	// WatchLocalPods yields the existing pods and then every change until ctx ends.
	WatchLocalPods(ctx context.Context) iter.Seq[watch.Event]
}

// Config configures a Server. Agent is required.
type Config struct {
	Agent Agent
	// Node yields the Node, and again whenever it changes; nil means that there is none. Default: no nodes.
	Node func(ctx context.Context) iter.Seq[*v1.Node]
	// Events yields recent events and then every event that occurs. Default: no events.
	Events func(ctx context.Context) iter.Seq[v1.Event]
	// Stats provides the use of resources for metrics.k8s.io, which kubectl top reads. Nil leaves the group out.
	Stats Stats
	// Containers serves container logs, exec, attach and port-forward in the form of the kubelet's server:
	// /containerLogs/{namespace}/{pod}/{container}, /exec, /attach and /portForward. Nil leaves them out.
	Containers http.Handler
	// MaxEvents is the number of events that are kept. Defaults to 1000.
	MaxEvents int
	// User is the name that kubectl auth whoami prints. Defaults to herald:owner.
	User string
}

// Server is an HTTP handler. It serves only what Run has read: requests before that wait. It does not authenticate.
type Server struct {
	config Config
	store  *store
	// synced is closed when the existing pods were read.
	synced chan struct{}
}

// New returns a Server.
func New(config Config) (*Server, error) {
	if config.Agent == nil {
		return nil, errors.New("localapi.Config: Agent is required")
	}
	if config.MaxEvents < 0 {
		return nil, errors.New("localapi.Config: MaxEvents must not be negative")
	}
	config.MaxEvents = cmp.Or(config.MaxEvents, 1000)
	config.User = cmp.Or(config.User, "herald:owner")
	// Versions must not fall when the agent restarts: clients resume watches with the versions of the previous process (KCT-20).
	return &Server{config: config, store: newStore(uint64(time.Now().UnixMicro())), synced: make(chan struct{})}, nil
}

// Run follows pods, events and the Node until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var following sync.WaitGroup
	following.Go(func() { s.followPods(ctx) })
	if s.config.Node != nil {
		following.Go(func() { s.followNode(ctx) })
	}
	if s.config.Events != nil {
		following.Go(func() { s.followEvents(ctx) })
	}
	following.Wait()
	s.store.close()
	return nil
}

// syncTimeout bounds how long a request waits until the pods are known.
const syncTimeout = 10 * time.Second

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	switch {
	case path == "version":
		s.serveVersion(w)
	case path == "healthz" || path == "livez" || path == "readyz":
		_, _ = w.Write([]byte("ok"))
	case path == "api" || path == "apis" || path == "api/v1" || s.groupOf(path) != nil:
		s.serveDiscovery(w, r, path)
	case path == "openapi/v3" || strings.HasPrefix(path, "openapi/v3/"):
		serveOpenAPI(w, path)
	case strings.HasPrefix(path, metricsPath) && s.config.Stats != nil:
		s.serveMetrics(w, r, path)
	case strings.HasPrefix(path, "apis/"):
		s.serveReview(w, r, path)
	case strings.HasPrefix(path, "api/v1/"):
		s.serveObjects(w, r, strings.Split(path, "/")[2:])
	default:
		writeError(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "",
			"the server could not find the requested resource", 0, true))
	}
}

// request is a request for objects.
type request struct {
	kind            *kind
	namespace, name string
	subresource     string
}

// parsePath parses what follows /api/v1/ or another group and version. It returns nil for an unknown resource.
func parsePath(parts []string, kinds map[string]*kind) *request {
	r := &request{}
	if parts[0] == "namespaces" && len(parts) > 2 {
		r.namespace, parts = parts[1], parts[2:]
	}
	if r.kind = kinds[parts[0]]; r.kind == nil || len(parts) > 3 || r.namespace != "" && !r.kind.namespaced {
		return nil
	}
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.subresource = parts[2]
	}
	if r.name != "" && r.kind.namespaced && r.namespace == "" {
		return nil
	}
	return r
}

func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request, parts []string) {
	req := parsePath(parts, kinds)
	if req == nil {
		writeError(w, apierrors.NewNotFound(schema.GroupResource{Resource: parts[0]}, ""))
		return
	}
	if sub := s.subresourceOf(req.kind, req.subresource); sub != nil {
		s.serveContainers(w, r, req, sub)
		return
	}
	switch {
	case req.subresource == "proxy":
		writeError(w, apierrors.NewForbidden(req.resource(), req.name, errors.New("this node does not proxy requests")))
	case req.subresource == "scale": // kubectl scale gets it before it changes it
		writeNotAllowed(w, req, "scale")
	case req.subresource == "ephemeralcontainers": // kubectl debug
		writeNotAllowed(w, req, "adding ephemeral containers")
	case req.subresource != "" && (req.subresource != "status" || r.Method != http.MethodGet):
		writeError(w, apierrors.NewNotFound(schema.GroupResource{Resource: req.kind.resource + "/" + req.subresource}, req.name))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		writeNotAllowed(w, req, r.Method)
	default:
		if !s.waitForSync(r.Context()) {
			writeError(w, apierrors.NewServiceUnavailable("the pods of this node are not known yet"))
			return
		}
		s.serveRead(w, r, req)
	}
}

func (s *Server) waitForSync(ctx context.Context) bool {
	select {
	case <-s.synced:
		return true
	case <-ctx.Done():
	case <-time.After(syncTimeout):
	}
	return false
}

func (s *Server) serveRead(w http.ResponseWriter, r *http.Request, req *request) {
	format, err := negotiate(r)
	if err != nil {
		writeError(w, err)
		return
	}
	if req.name != "" {
		s.serveObject(w, req, format)
		return
	}
	options, err := parseOptions(r.URL.Query(), req)
	if err != nil {
		writeError(w, err)
		return
	}
	if options.watch {
		s.serveWatch(w, r, options, format)
		return
	}
	s.serveList(w, options, format)
}

func (r *request) resource() schema.GroupResource {
	return schema.GroupResource{Group: r.kind.groupVersion.Group, Resource: r.kind.resource}
}

// writeNotAllowed explains where the objects come from (KCT-30). The operation is an HTTP method or a verb.
func writeNotAllowed(w http.ResponseWriter, req *request, operation string) {
	verbs := map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}
	err := apierrors.NewMethodNotSupported(req.resource(), cmp.Or(verbs[operation], operation))
	err.ErrStatus.Message += ": this node is read-only; " + req.kind.origin
	allowed := "GET, HEAD"
	if req.subresource != "" {
		allowed = ""
	}
	w.Header().Set("Allow", allowed)
	writeError(w, err)
}

// writeError writes the error as a Status (KCT-13).
func writeError(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	writeJSON(w, int(status.Code), &status)
}

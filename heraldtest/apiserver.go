// Package heraldtest is for testing what talks to Kubernetes as a node's agent does, without a cluster.
//
// Its API server is a small working one, in memory: client-go's REST client, its Reflector and everything above them run
// on it unchanged. It keeps an object and its status apart, numbers its versions, negotiates formats, watches, expires
// and refuses as the real one was measured to; what it does not have is said at [APIServer].
package heraldtest

import (
	"net/http"
	"net/url"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/kubeapi"
)

// APIServer is an API server in memory, for pods, nodes and their leases, for what pods refer to (config maps, secrets,
// services, tokens of service accounts), and for events. Any goroutine may call it.
//
// It listens on no socket and waits on nothing but channels and timers, so that it works inside a synctest bubble if it
// was made there. It has no authentication, no admission and no schema validation, and sets few defaults; it knows
// neither server-side apply nor JSON patches nor pages of a list. Every client is treated as a node: labels cannot be
// changed through status.
type APIServer struct {
	pods, nodes, configMaps, secrets, services, events, leases *resource

	store  *store
	codecs serializer.CodecFactory
	door   http.Handler

	mu       sync.Mutex // guards all below
	requests []Request
	down     bool
	cut      chan struct{} // closed to end the watches of the moment; replaced at once, or when the server is up again
}

// NewAPIServer makes an empty API server. There is nothing to close.
func NewAPIServer() *APIServer {
	s := &APIServer{
		pods: podResource(), nodes: nodeResource(), configMaps: configMapResource(), secrets: secretResource(),
		services: serviceResource(), events: eventResource(), leases: leaseResource(),
		store: newStore(), codecs: kubeapi.NewCodecs(), cut: make(chan struct{}),
	}
	s.door = s.routes()
	return s
}

// Transport leads to the server from any HTTP client, whatever the host in the request's URL. Wrap it to have requests
// delayed, lost or repeated on the way.
func (s *APIServer) Transport() http.RoundTripper { return transport{server: s} }

// Config makes a client-go client talk to the server, without a limit on its rate.
func (s *APIServer) Config() *rest.Config {
	return &rest.Config{Host: "http://apiserver.test", Transport: s.Transport(), QPS: -1}
}

// SetDown takes the server down or brings it back with all that it had stored. While it is down, connections are
// refused; going down breaks the watches.
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

// CutWatches breaks the connections of all watches that are in progress.
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

// Compact forgets all changes up to now, as etcd does every few minutes. A watch that has not seen them, or starts before
// them, ends with 410 Expired.
func (s *APIServer) Compact() { s.store.compact() }

// Request is a request that reached the server.
type Request struct {
	Verb                  string // Kubernetes' word: get, list, watch, create, update, patch, delete
	Resource, Subresource string
	Namespace, Name       string
	Query                 url.Values
}

// Requests returns what reached the server so far, in order of arrival: only these verbs, or all.
func (s *APIServer) Requests(verbs ...string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r Request) bool {
		return len(verbs) > 0 && !slices.Contains(verbs, r.Verb)
	})
}

func (s *APIServer) record(r *resource, request *http.Request) {
	seen := Request{
		Verb: verbOf(request), Resource: r.name, Subresource: subresourceOf(request),
		Namespace: request.PathValue("namespace"), Name: request.PathValue("name"), Query: request.URL.Query(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, seen)
}

func verbOf(request *http.Request) string {
	switch {
	case isWatch(request):
		return "watch"
	case request.Method == http.MethodGet && request.PathValue("name") == "":
		return "list"
	}
	return map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[request.Method]
}

package nodeserver

import (
	"fmt"
	"log/slog"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/containerlog"
	"github.com/heraldnode/herald/internal/streamwriter"
	"github.com/heraldnode/herald/stream"
)

// Pods finds pods for their logs and streams.
type Pods interface {
	// GetPodByName returns the pod with its local status. Pods that have ended are found as long as the node knows them.
	GetPodByName(namespace, name string) (*v1.Pod, bool)
}

// ContainerConfig configures NewContainerHandler. Pods is required. Without Logs or Streams their paths answer 404.
type ContainerConfig struct {
	Pods    Pods
	Logs    *containerlog.Logs
	Streams *stream.Proxy
	// Logger receives log messages. Defaults to a logger that discards them.
	Logger *slog.Logger
}

// NewContainerHandler returns a handler of the kubelet's paths of containers:
//
//	GET /containerLogs/{namespace}/{pod}/{container}
//	GET, POST /exec/{namespace}/{pod}[/{uid}]/{container}, /attach/...
//	GET, POST /portForward/{namespace}/{pod}[/{uid}]
//	POST /run/{namespace}/{pod}[/{uid}]/{container}
//
// It does not authenticate: the caller must have. The writer must be an http.Hijacker for exec, attach and portForward. Limits of time
// that the server has for requests are lifted; only each write has one.
func NewContainerHandler(config ContainerConfig) http.Handler {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	for _, path := range containerPaths {
		mux.HandleFunc(path, pageNotFound)
	}
	if config.Logs != nil {
		mux.Handle(pathContainerLogs+containerPattern, only(serveLog(config), http.MethodGet))
	}
	if config.Streams != nil {
		addStreams(mux, config.Streams)
	}
	return streamwriter.Handler(mux, containerWriteTimeout)
}

func serveLog(config ContainerConfig) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pod, found := config.Pods.GetPodByName(r.PathValue("namespace"), r.PathValue("pod"))
		if found {
			config.Logs.Serve(w, r, pod, r.PathValue("container"))
			return
		}
		if _, err := containerlog.ParseOptions(r.URL.Query()); err != nil { // the kubelet looks at them first
			containerlog.WriteError(w, err)
			return
		}
		writeError(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")))
	})
}

const (
	podPattern       = "{namespace}/{pod}"
	containerPattern = podPattern + "/{container}"
)

// addStreams adds the paths of streams. The UID in a path is optional.
func addStreams(mux *http.ServeMux, streams *stream.Proxy) {
	type serve func(http.ResponseWriter, *http.Request, stream.Target)
	for path, handler := range map[string]serve{pathExec: streams.ServeExec, pathAttach: streams.ServeAttach, pathRun: streams.ServeRun} {
		methods := []string{http.MethodGet, http.MethodPost}
		if path == pathRun {
			methods = []string{http.MethodPost}
		}
		for _, pattern := range []string{containerPattern, podPattern + "/{uid}/{container}"} {
			mux.Handle(path+pattern, only(withTarget(handler), methods...))
		}
	}
	for _, pattern := range []string{podPattern, podPattern + "/{uid}"} {
		mux.Handle(pathPortForward+pattern, only(withTarget(streams.ServePortForward), http.MethodGet, http.MethodPost))
	}
}

// withTarget passes on what the path names.
func withTarget(serve func(http.ResponseWriter, *http.Request, stream.Target)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, stream.Target{
			Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), UID: types.UID(r.PathValue("uid")), Container: r.PathValue("container"),
		})
	})
}

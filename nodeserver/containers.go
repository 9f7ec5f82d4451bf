package nodeserver

import (
	"fmt"
	"log/slog"
	"net/http"

	v1 "k8s.io/api/core/v1"
)

// Pods finds pods for their logs and streams.
type Pods interface {
	// GetPodByName returns the pod with its local status. Pods that have ended are found as long as the node knows them.
	GetPodByName(namespace, name string) (*v1.Pod, bool)
}

// ContainerConfig configures NewContainerHandler. Pods is required. Without Logs or Streams their paths answer 404.
type ContainerConfig struct {
	Pods Pods
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
// It does not authenticate: the caller must have. The writer must let a response last, see package streamwriter, and must be an
// http.Hijacker for exec, attach and portForward.
func NewContainerHandler(config ContainerConfig) http.Handler {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c := &containerHandler{config}
	mux := http.NewServeMux()
	for _, path := range containerPaths {
		mux.HandleFunc(path, pageNotFound)
	}
	mux.Handle(pathContainerLogs+"{namespace}/{pod}/{container}", only(http.HandlerFunc(c.serveLog), http.MethodGet))
	return mux
}

type containerHandler struct{ config ContainerConfig }

// pod returns the pod of the request.
func (c *containerHandler) pod(r *http.Request) (*v1.Pod, bool) {
	return c.config.Pods.GetPodByName(r.PathValue("namespace"), r.PathValue("pod"))
}

func (c *containerHandler) serveLog(w http.ResponseWriter, r *http.Request) {
	if _, found := c.pod(r); !found {
		writeError(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", r.PathValue("pod")))
		return
	}
	writeError(w, http.StatusNotImplemented, "logs are not served yet")
}

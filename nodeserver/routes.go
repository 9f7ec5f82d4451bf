package nodeserver

import (
	"net/http"
	"slices"
	"strings"

	"github.com/heraldnode/herald/internal/httpmetrics"
	"github.com/heraldnode/herald/internal/streamwriter"
)

// Paths below which requests last as long as their clients want.
const (
	pathRun           = "/run/"
	pathExec          = "/exec/"
	pathAttach        = "/attach/"
	pathPortForward   = "/portForward/"
	pathContainerLogs = "/containerLogs/"
	pathRunningPods   = "/runningpods/"
	pathLogs          = "/logs/"
	pathProfiles      = "/debug/pprof/"
)

// containerPaths are those of NewContainerHandler.
var containerPaths = []string{pathRun, pathExec, pathAttach, pathPortForward, pathContainerLogs}

// routes returns the handler of all paths, without authentication.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", notFound)
	s.config.Health.install(mux)
	mux.Handle("/metrics/slis", s.config.Health.slis())
	mux.Handle("/pods", only(http.HandlerFunc(s.servePods), http.MethodGet))
	mux.HandleFunc("/pods/", pageNotFound)
	if s.config.Summarizer != nil {
		mux.Handle("/stats/summary", only(http.HandlerFunc(s.serveSummary), http.MethodGet, http.MethodPost))
		mux.HandleFunc("/stats/", pageNotFound)
	}
	for path, handler := range map[string]http.Handler{
		"/metrics": s.config.Metrics.Agent, "/metrics/probes": s.config.Metrics.Probes, "/metrics/resource": s.config.Metrics.Resource,
	} {
		if handler != nil {
			mux.Handle(path, handler)
		}
	}
	if s.config.Debugging.Enabled {
		s.addDebugging(mux)
	} else {
		for _, path := range append([]string{pathRunningPods, pathProfiles, pathLogs}, containerPaths...) {
			mux.HandleFunc(path, disabled("Debug endpoints are disabled."))
		}
	}
	return mux
}

// addDebugging adds what enableDebuggingHandlers switches (SRV-32).
func (s *Server) addDebugging(mux *http.ServeMux) {
	if s.config.Containers != nil {
		for _, path := range containerPaths {
			mux.Handle(path, s.config.Containers)
		}
	}
	if s.config.Configz != nil {
		mux.HandleFunc("/configz", s.serveConfigz)
	}
	if s.config.RunningPods != nil {
		mux.Handle(pathRunningPods+"{$}", only(http.HandlerFunc(s.serveRunningPods), http.MethodGet))
		mux.HandleFunc(pathRunningPods, pageNotFound)
	}
	if s.config.Debugging.SystemLogs {
		mux.Handle(pathLogs, only(http.HandlerFunc(s.serveLogs), http.MethodGet))
	} else {
		mux.HandleFunc(pathLogs, disabled("logs endpoint is disabled."))
	}
	if s.config.Debugging.Profiling {
		mux.Handle(pathProfiles, only(http.HandlerFunc(serveProfile), http.MethodGet))
	} else {
		mux.HandleFunc(pathProfiles, disabled("profiling endpoint is disabled."))
	}
}

// isStream reports whether a request may last as long as its client wants. It counts towards the limits of streams, and its writes have
// deadlines of their own.
func isStream(r *http.Request) bool {
	path := r.URL.Path
	return path == "/pods" && isWatch(r) || strings.HasPrefix(path, pathProfiles) || strings.HasPrefix(path, pathLogs) || isContainer(path)
}

func isContainer(path string) bool {
	return slices.ContainsFunc(containerPaths, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// only answers 405 to other methods, as the kubelet does.
func only(next http.Handler, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			writeError(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// disabled answers for paths that are switched off.
func disabled(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, message, http.StatusMethodNotAllowed) }
}

// notFound answers for paths that the server does not have.
func notFound(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// pageNotFound answers for paths below one that the server has.
func pageNotFound(w http.ResponseWriter, _ *http.Request) {
	writeError(w, http.StatusNotFound, "404: Page Not Found")
}

// writeError writes an error in the form of the kubelet: plain text without a newline.
func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(message))
}

// observe counts the requests (SRV-36).
func (s *Server) observe(next http.Handler) http.Handler {
	return s.config.Requests.Observe(httpmetrics.Server{
		Type:    "readwrite",
		Methods: []string{"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"},
		Path:    func(r *http.Request) string { return pathLabel(r.URL.Path) }, IsLongRunning: isStream,
	}, next)
}

// knownPaths are the values of the label path besides other.
var knownPaths = []string{
	"healthz", "pods", "stats", "metrics", "metrics/probes", "metrics/resource", "metrics/slis", "run", "exec", "attach", "portForward",
	"containerLogs", "configz", "runningpods", "logs", "debug",
}

// pathLabel returns the first segment of a path, and two below metrics.
func pathLabel(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if second, _, _ := strings.Cut(rest, "/"); first == "metrics" && second != "" {
		first += "/" + second
	}
	if slices.Contains(knownPaths, first) {
		return first
	}
	return httpmetrics.Other
}

// limit bounds the number of requests, and lets streams last.
func (s *Server) limit(next http.Handler) http.Handler {
	streams := streamwriter.Handler(next, writeTimeout)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pool, handler := s.limits.short, next
		switch {
		case isContainer(r.URL.Path):
			pool = s.limits.streams // the handler lifts the limits of time itself
		case isStream(r):
			pool, handler = s.limits.streams, streams
		}
		user := s.config.UserOf(r.Context())
		if !pool.acquire(user) {
			w.Header().Set("Retry-After", "1")
			writeError(w, http.StatusTooManyRequests, "too many requests at a time, please try again later")
			return
		}
		defer pool.release(user)
		handler.ServeHTTP(w, r)
	})
}

package server

import (
	"net/http"
	"slices"
	"strings"
)

const containerLogsPath = "/containerLogs/"

// commandPaths are the paths of Config.Containers that run something in a pod or connect to it. The method does not tell who may do it:
// a web socket begins with a GET.
var commandPaths = []string{"/exec/", "/attach/", "/portForward/", "/run/"}

// addContainers adds the logs of containers, which are read like pods, and the paths that take root or the agent's user.
func (s *Server) addContainers(mux *http.ServeMux) {
	containers := s.config.Containers
	mux.Handle("GET "+containerLogsPath, containers)
	for _, path := range commandPaths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if err := s.checkClient(r); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			r.Header.Del("Authorization") // it is not for the container runtime
			containers.ServeHTTP(w, r)
		})
	}
}

// isContainerStream reports whether the request is one of Config.Containers.
func isContainerStream(path string) bool {
	return strings.HasPrefix(path, containerLogsPath) ||
		slices.ContainsFunc(commandPaths, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

package nodeserver

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const jsonType = "application/json"

// servePods serves a list or a watch with the node's own statuses (SRV-30).
func (s *Server) servePods(w http.ResponseWriter, r *http.Request) {
	if !requireJSON(w, r) {
		return
	}
	if isWatch(r) {
		s.servePodWatch(w, r)
		return
	}
	s.writePods(w, s.config.Agent.LocalPods())
}

// serveRunningPods serves what runs in the container runtime, which need not be what should.
func (s *Server) serveRunningPods(w http.ResponseWriter, r *http.Request) {
	if !requireJSON(w, r) {
		return
	}
	pods, err := s.config.RunningPods(r.Context())
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	s.writePods(w, pods)
}

func (s *Server) writePods(w http.ResponseWriter, pods []*v1.Pod) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: make([]v1.Pod, 0, len(pods))}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	w.Header().Set("Content-Type", jsonType)
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.config.Logger.Debug("Failed to write pods", "err", err)
	}
}

// isWatch reports whether the request is for changes too. A value that is no boolean is one for the list, as with unknown parameters.
func isWatch(r *http.Request) bool {
	watch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
	return watch
}

// watchEvent is an event in the API server's encoding.
type watchEvent struct {
	Type   string         `json:"type"`
	Object runtime.Object `json:"object"`
}

func (s *Server) servePodWatch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	controller := http.NewResponseController(w)
	if controller.Flush() != nil { // send the header even if there are no events yet
		return
	}
	encoder := json.NewEncoder(w)
	for event := range s.config.Agent.WatchLocalPods(r.Context()) {
		pod := *event.Object.(*v1.Pod)
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		if encoder.Encode(watchEvent{Type: string(event.Type), Object: &pod}) != nil || controller.Flush() != nil {
			return
		}
	}
}

// requireJSON answers 406 unless the client accepts JSON (SRV-31).
func requireJSON(w http.ResponseWriter, r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if accept == "" {
		return true
	}
	for part := range strings.SplitSeq(accept, ",") {
		mediaType, _, err := mime.ParseMediaType(part)
		if err == nil && (mediaType == jsonType || mediaType == "*/*" || mediaType == "application/*") {
			return true
		}
	}
	writeError(w, http.StatusNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+jsonType)
	return false
}

package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// index says what can be asked.
func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("/pods\n/pods?watch=true\n/healthz\n"))
	if s.config.Metrics != nil {
		_, _ = w.Write([]byte("/metrics\n"))
	}
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := s.config.Node.Healthy(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// pods answers with a list, or with a stream if that is asked for.
func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	following := false
	if asked := r.URL.Query().Get("watch"); asked != "" {
		var err error
		if following, err = strconv.ParseBool(asked); err != nil {
			http.Error(w, "watch must be true or false", http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if following {
		if r.Method != http.MethodHead { // which asks for the beginning only
			s.follow(w, r)
		}
		return
	}
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
	for _, pod := range s.config.Node.LocalPods() {
		list.Items = append(list.Items, *pod)
	}
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.config.Logger.Debug("Somebody left before the answer", "err", err)
	}
}

// event is a watch event as the API server writes it.
type event struct {
	Type   string         `json:"type"`
	Object runtime.Object `json:"object"`
}

func (s *Server) follow(w http.ResponseWriter, r *http.Request) {
	connection := http.NewResponseController(w)
	if connection.Flush() != nil { // so that who asks knows that he is heard, also when nothing happens
		return
	}
	lines := json.NewEncoder(w)
	for change := range s.config.Node.WatchLocalPods(r.Context()) {
		pod := *change.Object.(*v1.Pod)
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		_ = connection.SetWriteDeadline(time.Now().Add(readTimeout)) // each change has its own; a test's recorder has none
		if lines.Encode(event{Type: string(change.Type), Object: &pod}) != nil || connection.Flush() != nil {
			return
		}
	}
}

package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/query"
	"github.com/heraldnode/herald/view"
)

// Loads has the use of resources of the node and its pods.
type Loads interface {
	// AddLoads adds their loads to views of pods. It makes measurements more frequent for a while, so it is called only for clients
	// that ask for loads.
	AddLoads(pods []view.PodView)
	// NodeLoadHistory and PodLoadHistory return loads of the last 24 hours. They return false for a pod that the node does not have.
	NodeLoadHistory(since time.Time) view.LoadHistory
	PodLoadHistory(name podid.FullName, since time.Time) (view.LoadHistory, bool)
}

// parseLoad reports whether a request needs the loads of pods: load=true, or an expression that reads them.
func (s *Server) parseLoad(values url.Values, filter *query.Filter) (isNeeded bool, err error) {
	if text := values.Get("load"); text != "" {
		if isNeeded, err = strconv.ParseBool(text); err != nil {
			return false, fmt.Errorf("load must be true or false")
		}
	}
	return s.config.Loads != nil && (isNeeded || filter != nil && filter.NeedsLoad()), nil
}

// addLoad adds the load of one pod.
func (s *Server) addLoad(pod view.PodView) view.PodView {
	pods := []view.PodView{pod}
	s.config.Loads.AddLoads(pods)
	return pods[0]
}

// serveLoad serves the load of the node, or of one pod, over the last 24 hours. Parameters, all optional:
//
//	namespace, pod   the pod
//	since            RFC 3339, or how long ago, like 6h
func (s *Server) serveLoad(w http.ResponseWriter, r *http.Request) {
	values, now := r.URL.Query(), time.Now()
	since, err := query.ParseTime("since", values.Get("since"), now)
	name := podid.FullName{Namespace: values.Get("namespace"), Name: values.Get("pod")}
	if (name.Namespace == "") != (name.Name == "") && err == nil {
		err = errors.New("pod and namespace require each other")
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if earliest := now.Add(-load.TrackDuration); since.Before(earliest) {
		since = earliest
	}
	if name.Name == "" {
		s.writeJSON(w, s.config.Loads.NodeLoadHistory(since))
		return
	}
	history, found := s.config.Loads.PodLoadHistory(name, since)
	if !found {
		writeError(w, http.StatusNotFound, s.notFound(r.Context(), name))
		return
	}
	s.writeJSON(w, history)
}

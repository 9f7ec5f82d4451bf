package server

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/heraldnode/herald/query"
	"github.com/heraldnode/herald/view"
)

// Loads has the use of resources of the node's pods.
type Loads interface {
	// AddLoads adds their loads to views of pods. It makes measurements more frequent for a while, so it is called only for clients
	// that ask for loads.
	AddLoads(pods []view.PodView)
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

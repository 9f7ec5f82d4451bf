package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/query"
	"github.com/heraldnode/herald/view"
)

// Inspector answers questions about the node and its pods. The server does not modify what it returns.
type Inspector interface {
	// Pods returns all pods of the node.
	Pods(ctx context.Context) []view.PodView
	// Pod returns one pod, and false if the node does not have it.
	Pod(ctx context.Context, name podid.FullName) (view.PodView, bool)
	Node(ctx context.Context) view.NodeView
	// Explain answers a question about a pod. It returns false if the node never had it; a pod that left has a verdict.
	Explain(ctx context.Context, name podid.FullName, question explain.Question) (explain.Verdict, bool)
	Sources() []view.Source
}

// apiPrefix is the path of the query API.
const apiPrefix = "/herald/v1/"

// addQueries adds the routes of the query API.
func (s *Server) addQueries(mux *http.ServeMux) {
	mux.HandleFunc("GET "+apiPrefix+"pods", s.servePodViews)
	mux.HandleFunc("GET "+apiPrefix+"pods/{namespace}/{name}", s.servePodView)
	mux.HandleFunc("GET "+apiPrefix+"node", s.serveNode)
	mux.HandleFunc("GET "+apiPrefix+"explain/{namespace}/{name}", s.serveExplanation)
	mux.HandleFunc("GET "+apiPrefix+"sources", s.serveSources)
	mux.HandleFunc("GET "+apiPrefix+"schema", s.serveSchema)
	if s.config.Loads != nil {
		mux.HandleFunc("GET "+apiPrefix+"load", s.serveLoad)
	}
	if s.config.History != nil {
		mux.HandleFunc("GET "+apiPrefix+"watch", s.serveWatch)
	}
}

// servePodViews serves the pods, sorted by namespace and name. Parameters, all optional:
//
//	namespace, labelSelector, fieldSelector, where   select pods
//	limit, cursor                                    a page, and the value of continue of the page before; default: all pods
//	load=true                                        adds the loads; without it only where can read them
func (s *Server) servePodViews(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	filter, limit, needsLoad, err := s.parseList(values)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	list := view.PodViewList{APIVersion: view.APIVersion, Kind: "PodViewList"}
	if s.config.History != nil {
		list.ID = s.config.History.LastSeq() // before the pods: a watch repeats rather than misses a change
	}
	pods := s.config.Inspector.Pods(r.Context())
	if needsLoad {
		s.config.Loads.AddLoads(pods)
	}
	if list.Items, err = filter.Pods(pods, s.scene(r.Context())); err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	slices.SortFunc(list.Items, func(a, b view.PodView) int { return strings.Compare(podKey(&a), podKey(&b)) })
	if cursor := values.Get("cursor"); cursor != "" {
		list.Items = slices.DeleteFunc(list.Items, func(pod view.PodView) bool { return podKey(&pod) <= cursor })
	}
	if limit > 0 && len(list.Items) > limit {
		list.Items = list.Items[:limit]
		list.Continue = podKey(&list.Items[limit-1])
	}
	s.writeJSON(w, list)
}

// parseList parses the parameters of a list of pods. A limit of 0 means none.
func (s *Server) parseList(values url.Values) (filter *query.Filter, limit int, needsLoad bool, err error) {
	if filter, err = s.parseFilter(values); err != nil {
		return nil, 0, false, err
	}
	if text := values.Get("limit"); text != "" {
		if limit, err = query.ParseLimit(text); err != nil {
			return nil, 0, false, err
		}
	}
	needsLoad, err = s.parseLoad(values, filter)
	return filter, limit, needsLoad, err
}

// podKey returns namespace/name, which is also the order and the cursor of lists.
func podKey(pod *view.PodView) string { return pod.Metadata.Namespace + "/" + pod.Metadata.Name }

func (s *Server) parseFilter(values url.Values) (*query.Filter, error) {
	return query.Parse(query.Selection{
		Namespace: values.Get("namespace"), LabelSelector: values.Get("labelSelector"),
		FieldSelector: values.Get("fieldSelector"), Where: values.Get("where"),
	}, s.expressions)
}

// scene returns the scene of one request. The node is collected at most once.
func (s *Server) scene(ctx context.Context) query.Scene {
	var node *view.NodeView
	return query.Scene{Now: time.Now(), Node: func() *view.NodeView {
		if node == nil {
			node = new(s.config.Inspector.Node(ctx))
		}
		return node
	}}
}

// servePodView serves one pod. Parameter, optional:
//
//	load=true   adds its load
func (s *Server) servePodView(w http.ResponseWriter, r *http.Request) {
	needsLoad, err := s.parseLoad(r.URL.Query(), nil)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	name := podid.FullName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	pod, found := s.config.Inspector.Pod(r.Context(), name)
	if !found {
		writeError(w, http.StatusNotFound, s.notFound(r.Context(), name))
		return
	}
	if needsLoad {
		pod = s.addLoad(pod)
	}
	s.writeJSON(w, pod)
}

// notFound returns the message for a pod that the node does not have: when it left, if the history knows.
func (s *Server) notFound(ctx context.Context, name podid.FullName) string {
	if verdict, found := s.config.Inspector.Explain(ctx, name, explain.WhatIsWrong); found {
		return fmt.Sprintf("pod %s not found: %s", name.Key(), verdict.Headline)
	}
	return fmt.Sprintf("pod %s not found: the node has no record of it", name.Key())
}

func (s *Server) serveNode(w http.ResponseWriter, r *http.Request) {
	s.writeJSON(w, s.config.Inspector.Node(r.Context()))
}

// questions are the values of the parameter q.
var questions = []explain.Question{
	explain.WhatIsWrong, explain.WhyNotReady, explain.WhyNotRunning, explain.WhyNotDeleted, explain.WhyRestarting,
}

func (s *Server) serveExplanation(w http.ResponseWriter, r *http.Request) {
	name := podid.FullName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	question := explain.Question(r.URL.Query().Get("q"))
	if !slices.Contains(questions, question) {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("q: %q must be Ready, Running, Deleted or Restarting", question))
		return
	}
	verdict, found := s.config.Inspector.Explain(r.Context(), name, question)
	if !found {
		writeError(w, http.StatusNotFound, fmt.Sprintf("pod %s not found: the node has no record of it", name.Key()))
		return
	}
	answer := view.Explanation{
		APIVersion: view.APIVersion, Kind: "Explanation", Metadata: view.Metadata{Namespace: name.Namespace, Name: name.Name},
		Question: question, Verdict: verdict,
	}
	if pod, found := s.config.Inspector.Pod(r.Context(), name); found {
		answer.Metadata = pod.Metadata
	}
	s.writeJSON(w, answer)
}

func (s *Server) serveSources(w http.ResponseWriter, _ *http.Request) {
	list := view.SourceList{APIVersion: view.APIVersion, Kind: "SourceList", Items: s.config.Inspector.Sources()}
	if list.Items == nil {
		list.Items = []view.Source{}
	}
	if s.config.Alerting != nil {
		list.RuleFiles = s.config.Alerting.Rules().Files
	}
	s.writeJSON(w, list)
}

// serveEvents serves the records of Kubernetes events. The parameters are those of serveHistory.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	values.Set("kind", string(history.KindEvent))
	r.URL.RawQuery = values.Encode()
	s.serveHistory(w, r)
}

// status is the body of a failed request: a metav1.Status with the fields that clients read.
type status struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Status     string `json:"status"`
	Message    string `json:"message"`
	Code       int    `json:"code"`
}

func newStatus(code int, message string) status {
	return status{APIVersion: "v1", Kind: "Status", Status: "Failure", Message: message, Code: code}
}

func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(newStatus(code, message)) // fails if the client has gone
}

func (s *Server) writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		s.config.Logger.Debug("Failed to write response", "err", err)
	}
}

package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/query"
	"github.com/heraldnode/herald/view"
)

// Alerting has the alerts, rules and silences of the node. The server does not modify what it returns.
type Alerting interface {
	// Alerts returns all alerts, also pending and recently resolved ones.
	Alerts() []view.Alert
	// Rules returns the rule files and all rules. APIVersion and Kind need not be set.
	Rules() view.RuleList
	Silences() []alert.Silence
	// AddSilence adds a silence, or replaces the one with its ID, and returns when it is durable. An empty ID is set.
	AddSilence(ctx context.Context, silence alert.Silence) (alert.Silence, error)
	// ExpireSilence ends a silence. It returns alert.ErrNoSilence if there is none with this ID.
	ExpireSilence(ctx context.Context, id string) error
}

// Actions has the actions of rules. The server does not modify what it returns.
type Actions interface {
	// Actions returns the newest actions, newest first. APIVersion and Kind need not be set.
	Actions(ctx context.Context, limit int) (view.ActionList, error)
	// Resume ends the suspension of actions and returns whether there was one. by is who asked for it.
	Resume(ctx context.Context, by string) (bool, error)
}

const (
	alertingOff = "alerting is off: the agent's configuration has alerting.enabled: false, or it has no history"
	// maxSilence bounds how long a silence lasts, so that none is forgotten for ever.
	maxSilence = 366 * 24 * time.Hour
)

// addAlerting adds the routes of alerts and actions. Without alerting they say so.
func (s *Server) addAlerting(mux *http.ServeMux) {
	off := func(w http.ResponseWriter, _ *http.Request) { writeError(w, http.StatusNotFound, alertingOff) }
	handle := func(pattern string, isOn bool, handler http.HandlerFunc) {
		if !isOn {
			handler = off
		}
		mux.HandleFunc(pattern, handler)
	}
	hasAlerts, hasActions := s.config.Alerting != nil, s.config.Actions != nil
	handle("GET "+apiPrefix+"alerts", hasAlerts, s.serveAlerts)
	handle("GET "+apiPrefix+"rules", hasAlerts, s.serveRules)
	handle("GET "+apiPrefix+"silences", hasAlerts, s.serveSilences)
	handle("POST "+apiPrefix+"silences", hasAlerts, s.authorized(s.serveAddSilence))
	handle("DELETE "+apiPrefix+"silences/{id}", hasAlerts, s.authorizedDelete(s.serveExpireSilence))
	handle("GET "+apiPrefix+"actions", hasActions, s.serveActions)
	handle("POST "+apiPrefix+"actions/resume", hasActions, s.authorized(s.serveResume))
}

// serveAlerts serves the alerts, worst first. Parameters, all optional:
//
//	namespace   only alerts about pods of this namespace
//	state       pending, firing, recovering or resolved; several are separated by commas
func (s *Server) serveAlerts(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	states, err := parseStates(values.Get("state"))
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	list := view.AlertList{APIVersion: view.APIVersion, Kind: "AlertList", Items: []view.Alert{}}
	if s.config.History != nil {
		list.ID = s.config.History.LastSeq() // before the alerts: a watch repeats rather than misses a change
	}
	namespace := values.Get("namespace")
	for _, item := range s.config.Alerting.Alerts() {
		if (namespace == "" || item.Labels[alert.LabelNamespace] == namespace) && (len(states) == 0 || slices.Contains(states, item.State)) {
			list.Items = append(list.Items, item)
		}
	}
	view.SortAlerts(list.Items)
	s.writeJSON(w, list)
}

func (s *Server) serveRules(w http.ResponseWriter, _ *http.Request) {
	list := s.config.Alerting.Rules()
	list.APIVersion, list.Kind = view.APIVersion, "RuleList"
	if list.Files == nil {
		list.Files = []view.RuleFile{}
	}
	if list.Items == nil {
		list.Items = []view.Rule{}
	}
	s.writeJSON(w, list)
}

// parseStates parses names of states that are separated by commas.
func parseStates(text string) (states []alert.State, err error) {
	if text == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		state := alert.State(name)
		if !slices.Contains([]alert.State{alert.Pending, alert.Firing, alert.Recovering, alert.Resolved}, state) {
			return nil, fmt.Errorf("state: %q must be pending, firing, recovering or resolved", name)
		}
		states = append(states, state)
	}
	return states, nil
}

func (s *Server) serveSilences(w http.ResponseWriter, _ *http.Request) {
	s.writeSilences(w, s.config.Alerting.Silences())
}

func (s *Server) writeSilences(w http.ResponseWriter, silences []alert.Silence) {
	if silences == nil {
		silences = []alert.Silence{}
	}
	s.writeJSON(w, view.SilenceList{APIVersion: view.APIVersion, Kind: "SilenceList", Items: silences})
}

// serveAddSilence adds the silence of the body: matchers, endsAt, comment, and optionally startsAt and id. It answers with a list of one.
func (s *Server) serveAddSilence(w http.ResponseWriter, r *http.Request) {
	var silence alert.Silence
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&silence); err != nil {
		writeError(w, http.StatusBadRequest, "decode the body: "+err.Error())
		return
	}
	now := time.Now()
	if silence.StartsAt.IsZero() {
		silence.StartsAt = now
	}
	silence.CreatedBy = clientName(r, silence.CreatedBy)
	if err := checkSilence(&silence, now); err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	added, err := s.config.Alerting.AddSilence(r.Context(), silence)
	if err != nil {
		writeError(w, http.StatusConflict, err.Error())
		return
	}
	s.writeSilences(w, []alert.Silence{added})
}

func checkSilence(silence *alert.Silence, now time.Time) error {
	switch {
	case len(silence.Matchers) == 0:
		return errors.New(`matchers are required, like ["alertname=\"PodCrashLooping\""]`)
	case silence.Comment == "" || len(silence.Comment) > maxReason:
		return fmt.Errorf("a comment is required: it is kept in the history; it has at most %d bytes", maxReason)
	case !silence.EndsAt.After(silence.StartsAt) || !silence.EndsAt.After(now):
		return errors.New("endsAt must be in the future, and after startsAt")
	case silence.EndsAt.Sub(now) > maxSilence:
		return fmt.Errorf("endsAt must be within %d days", maxSilence/(24*time.Hour))
	default:
		return nil
	}
}

// clientName returns who sent the request: the user of the socket, and what the client calls itself.
func clientName(r *http.Request, claimed string) string {
	const maxName = 128
	if len(claimed) > maxName {
		claimed = claimed[:maxName]
	}
	if uid, isSocket := peerOf(r.Context()); isSocket {
		return fmt.Sprintf("%s (uid %d)", cmp.Or(claimed, "somebody"), uid)
	}
	return cmp.Or(claimed, "somebody") + " (token)"
}

func (s *Server) serveExpireSilence(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	switch err := s.config.Alerting.ExpireSilence(r.Context(), id); {
	case errors.Is(err, alert.ErrNoSilence):
		writeError(w, http.StatusNotFound, fmt.Sprintf("silence %q does not exist, or has ended", id))
	case err != nil:
		writeError(w, http.StatusConflict, err.Error())
	default:
		s.serveSilences(w, r)
	}
}

// serveActions serves the newest actions. Parameter, optional:
//
//	limit   how many
func (s *Server) serveActions(w http.ResponseWriter, r *http.Request) {
	limit, err := query.ParseLimit(r.URL.Query().Get("limit"))
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	s.writeActions(w, r, limit)
}

func (s *Server) writeActions(w http.ResponseWriter, r *http.Request, limit int) {
	list, err := s.config.Actions.Actions(r.Context(), limit)
	if err != nil {
		writeError(w, http.StatusInternalServerError, "read actions: "+err.Error())
		return
	}
	list.APIVersion, list.Kind = view.APIVersion, "ActionList"
	if list.Items == nil {
		list.Items = []view.Action{}
	}
	s.writeJSON(w, list)
}

// serveResume ends the suspension of actions. It answers with the actions, and with status 409 if they were not suspended.
func (s *Server) serveResume(w http.ResponseWriter, r *http.Request) {
	switch wasSuspended, err := s.config.Actions.Resume(r.Context(), clientName(r, "")); {
	case err != nil:
		writeError(w, http.StatusInternalServerError, err.Error())
	case !wasSuspended:
		writeError(w, http.StatusConflict, "actions are not suspended")
	default:
		s.writeActions(w, r, query.DefaultLimit)
	}
}

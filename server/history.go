package server

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/heraldnode/herald/history"
)

// History is the history of the node's statuses. *history.Log implements it.
type History interface {
	// Query returns the newest records that match.
	Query(ctx context.Context, query history.Query) (history.Page, error)
	// Follow yields the matching records after a sequence number, and then new ones until ctx ends.
	Follow(ctx context.Context, query history.Query, after uint64) iter.Seq[history.Record]
	// LastSeq returns the sequence number of the newest record.
	LastSeq() uint64
}

// HistoryList is the response of /herald/v1/history.
type HistoryList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Continue is the cursor of the next page. Empty if there are no more records.
	Continue string `json:"continue,omitempty"`
	// Items are the records, newest first.
	Items []history.Record `json:"items"`
}

// historyRequest is a parsed request.
type historyRequest struct {
	query     history.Query
	follow    bool
	hasAfter  bool
	after     uint64
	withLines bool
}

// serveHistory serves the records of the history, newest first. Parameters, all optional:
//
//	namespace, pod, uid   the pod
//	kind                  pod, node, log or agent; several are separated by commas
//	since, until          RFC 3339, or how long ago, like 10m
//	limit, cursor         the size of a page, and the value of continue of the page before
//	logs=true             all attached lines; without it, only the last line of each
//	follow=true           a stream of records, oldest first, one JSON object per line: those after the sequence number in
//	                      after, or new ones
func (s *Server) serveHistory(w http.ResponseWriter, r *http.Request) {
	request, err := parseHistoryRequest(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if request.follow {
		if r.Method != http.MethodHead {
			s.followHistory(w, r, request)
		}
		return
	}
	page, err := s.config.History.Query(r.Context(), request.query)
	if err != nil {
		http.Error(w, "read history: "+err.Error(), http.StatusInternalServerError)
		return
	}
	list := HistoryList{APIVersion: "heraldnode.github.io/v1alpha1", Kind: "HistoryList", Items: []history.Record{}}
	for _, record := range page.Records {
		list.Items = append(list.Items, request.shape(record))
	}
	if page.Next != 0 {
		list.Continue = strconv.FormatUint(page.Next, 10)
	}
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.config.Logger.Debug("Failed to write history", "err", err)
	}
}

func (s *Server) followHistory(w http.ResponseWriter, r *http.Request, request historyRequest) {
	controller := http.NewResponseController(w)
	after := request.after
	if !request.hasAfter {
		after = s.config.History.LastSeq()
	}
	if controller.Flush() != nil {
		return
	}
	encoder := json.NewEncoder(w)
	for record := range s.config.History.Follow(r.Context(), request.query, after) {
		_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // an httptest.ResponseRecorder has no deadlines
		if encoder.Encode(request.shape(record)) != nil || controller.Flush() != nil {
			return
		}
	}
}

// shape leaves out the lines that were not asked for.
func (request *historyRequest) shape(record history.Record) history.Record {
	if record.Attachment != nil && !request.withLines {
		attachment := *record.Attachment
		attachment.Lines = attachment.Lines[strings.LastIndexByte(attachment.Lines, '\n')+1:]
		record.Attachment = &attachment
	}
	return record
}

func parseHistoryRequest(values url.Values, now time.Time) (request historyRequest, err error) {
	q := &request.query
	q.Namespace, q.Name, q.UID = values.Get("namespace"), values.Get("pod"), values.Get("uid")
	if q.Name != "" && q.Namespace == "" {
		return request, fmt.Errorf("pod requires namespace")
	}
	for kind := range strings.SplitSeq(values.Get("kind"), ",") {
		if kind != "" {
			q.Kinds = append(q.Kinds, history.Kind(kind))
		}
	}
	for name, value := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if *value, err = parseTime(values.Get(name), now); err != nil {
			return request, fmt.Errorf("%s: %w", name, err)
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > history.MaxLimit {
			return request, fmt.Errorf("limit must be between 1 and %d", history.MaxLimit)
		}
	}
	for name, value := range map[string]*uint64{"cursor": &q.Before, "after": &request.after} {
		if text := values.Get(name); text != "" {
			if *value, err = strconv.ParseUint(text, 10, 64); err != nil {
				return request, fmt.Errorf("%s must be a sequence number", name)
			}
		}
	}
	request.hasAfter = values.Get("after") != ""
	for name, value := range map[string]*bool{"logs": &request.withLines, "follow": &request.follow} {
		if text := values.Get(name); text != "" {
			if *value, err = strconv.ParseBool(text); err != nil {
				return request, fmt.Errorf("%s must be true or false", name)
			}
		}
	}
	return request, nil
}

// parseTime parses RFC 3339, or a duration before now. Empty text is the zero time.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q must be RFC 3339, or how long ago, like 10m", text)
	}
	return parsed, nil
}

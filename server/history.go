package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/query"
)

// History is the history of the node's statuses. *history.Log implements it.
type History interface {
	// Query returns the newest records that match.
	Query(ctx context.Context, query history.Query) (history.Page, error)
	// Follow yields the matching records after a sequence number, and then new ones until ctx ends.
	Follow(ctx context.Context, query history.Query, after uint64) iter.Seq[history.Record]
	// FirstSeq returns the sequence number from which on records are kept, LastSeq that of the newest record.
	FirstSeq() uint64
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
	// eventType leaves out all records but events of this type.
	eventType string
}

// serveHistory serves the records of the history, newest first. Parameters, all optional:
//
//	namespace, pod, uid   the pod
//	kind                  pod, node, log, event, source or agent; several are separated by commas
//	type                  Normal or Warning: only events of this type
//	since, until          RFC 3339, or how long ago, like 10m
//	limit, cursor         the size of a page, and the value of continue of the page before
//	logs=true             all attached lines; without it, only the last line of each
//	follow=true           a stream of records, oldest first, one JSON object per line: those after the sequence number in
//	                      after, or new ones
func (s *Server) serveHistory(w http.ResponseWriter, r *http.Request) {
	request, err := parseHistoryRequest(r.URL.Query(), time.Now())
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if request.follow {
		if r.Method != http.MethodHead {
			s.followHistory(w, r, request)
		}
		return
	}
	page, err := s.queryHistory(r.Context(), &request)
	if err != nil {
		writeError(w, http.StatusInternalServerError, "read history: "+err.Error())
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

// queryHistory returns a page. The history cannot select by the type of events, so it reads on until the page is full.
func (s *Server) queryHistory(ctx context.Context, request *historyRequest) (history.Page, error) {
	if request.eventType == "" {
		return s.config.History.Query(ctx, request.query)
	}
	limit, q, result := cmp.Or(request.query.Limit, history.DefaultLimit), request.query, history.Page{}
	q.Limit = history.MaxLimit
	for {
		page, err := s.config.History.Query(ctx, q)
		for i := range page.Records {
			if !request.matches(&page.Records[i]) {
				continue
			}
			if len(result.Records) == limit {
				result.Next = result.Records[limit-1].Seq
				return result, err
			}
			result.Records = append(result.Records, page.Records[i])
		}
		if err != nil || page.Next == 0 {
			return result, err
		}
		q.Before = page.Next
	}
}

// matches reports what the query of the history does not decide.
func (request *historyRequest) matches(record *history.Record) bool {
	return request.eventType == "" || record.Event != nil && record.Event.Type == request.eventType
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
		if !request.matches(&record) {
			continue
		}
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
	switch request.eventType = values.Get("type"); request.eventType {
	case "":
	case v1.EventTypeNormal, v1.EventTypeWarning:
		if len(q.Kinds) == 0 {
			q.Kinds = []history.Kind{history.KindEvent} // others have no type
		}
	default:
		return request, fmt.Errorf("type: %q must be Normal or Warning", request.eventType)
	}
	for name, value := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if *value, err = query.ParseTime(name, values.Get(name), now); err != nil {
			return request, err
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > history.MaxLimit {
			return request, fmt.Errorf("limit must be between 1 and %d", history.MaxLimit)
		}
	}
	for name, value := range map[string]*uint64{"cursor": &q.Before, "after": &request.after} {
		if *value, err = query.ParseSequence(name, values.Get(name)); err != nil {
			return request, err
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

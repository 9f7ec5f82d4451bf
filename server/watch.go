package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/query"
	"github.com/heraldnode/herald/view"
)

// Topics of a watch.
const (
	topicPods    = "pods"
	topicNode    = "node"
	topicHistory = "history"
	topicAlerts  = "alerts"
	topicLoad    = "load"
)

const (
	// maxBatch bounds the records that are read ahead. The changes of a pod within a batch are sent as one.
	maxBatch = 256
	// keepAlivePeriod is how often an idle stream of server-sent events gets a comment.
	keepAlivePeriod = 30 * time.Second
	eventStream     = "text/event-stream"
)

// watchStream is one watch. It is owned by the goroutine of its request.
//
// The history drives it: a pod is sent, as it is by then, after a record about it or an acknowledgement of its status. The ID of an event
// is the sequence number up to which everything was sent, so that a stream resumed with it misses nothing. Events of the state with which
// a stream begins have no ID: a client that loses the connection before SYNCED begins anew.
type watchStream struct {
	server     *Server
	topics     []string
	namespace  string
	filter     *query.Filter
	needsLoad  bool
	writer     eventWriter
	position   uint64
	isResumed  bool
	membership map[podid.FullName]query.Membership
	names      map[string]podid.FullName // by UID
	alerts     sentAlerts
	sentLoads  []byte        // JSON of the loads; nil before the first
	bookmarks  time.Duration // 0: none
}

// serveWatch serves a stream of view.WatchEvent, as JSON lines or, if the client accepts text/event-stream, as server-sent events.
// Parameters, all optional:
//
//	topics                                           pods (default), node, alerts, load and history, separated by commas
//	namespace, labelSelector, fieldSelector, where   select pods
//	load=true                                        adds the loads of pods, as of the event
//	bookmarks                                        seconds from 1 to 60: sends a BOOKMARK this often, so that a client notices silence
//	after                                            resumes after the event with this ID, as the header Last-Event-ID does
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request) {
	stream, code, err := s.newWatchStream(r)
	if err != nil {
		writeError(w, code, err.Error())
		return
	}
	if stream.writer.sse = strings.Contains(r.Header.Get("Accept"), eventStream); stream.writer.sse {
		w.Header().Set("Content-Type", eventStream)
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	stream.writer.w, stream.writer.controller = w, http.NewResponseController(w)
	if stream.writer.controller.Flush() != nil { // send the header even if there are no events yet
		return
	}
	if err := stream.run(r.Context()); err != nil {
		s.config.Logger.Debug("Watch ended", "err", err)
	}
}

// newWatchStream parses a request. The code is that of the error.
func (s *Server) newWatchStream(r *http.Request) (stream *watchStream, code int, err error) {
	values := r.URL.Query()
	stream = &watchStream{
		server: s, namespace: values.Get("namespace"), topics: []string{topicPods},
		membership: map[podid.FullName]query.Membership{}, names: map[string]podid.FullName{}, alerts: sentAlerts{},
	}
	if text := values.Get("topics"); text != "" {
		stream.topics = strings.Split(text, ",")
	}
	for _, topic := range stream.topics {
		if !slices.Contains([]string{topicPods, topicNode, topicAlerts, topicLoad, topicHistory}, topic) {
			return nil, http.StatusBadRequest, fmt.Errorf("topics: %q must be pods, node, alerts, load or history", topic)
		}
		if topic == topicLoad && s.config.Loads == nil {
			return nil, http.StatusNotFound, errors.New("this agent does not measure loads")
		}
		if topic == topicAlerts && s.config.Alerting == nil {
			return nil, http.StatusNotFound, errors.New(alertingOff)
		}
	}
	if stream.filter, err = s.parseFilter(values); err != nil {
		return nil, http.StatusBadRequest, err
	}
	if stream.needsLoad, err = s.parseLoad(values, stream.filter); err != nil {
		return nil, http.StatusBadRequest, err
	}
	if stream.bookmarks, err = parseBookmarks(values.Get("bookmarks")); err != nil {
		return nil, http.StatusBadRequest, err
	}
	after := values.Get("after")
	if after == "" {
		after = r.Header.Get("Last-Event-ID")
	}
	sequence, err := query.ParseSequence("after", after)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	if stream.position = s.config.History.LastSeq(); after == "" {
		return stream, 0, nil
	}
	isKept := sequence <= stream.position && sequence+1 >= s.config.History.FirstSeq()
	if !isKept && stream.has(topicHistory) {
		return nil, http.StatusGone, fmt.Errorf("the records after %d are not kept any more: list the history, and watch from now", sequence)
	}
	if isKept {
		isRestarted, err := s.isRestartedSince(r.Context(), sequence)
		if err != nil {
			return nil, http.StatusInternalServerError, err
		}
		stream.position, stream.isResumed = sequence, !isRestarted
	}
	return stream, 0, nil
}

// isRestartedSince reports whether the agent was started after the record. A pod may have gone while no agent ran.
func (s *Server) isRestartedSince(ctx context.Context, sequence uint64) (bool, error) {
	if s.config.History.LastSeq() == s.lastSeq {
		return true, nil // the start is the first record of a run, and may not be written yet
	}
	page, err := s.config.History.Query(ctx, history.Query{Kinds: []history.Kind{history.KindAgent}, Limit: query.MaxLimit})
	if err != nil {
		return false, fmt.Errorf("read history: %w", err)
	}
	return slices.ContainsFunc(page.Records, func(record history.Record) bool {
		return record.Seq > sequence && record.Agent != nil && record.Agent.Event == history.EventStarted
	}), nil
}

func (w *watchStream) has(topic string) bool { return slices.Contains(w.topics, topic) }

// run sends events until ctx ends, the client leaves, or a filter fails.
func (w *watchStream) run(ctx context.Context) error {
	if !w.isResumed {
		if err := w.sendState(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	records := make(chan history.Record, maxBatch)
	follow := w.server.config.History.Follow(ctx, w.query(), w.position)
	go func() {
		defer close(records)
		for record := range follow {
			select {
			case records <- record:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range records { // waits for the goroutine
		}
	}()
	keepAlive := time.NewTicker(keepAlivePeriod)
	defer keepAlive.Stop()
	loads, stopLoads := every(loadPeriod, w.has(topicLoad))
	defer stopLoads()
	bookmarks, stopBookmarks := every(w.bookmarks, w.bookmarks > 0)
	defer stopBookmarks()
	for {
		select {
		case record, open := <-records:
			if !open {
				return ctx.Err()
			}
			if err := w.sendBatch(ctx, takeBatch(record, records)); err != nil {
				return err
			}
		case <-loads:
			if err := w.sendLoads(ctx, w.position); err != nil {
				return err
			}
		case <-bookmarks:
			if err := w.writer.write(w.position, w.topics[0], view.Bookmark, nil); err != nil {
				return err
			}
		case <-keepAlive.C:
			if err := w.writer.keepAlive(); err != nil {
				return err
			}
		}
	}
}

// query selects the records that the topics depend on.
func (w *watchStream) query() (q history.Query) {
	if w.has(topicHistory) {
		return history.Query{Acks: w.has(topicPods)}
	}
	if w.has(topicPods) {
		q.Kinds = append(q.Kinds, history.KindPod, history.KindAck)
	}
	if w.has(topicNode) {
		q.Kinds = append(q.Kinds, history.KindNode)
	}
	if w.has(topicAlerts) {
		q.Kinds = append(q.Kinds, history.KindAlert)
	}
	return q
}

// takeBatch returns the record and those that can be received at once.
func takeBatch(first history.Record, records <-chan history.Record) []history.Record {
	batch := []history.Record{first}
	for len(batch) < maxBatch {
		select {
		case record, open := <-records:
			if !open {
				return batch
			}
			batch = append(batch, record)
		default:
			return batch
		}
	}
	return batch
}

// sendState sends everything that exists, and SYNCED.
func (w *watchStream) sendState(ctx context.Context) error {
	if w.has(topicPods) {
		pods := w.server.config.Inspector.Pods(ctx)
		if w.needsLoad {
			w.server.config.Loads.AddLoads(pods)
		}
		selected, err := w.filter.Pods(pods, w.server.scene(ctx))
		if err != nil {
			return w.fail(err)
		}
		for i := range pods {
			w.names[pods[i].Metadata.UID] = nameOf(&pods[i])
		}
		for i := range selected {
			w.membership[nameOf(&selected[i])] = query.Inside
			if err := w.writer.write(0, topicPods, view.Added, selected[i]); err != nil {
				return err
			}
		}
	}
	if w.has(topicNode) {
		if err := w.writer.write(0, topicNode, view.Added, w.server.config.Inspector.Node(ctx)); err != nil {
			return err
		}
	}
	if w.has(topicAlerts) {
		for _, event := range w.alerts.events(w.server.config.Alerting.Alerts(), w.namespace, query.Outside) {
			if err := w.writer.write(0, topicAlerts, event.kind, event.object); err != nil {
				return err
			}
		}
	}
	if w.has(topicLoad) {
		if err := w.sendLoads(ctx, 0); err != nil {
			return err
		}
	}
	return w.writer.write(w.position, w.topics[0], view.Synced, nil)
}

func nameOf(pod *view.PodView) podid.FullName {
	return podid.FullName{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name}
}

// event is an event without its ID.
type event struct {
	topic  string
	kind   view.WatchType
	object any
}

// sendBatch sends what the records are about. A pod or the node is sent once, after its last record of the batch.
func (w *watchStream) sendBatch(ctx context.Context, batch []history.Record) error {
	last, lastNode, lastAlert := map[podid.FullName]int{}, -1, -1
	subjects := make([][]podid.FullName, len(batch))
	for i := range batch {
		subjects[i] = w.podsOf(&batch[i])
		for _, name := range subjects[i] {
			last[name] = i
		}
		switch batch[i].Kind {
		case history.KindNode:
			lastNode = i
		case history.KindAlert:
			lastAlert = i
		}
	}
	for i := range batch {
		var events []event
		record := &batch[i]
		if w.has(topicHistory) && record.Kind != history.KindAck && (w.namespace == "" || record.Namespace == w.namespace) {
			events = append(events, event{topicHistory, view.Added, record})
		}
		if w.has(topicNode) && i == lastNode {
			events = append(events, event{topicNode, view.Modified, w.server.config.Inspector.Node(ctx)})
		}
		if w.has(topicAlerts) && i == lastAlert {
			events = append(events, w.alerts.events(w.server.config.Alerting.Alerts(), w.namespace, w.unseen())...)
		}
		for _, name := range subjects[i] {
			if last[name] != i {
				continue
			}
			podEvent, err := w.podEvent(ctx, name, record)
			if err != nil {
				return w.fail(err)
			}
			if podEvent.kind != "" {
				events = append(events, podEvent)
			}
		}
		if err := w.sendEvents(events, record.Seq); err != nil {
			return err
		}
	}
	return nil
}

// sendEvents sends the events of one record. Only the last has its sequence number: a client that resumes after an earlier one gets
// all of them again.
func (w *watchStream) sendEvents(events []event, sequence uint64) error {
	for i := range events {
		id := w.position
		if i == len(events)-1 {
			id = sequence
		}
		if err := w.writer.write(id, events[i].topic, events[i].kind, events[i].object); err != nil {
			return err
		}
	}
	w.position = sequence
	return nil
}

// podsOf returns the pods that a record is about.
func (w *watchStream) podsOf(record *history.Record) (names []podid.FullName) {
	if !w.has(topicPods) {
		return nil
	}
	switch record.Kind {
	case history.KindPod:
		name := podid.FullName{Namespace: record.Namespace, Name: record.Name}
		w.names[record.UID] = name
		return []podid.FullName{name}
	case history.KindAck:
		for i := range record.Acks {
			if name, found := w.names[record.Acks[i].UID]; found && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// podEvent returns the event for a pod after a record about it.
func (w *watchStream) podEvent(ctx context.Context, name podid.FullName, record *history.Record) (event, error) {
	pod, matches := w.server.config.Inspector.Pod(ctx, name)
	if !matches {
		pod = view.PodView{
			APIVersion: view.APIVersion, Kind: "PodView", Spec: view.Spec{Containers: []view.Container{}},
			Metadata: view.Metadata{Namespace: name.Namespace, Name: name.Name, UID: record.UID},
		}
	} else {
		if w.needsLoad {
			pod = w.server.addLoad(pod)
		}
		var err error
		if matches, err = w.filter.Match(&pod, w.server.scene(ctx)); err != nil {
			return event{}, err
		}
	}
	before, known := w.membership[name]
	if !known {
		before = w.unseen()
	}
	w.membership[name] = query.MembershipOf(matches)
	return event{topicPods, query.Transition(before, matches), pod}, nil
}

// unseen is the membership of an object that was not sent: a client that resumes may have it from before.
func (w *watchStream) unseen() query.Membership {
	if w.isResumed {
		return query.Unknown
	}
	return query.Outside
}

// sentAlerts has the JSON of the alerts that a stream has sent, by their keys.
type sentAlerts map[string]string

// events returns what a client must be told so that it has these alerts. Alerts outside the namespace are left out.
func (s sentAlerts) events(alerts []view.Alert, namespace string, unseen query.Membership) (events []event) {
	present := map[string]bool{}
	view.SortAlerts(alerts)
	for i := range alerts {
		key := alerts[i].Key()
		encoded, err := json.Marshal(alerts[i])
		if err != nil || namespace != "" && alerts[i].Labels[alert.LabelNamespace] != namespace {
			continue
		}
		present[key] = true
		sent, isSent := s[key]
		if isSent && sent == string(encoded) {
			continue
		}
		before := unseen
		if isSent {
			before = query.Inside
		}
		s[key] = string(encoded)
		events = append(events, event{topicAlerts, query.Transition(before, true), json.RawMessage(encoded)})
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if !present[key] {
			events = append(events, event{topicAlerts, view.Deleted, json.RawMessage(s[key])})
			delete(s, key)
		}
	}
	return events
}

// fail sends the error as the last event.
func (w *watchStream) fail(err error) error {
	_ = w.writer.write(w.position, w.topics[0], view.Error, newStatus(http.StatusBadRequest, err.Error()))
	return err
}

// eventWriter writes events as JSON lines or server-sent events.
type eventWriter struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	sse        bool
}

func (w *eventWriter) write(id uint64, topic string, kind view.WatchType, object any) error {
	line := view.WatchEvent{ID: id, Topic: topic, Type: kind}
	if object != nil {
		encoded, err := json.Marshal(object)
		if err != nil {
			return err
		}
		line.Object = encoded
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_ = w.controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // an httptest.ResponseRecorder has no deadlines
	format := "%[3]s\n"
	if w.sse {
		if format = "event: %[2]s\ndata: %[3]s\n\n"; id != 0 {
			format = "id: %[1]d\n" + format
		}
	}
	if _, err := fmt.Fprintf(w.w, format, id, kind, encoded); err != nil {
		return err
	}
	return w.controller.Flush()
}

func (w *eventWriter) keepAlive() error {
	if !w.sse {
		return nil
	}
	_ = w.controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := fmt.Fprint(w.w, ": keep-alive\n\n"); err != nil {
		return err
	}
	return w.controller.Flush()
}

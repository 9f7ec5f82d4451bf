package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/server"
)

// fakeHistory returns one record and remembers the query.
type fakeHistory struct{ query history.Query }

func (h *fakeHistory) record() history.Record {
	return history.Record{
		Seq: 7, Kind: history.KindLog, PodRef: history.PodRef{Namespace: "shop", Name: "cart"},
		Attachment: &history.Attachment{Lines: "one\ntwo", LineCount: 2},
	}
}

func (h *fakeHistory) Query(_ context.Context, query history.Query) (history.Page, error) {
	h.query = query
	return history.Page{Records: []history.Record{h.record()}, Next: 7}, nil
}

func (h *fakeHistory) Follow(_ context.Context, query history.Query, _ uint64) iter.Seq[history.Record] {
	h.query = query
	return func(yield func(history.Record) bool) { yield(h.record()) }
}

func (h *fakeHistory) LastSeq() uint64  { return 6 }
func (h *fakeHistory) FirstSeq() uint64 { return 1 }

func TestServer_History(t *testing.T) {
	log := &fakeHistory{}
	handler, err := server.New(server.Config{Agent: &fakeAgent{}, History: log})
	if err != nil {
		t.Fatal(err)
	}
	get := func(query string) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/herald/v1/history?"+query, nil)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		return response
	}
	var list server.HistoryList
	response := get("namespace=shop&pod=cart&kind=pod,log&since=10m&limit=5&cursor=9")
	if err := json.Unmarshal(response.Body.Bytes(), &list); err != nil || list.Continue != "7" || list.Items[0].Attachment.Lines != "two" {
		t.Errorf("got %+v, %v, want a page with the last line and a cursor", list, err)
	}
	q := log.query
	if q.Name != "cart" || len(q.Kinds) != 2 || q.Limit != 5 || q.Before != 9 || time.Since(q.Since) < 9*time.Minute {
		t.Errorf("got query %+v", q)
	}
	if body := get("logs=true").Body.String(); !strings.Contains(body, `"one\ntwo"`) {
		t.Errorf("got %s, want all lines", body)
	}
	if lines := bufio.NewScanner(get("follow=true").Body); !lines.Scan() || !strings.HasPrefix(lines.Text(), `{"seq":7,`) {
		t.Errorf("got %q, want one record per line", lines.Text())
	}
	for _, query := range []string{"pod=cart", "since=yesterday", "limit=0", "limit=1001", "cursor=x", "logs=maybe", "after=-1", "type=warning"} {
		if response := get(query); response.Code != http.StatusBadRequest || !strings.Contains(response.Body.String(), `"kind":"Status"`) {
			t.Errorf("%s: got status %d and %s, want 400 and a Status", query, response.Code, response.Body)
		}
	}
}

// TestServer_EventsByType checks pages of the events of one type in a real history.
func TestServer_EventsByType(t *testing.T) {
	n := newNode(t)
	s := n.newServer(t)
	for i := range 6 {
		event := &v1.Event{Type: v1.EventTypeNormal, Reason: fmt.Sprintf("Reason%d", i)}
		if i%3 == 0 {
			event.Type = v1.EventTypeWarning
		}
		event.InvolvedObject = v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "u"}
		n.log.EventOccurred(event)
	}
	reasons := func(parameters string) (all []string, cursor string) {
		list := getJSON[server.HistoryList](t, s, "events?"+parameters, http.StatusOK)
		for i := range list.Items {
			all = append(all, list.Items[i].Event.Reason)
		}
		return all, list.Continue
	}
	heraldtest.Eventually(t, func() error {
		if all, _ := reasons(""); len(all) != 6 {
			return fmt.Errorf("got %q, want 6 events", all)
		}
		return nil
	})
	if all, cursor := reasons("type=Warning"); !slices.Equal(all, []string{"Reason3", "Reason0"}) || cursor != "" {
		t.Errorf("got %q, cursor %q, want the warnings", all, cursor)
	}
	var paged []string
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		var page []string
		if page, cursor = reasons("type=Normal&limit=3&cursor=" + cursor); len(page) > 3 || pages > 1 {
			t.Fatalf("got page %d: %q, want two pages of at most 3", pages, page)
		}
		paged = append(paged, page...)
	}
	if !slices.Equal(paged, []string{"Reason5", "Reason4", "Reason2", "Reason1"}) {
		t.Errorf("got %q, want all normal events, newest first", paged)
	}
	list := getJSON[server.HistoryList](t, s, "history?type=Warning&pod=web&namespace=default", http.StatusOK)
	if len(list.Items) != 2 || list.Items[0].Kind != history.KindEvent {
		t.Errorf("got %+v, want two events", list.Items)
	}
}

package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

func (h *fakeHistory) LastSeq() uint64 { return 6 }

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
	for _, query := range []string{"pod=cart", "since=yesterday", "limit=0", "limit=1001", "cursor=x", "logs=maybe", "after=-1"} {
		if code := get(query).Code; code != http.StatusBadRequest {
			t.Errorf("%s: got status %d, want 400", query, code)
		}
	}
}

package server_test

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/view"
)

// TestLoad_OnlyWhenAsked checks that loads are collected only for a client that asks for them: it makes measurements more frequent.
func TestLoad_OnlyWhenAsked(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", true))
	n.set(newRunningPod("new", true)) // not measured yet
	s := n.newServer(t)
	for _, test := range []struct {
		path      string
		want      string // names of the pods, with * if they have a load
		wantAsked int
	}{
		{"pods", "new web", 0},
		{"pods?load=false", "new web", 0},
		{"pods?where=" + url.QueryEscape("pod.ready && node.load.saturation > 0.8"), "new web", 0},
		{"pods?load=true", "new web*", 1},
		{"pods?where=" + url.QueryEscape("pod.load.cpu < 1"), "web*", 1},
		{"pods?where=" + url.QueryEscape("pod.load.cpu > 1"), "", 1},
		{"pods/default/web", "web", 0},
		{"pods/default/web?load=1", "web*", 1},
		{"pods/default/new?load=1", "new", 1},
	} {
		n.asked = 0
		response := request(s, "GET", api+test.path)
		if response.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", test.path, response.Code, response.Body)
		}
		var list view.PodViewList
		if err := json.Unmarshal(response.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		if list.Items == nil {
			var pod view.PodView
			if err := json.Unmarshal(response.Body.Bytes(), &pod); err != nil {
				t.Fatal(err)
			}
			list.Items = []view.PodView{pod}
		}
		var names []string
		for i := range list.Items {
			name := list.Items[i].Metadata.Name
			if list.Items[i].Load != nil {
				name += "*"
			}
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != test.want || n.asked != test.wantAsked {
			t.Errorf("%s: got %q and %d calls, want %q and %d", test.path, got, n.asked, test.want, test.wantAsked)
		}
	}
	for _, path := range []string{"load?pod=web", "load?namespace=default", "load?since=x", "pods?load=x", "pods/default/web?load=x", "watch?load=x"} {
		if response := request(s, "GET", api+path); response.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d, want 400", path, response.Code)
		}
	}
}

func TestLoad_History(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", true))
	s := n.newServer(t)
	for path, want := range map[string]time.Duration{"": 24 * time.Hour, "&since=6h": 6 * time.Hour, "&since=48h": 24 * time.Hour} {
		var got view.LoadHistory
		response := request(s, "GET", api+"load?namespace=default&pod=web"+path)
		if err := json.Unmarshal(response.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if age := time.Since(got.Start.Time); age < want || age > want+time.Hour {
			t.Errorf("%s: got points since %v, want %v ago", path, got.Start, want)
		}
		if values := got.Signals[0].Values; len(values) != 3 || values[0] != .25 || !math.IsNaN(values[1]) {
			t.Errorf("got %v, want the second to be unknown", values)
		}
	}
	if response := request(s, "GET", api+"load?namespace=default&pod=none"); response.Code != http.StatusNotFound {
		t.Errorf("got %d, want 404", response.Code)
	}
	if n.asked != 0 {
		t.Error("reading the past makes measurements more frequent")
	}
}

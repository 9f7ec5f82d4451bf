package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

func copyText(to io.Writer, response *http.Response) (int64, error) {
	return io.Copy(to, response.Body)
}

// watcher is a client of a watch. It keeps the pods as docs/queries.md tells clients to.
type watcher struct {
	parameters string
	pods       map[string]view.PodView
	state      map[string]view.PodView // while the state is being sent
	id         uint64
	events     int
}

func newWatcher(parameters string) *watcher {
	return &watcher{parameters: parameters, pods: map[string]view.PodView{}}
}

// connect opens the stream, resumed if there is an ID.
func (c *watcher) connect(ctx context.Context, tb testing.TB, base string) (*json.Decoder, func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(ctx)
	target := base + "/herald/v1/watch?" + c.parameters
	if c.id != 0 {
		target += fmt.Sprintf("&after=%d", c.id)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		tb.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // the caller closes it
	if err != nil {
		tb.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		tb.Fatalf("got %s", response.Status)
	}
	c.state = nil
	return json.NewDecoder(response.Body), func() { cancel(); _ = response.Body.Close() }
}

// apply applies an event, and fails the test if it repeats or goes back.
func (c *watcher) apply(tb testing.TB, event view.WatchEvent) {
	tb.Helper()
	c.events++
	if event.ID != 0 && event.ID < c.id {
		tb.Fatalf("ID %d after %d", event.ID, c.id)
	}
	if event.ID == 0 && c.state == nil {
		c.state = map[string]view.PodView{}
	}
	c.id = max(c.id, event.ID)
	if event.Type == view.Synced {
		if c.pods = c.state; c.pods == nil {
			c.pods = map[string]view.PodView{}
		}
		c.state = nil
		return
	}
	var pod view.PodView
	if err := json.Unmarshal(event.Object, &pod); err != nil {
		tb.Fatal(err)
	}
	key := pod.Metadata.Namespace + "/" + pod.Metadata.Name
	pods := c.pods
	if c.state != nil {
		pods = c.state
	}
	switch event.Type {
	case view.Added, view.Modified:
		pods[key] = pod
	case view.Deleted:
		delete(pods, key)
	default:
		tb.Fatalf("got %s: %s", event.Type, event.Object)
	}
}

func (c *watcher) summaries() []string {
	var pods []view.PodView
	for _, pod := range c.pods {
		pods = append(pods, pod)
	}
	return summaries(pods)
}

// next decodes an event.
func next(tb testing.TB, decoder *json.Decoder) (event view.WatchEvent) {
	tb.Helper()
	if err := decoder.Decode(&event); err != nil {
		tb.Fatal(err)
	}
	return event
}

// TestWatch_FilterTransitions checks that a pod that enters the filter is ADDED and one that leaves it DELETED.
func TestWatch_FilterTransitions(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", false))
	base := httptest.NewServer(n.newServer(t))
	defer base.Close()
	client := newWatcher("where=" + url.QueryEscape("pod.ready"))
	decoder, closeStream := client.connect(t.Context(), t, base.URL)
	defer closeStream()
	if event := next(t, decoder); event.Type != view.Synced {
		t.Fatalf("got %+v, want SYNCED at once: no pod is ready", event)
	}
	for _, step := range []struct {
		do   func()
		want view.WatchType
	}{
		{func() { n.set(newRunningPod("web", true)) }, view.Added},
		{func() { n.set(newRunningPod("web", false)) }, view.Deleted},
		{func() { n.set(newRunningPod("new", true)) }, view.Added},
		{func() { n.remove(podid.FullName{Namespace: "default", Name: "new"}) }, view.Deleted},
	} {
		step.do()
		if event := next(t, decoder); event.Type != step.want || event.ID == 0 || event.Topic != "pods" {
			t.Fatalf("got %+v, want %s", event, step.want)
		}
	}
}

// TestWatch_ServerSentEvents checks the format, and that Last-Event-ID resumes.
func TestWatch_ServerSentEvents(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", false))
	base := httptest.NewServer(n.newServer(t))
	defer base.Close()
	read := func(lastID string, want ...string) (id string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, base.URL+"/herald/v1/watch", nil)
		request.Header.Set("Accept", "text/event-stream")
		request.Header.Set("Last-Event-ID", lastID)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if contentType := response.Header.Get("Content-Type"); contentType != "text/event-stream" {
			t.Errorf("got %s", contentType)
		}
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for _, prefix := range want {
			if !lines.Scan() || !strings.HasPrefix(lines.Text(), prefix) {
				t.Fatalf("got %q, %v, want %q", lines.Text(), lines.Err(), prefix)
			}
			if text, found := strings.CutPrefix(lines.Text(), "id: "); found {
				id = text
			}
		}
		return id
	}
	id := read("", "event: ADDED", "data: {", "", "id: ", "event: SYNCED")
	before := n.log.LastSeq()
	n.set(newRunningPod("web", true))
	heraldtest.Eventually(t, func() error {
		if n.log.LastSeq() == before {
			return errors.New("no record")
		}
		return nil
	})
	read(id, "id: ", "event: MODIFIED", `data: {"id":`)
}

// TestWatch_Topics checks that records and the node can be watched.
func TestWatch_Topics(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", false))
	s := n.newServer(t)
	base := httptest.NewServer(s)
	defer base.Close()
	decoder, closeStream := newWatcher("topics=node,history").connect(t.Context(), t, base.URL)
	defer closeStream()
	if event := next(t, decoder); event.Topic != "node" || event.Type != view.Added {
		t.Errorf("got %+v, want the node", event)
	}
	if event := next(t, decoder); event.Type != view.Synced {
		t.Errorf("got %+v, want SYNCED", event)
	}
	n.set(newRunningPod("web", true))
	for {
		event := next(t, decoder)
		var record history.Record
		if err := json.Unmarshal(event.Object, &record); err != nil || event.Topic != "history" || record.Seq != event.ID {
			t.Fatalf("got %+v, %v, want a record", event, err)
		}
		if record.Kind == history.KindPod && strings.Contains(record.After, "1/1") {
			break
		}
	}
	for parameters, code := range map[string]int{
		"topics=weather": 400, "bookmarks=0": 400, "bookmarks=61": 400, "bookmarks=x": 400, "after=x": 400, "where=pod": 400, "topics=history&after=999999": 410,
	} {
		getJSON[failure](t, s, "watch?"+parameters, code)
	}
}

// TestWatch_Load checks that loads are sent at the beginning and when they change, without any change of a status.
func TestWatch_Load(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", true))
	n.set(newRunningPod("other", true))
	base := httptest.NewServer(n.newServer(t))
	defer base.Close()
	decoder, closeStream := newWatcher("topics=load&where="+url.QueryEscape("pod.name != 'other'")).connect(t.Context(), t, base.URL)
	defer closeStream()
	nextNames := func(want view.WatchType) (names []string) {
		t.Helper()
		event := next(t, decoder)
		var loads view.Loads
		if err := json.Unmarshal(event.Object, &loads); err != nil || event.Topic != "load" || event.Type != want {
			t.Fatalf("got %+v, %v, want %s of the topic load", event, err, want)
		}
		validate(t, "Loads", event.Object)
		for i := range loads.Pods {
			names = append(names, loads.Pods[i].Metadata.Name)
		}
		slices.Sort(names)
		return names
	}
	if got := nextNames(view.Added); !slices.Equal(got, []string{"web"}) {
		t.Errorf("got %v, want web", got)
	}
	if event := next(t, decoder); event.Type != view.Synced {
		t.Errorf("got %+v, want SYNCED", event)
	}
	n.set(newRunningPod("web2", true))
	if got := nextNames(view.Modified); !slices.Equal(got, []string{"web", "web2"}) {
		t.Errorf("got %v, want web and web2", got)
	}
}

// TestWatch_Bookmarks checks that a client that wants to notice silence is told that there is nothing.
func TestWatch_Bookmarks(t *testing.T) {
	n := newNode(t)
	base := httptest.NewServer(n.newServer(t))
	defer base.Close()
	decoder, closeStream := newWatcher("bookmarks=1").connect(t.Context(), t, base.URL)
	defer closeStream()
	synced := next(t, decoder)
	if event := next(t, decoder); event.Type != view.Bookmark || event.ID != synced.ID || event.Object != nil {
		t.Errorf("got %+v, want a bookmark with the ID %d", event, synced.ID)
	}
}

// TestQ2_ListAndWatch checks that a list and a watch after it give the list of later, over lost connections and restarts of the agent,
// with and without a filter.
func TestQ2_ListAndWatch(t *testing.T) {
	for _, filter := range []string{"", "where=" + url.QueryEscape("pod.ready || pod.name == 'p1'")} {
		t.Run(filter, func(t *testing.T) {
			for seed := range uint64(4) {
				checkListAndWatch(t, filter, seed)
			}
		})
	}
}

func checkListAndWatch(t *testing.T, filter string, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
	n := newNode(t)
	base := httptest.NewServer(n.newServer(t))
	defer func() { base.Close() }()
	change := func() {
		for range random.IntN(6) {
			name := fmt.Sprintf("p%d", random.IntN(5))
			if random.IntN(3) == 0 {
				n.remove(podid.FullName{Namespace: "default", Name: name})
			} else {
				n.set(newRunningPod(name, random.IntN(2) == 0))
			}
		}
	}
	list := func() view.PodViewList {
		return getJSON[view.PodViewList](t, base.Config.Handler, "pods?"+filter, http.StatusOK)
	}
	change()
	client, first := newWatcher(filter), list()
	client.id = first.ID
	for i := range first.Items {
		client.pods["default/"+first.Items[i].Metadata.Name] = first.Items[i]
	}
	for range 8 {
		change()
		if random.IntN(3) == 0 { // the agent restarts, and pods change before it serves
			base.CloseClientConnections()
			base.Close()
			n.stop()
			if random.IntN(2) == 0 {
				n.forget(fmt.Sprintf("p%d", random.IntN(5)))
			}
			n.start(t)
			base = httptest.NewServer(n.newServer(t))
			change()
		}
		ctx, cancel := context.WithCancel(t.Context())
		decoder, closeStream := client.connect(ctx, t, base.URL)
		events := make(chan view.WatchEvent)
		go func() {
			defer close(events)
			for {
				var event view.WatchEvent
				if decoder.Decode(&event) != nil {
					return
				}
				select {
				case events <- event:
				case <-ctx.Done():
					return
				}
			}
		}()
		change()
		if random.IntN(2) == 0 { // the connection is lost after some events
			for range random.IntN(3) {
				select {
				case event, open := <-events:
					if open {
						client.apply(t, event)
					}
				default:
				}
			}
		} else {
			heraldtest.Eventually(t, func() error {
				for {
					select {
					case event, open := <-events:
						if !open {
							t.Fatal("the stream ended")
						}
						client.apply(t, event)
						continue
					default:
					}
					if want := summaries(list().Items); client.state != nil || !slices.Equal(client.summaries(), want) {
						return fmt.Errorf("seed %d: got %q, want %q", seed, client.summaries(), want)
					}
					return nil
				}
			})
		}
		cancel()
		closeStream()
		for range events { // waits for the goroutine
		}
	}
}

// TestQ2_Resume checks that a client that resumes learns what became of a pod that this run of the server never sent to it.
func TestQ2_Resume(t *testing.T) {
	web := podid.FullName{Namespace: "default", Name: "web"}
	tests := map[string]struct {
		filter string
		// change is what happens to the ready pod web while the client is not connected.
		change func(n *node, restart func())
	}{
		"left while no agent ran":      {"", func(n *node, restart func()) { n.forget("web"); restart() }},
		"leaves the filter":            {"where=pod.ready", func(n *node, _ func()) { n.set(newRunningPod("web", false)) }},
		"leaves the node":              {"", func(n *node, _ func()) { n.remove(web) }},
		"leaves the node and a filter": {"where=pod.ready", func(n *node, _ func()) { n.remove(web) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { checkResume(t, test.filter, test.change) })
	}
}

func checkResume(t *testing.T, filter string, change func(n *node, restart func())) {
	t.Helper()
	n := newNode(t)
	base := httptest.NewServer(n.newServer(t))
	defer func() { base.Close() }()
	client := newWatcher(filter)
	// receive connects, and applies events up to that of the last change, which makes a pod ready.
	receive := func(last string) {
		decoder, closeStream := client.connect(t.Context(), t, base.URL)
		defer closeStream()
		n.set(newRunningPod(last, true))
		for {
			event := next(t, decoder)
			client.apply(t, event)
			if event.ID != 0 && strings.Contains(string(event.Object), `"name":"`+last+`"`) {
				return
			}
		}
	}
	receive("web")
	change(n, func() {
		base.CloseClientConnections()
		base.Close()
		n.stop()
		n.start(t)
		base = httptest.NewServer(n.newServer(t))
	})
	receive("other")
	list := getJSON[view.PodViewList](t, base.Config.Handler, "pods?"+filter, http.StatusOK)
	if want := summaries(list.Items); !slices.Equal(client.summaries(), want) || len(want) != 1 {
		t.Errorf("got %q, want %q: only the pod that was added after web", client.summaries(), want)
	}
}

// TestQ2_ResumeAtStart checks that a client that resumes before the history has recorded the start of the agent gets the state.
func TestQ2_ResumeAtStart(t *testing.T) {
	n := newNode(t)
	n.set(newRunningPod("web", true))
	n.stop()
	client := newWatcher("")
	client.id = n.log.LastSeq()
	n.forget("web")
	var err error
	if n.log, err = history.Open(history.Config{Dir: n.dir}); err != nil {
		t.Fatal(err)
	}
	base := httptest.NewServer(n.newServer(t))
	defer base.Close()
	decoder, closeStream := client.connect(t.Context(), t, base.URL)
	defer closeStream()
	n.run(t)
	n.set(newRunningPod("other", true)) // an event, also if there is no state
	for event := next(t, decoder); event.Type != view.Synced; event = next(t, decoder) {
		if event.ID != 0 {
			t.Fatalf("got %+v, want the state and SYNCED", event)
		}
	}
}

// forget removes a pod without a record, as happens while no agent runs.
func (n *node) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, podid.FullName{Namespace: "default", Name: name})
	delete(n.versions, podid.FullName{Namespace: "default", Name: name})
}

// BenchmarkPods lists 500 pods.
func BenchmarkPods(b *testing.B) {
	n := newNode(b)
	for i := range 500 {
		n.set(newRunningPod(fmt.Sprintf("pod-%d", i), i%2 == 0))
	}
	s := n.newServer(b)
	for _, parameters := range []string{"", "?where=" + url.QueryEscape("!pod.ready && pod.containers.exists(c, c.restarts == 0)")} {
		b.Run(parameters, func(b *testing.B) {
			for b.Loop() {
				if response := request(s, "GET", api+"pods"+parameters); response.Code != http.StatusOK {
					b.Fatal(response.Body)
				}
			}
		})
	}
}

package heraldtest

import (
	"context"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const bookmarkEvery = time.Minute

func isWatch(request *http.Request) bool {
	asked := request.URL.Query().Get("watch")
	return request.Method == http.MethodGet && request.PathValue("name") == "" && (asked == "true" || asked == "1")
}

// watch streams changes until the client leaves, its time is over, or the connection is cut.
func (s *APIServer) watch(w http.ResponseWriter, c call) {
	q, err := parseQuery(c)
	if err != nil {
		c.format.respond(w, 0, nil, err)
		return
	}
	ctx := c.Context()
	if q.TimeoutSeconds != nil && *q.TimeoutSeconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*q.TimeoutSeconds)*time.Second)
		defer cancel()
	}
	watcher := &watcher{query: q, store: s.store, cut: s.currentCut()}
	initial, err := watcher.begin()
	watcher.events = newEventStream(w, c.format) // from here on the client may count on seeing what happens
	if err == nil {
		watcher.sendInitial(initial)
		err = watcher.follow(ctx)
	}
	if err != nil {
		watcher.fail(err)
	}
}

// watcher is one watch in progress. It belongs to the goroutine that serves the request.
type watcher struct {
	query
	store  *store
	cut    <-chan struct{}
	events *eventStream
	seen   int64 // every change up to this version was sent
}

// begin settles from which version on changes follow: where the client said that it is, or now, and then what there is
// comes first.
func (w *watcher) begin() ([]object, error) {
	if w.version > 0 && !w.isStreamedList() {
		w.seen = w.version
		return nil, nil
	}
	items, version := w.store.snapshot(w.filter)
	if w.version > version {
		return nil, tooLarge(w.version, version)
	}
	w.seen = version
	if w.SendInitialEvents != nil && !*w.SendInitialEvents {
		return nil, nil
	}
	return items, nil
}

func (w *watcher) isStreamedList() bool { return w.SendInitialEvents != nil && *w.SendInitialEvents }

func (w *watcher) sendInitial(items []object) {
	for _, item := range items {
		w.events.send(watch.Added, item)
	}
	if w.isStreamedList() && w.AllowWatchBookmarks {
		w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
}

// follow sends what happens from now on.
func (w *watcher) follow(ctx context.Context) error {
	var bookmarks <-chan time.Time
	if w.AllowWatchBookmarks {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		bookmarks = ticker.C
	}
	for {
		changes, more, err := w.store.since(w.seen)
		if err != nil {
			return err
		}
		for _, step := range changes {
			w.breakOffIfCut()
			w.show(step)
			w.seen = step.version
		}
		select {
		case <-more:
		case <-bookmarks:
			w.bookmark(nil)
		case <-w.cut:
			w.breakOffIfCut()
		case <-ctx.Done():
			return nil
		}
	}
}

// breakOffIfCut comes before every change that is shown: nothing that happens after a cut may pass it.
func (w *watcher) breakOffIfCut() {
	select {
	case <-w.cut:
		panic(http.ErrAbortHandler)
	default:
	}
}

// show tells of a change as it looks to somebody who sees only what matches: what stops matching is gone.
func (w *watcher) show(step change) {
	was, is := w.matches(step.key, step.before), w.matches(step.key, step.after)
	switch {
	case was && is:
		w.events.send(watch.Modified, step.after)
	case is:
		w.events.send(watch.Added, step.after)
	case was:
		w.events.send(watch.Deleted, tombstone(step.before, step.version))
	}
}

func (w *watcher) bookmark(annotations map[string]string) {
	mark := w.resource.empty()
	mark.SetResourceVersion(formatVersion(w.seen))
	mark.SetAnnotations(annotations)
	w.events.send(watch.Bookmark, mark)
}

// fail reports an error inside the stream, where the API server reports what it finds out after it began to answer.
func (w *watcher) fail(err error) { w.events.send(watch.Error, statusOf(err)) }

// eventStream writes watch events in frames. When the client has gone they lead nowhere; the request's context tells.
type eventStream struct {
	format
	out   io.Writer
	flush func() error
}

func newEventStream(w http.ResponseWriter, f format) *eventStream {
	contentType := f.MediaType
	if contentType != runtime.ContentTypeJSON {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	stream := &eventStream{format: f, out: f.StreamSerializer.NewFrameWriter(w), flush: http.NewResponseController(w).Flush}
	_ = stream.flush()
	return stream
}

func (s *eventStream) send(kind watch.EventType, o runtime.Object) {
	body, err := s.encode(o)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: body}}
	frame, err := s.encodeWith(s.StreamSerializer.Serializer, event)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = s.out.Write(frame)
	_ = s.flush()
}

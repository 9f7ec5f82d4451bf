package heraldtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	optionsvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const bookmarkInterval = time.Minute

// filter selects the objects of a list or a watch.
type filter struct {
	resource  *resource
	namespace string // "": all namespaces
	fields    fields.Selector
	labels    labels.Selector
}

// matches reports whether the object matches. A nil object does not.
func (f filter) matches(k key, obj object) bool {
	return obj != nil && k.resource == f.resource && (f.namespace == "" || k.namespace == f.namespace) &&
		f.labels.Matches(labels.Set(obj.GetLabels())) && f.fields.Matches(f.resource.fields(obj))
}

// query holds the parsed options of a list or a watch.
type query struct {
	filter
	internalversion.ListOptions
	version int64 // requested resource version; 0 if not set
}

func parseQuery(c call) (query, error) {
	q := query{filter: filter{
		resource: c.key.resource, namespace: c.key.namespace, fields: fields.Everything(), labels: labels.Everything(),
	}}
	if err := scheme.ParameterCodec.DecodeParameters(c.URL.Query(), metav1.SchemeGroupVersion, &q.ListOptions); err != nil {
		return query{}, apierrors.NewBadRequest(err.Error())
	}
	if errs := optionsvalidation.ValidateListOptions(&q.ListOptions, true); len(errs) > 0 {
		return query{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if q.FieldSelector != nil {
		q.fields = q.FieldSelector
	}
	if q.LabelSelector != nil {
		q.labels = q.LabelSelector
	}
	supported := c.key.resource.fields(c.key.resource.newObject())
	for _, requirement := range q.fields.Requirements() {
		if !supported.Has(requirement.Field) {
			return query{}, apierrors.NewBadRequest("field label not supported: " + requirement.Field)
		}
	}
	if q.ResourceVersion == "" {
		return q, nil
	}
	version, err := strconv.ParseInt(q.ResourceVersion, 10, 64)
	if err != nil {
		return query{}, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", q.ResourceVersion))
	}
	q.version = version
	return q, nil
}

// list returns the current objects in one page; servers may ignore a limit. An exact older version is treated as compacted.
func (s *APIServer) list(c call) (int, runtime.Object, error) {
	q, err := parseQuery(c)
	if err != nil {
		return 0, nil, err
	}
	objects, version := s.storage.list(q.filter)
	if q.version > version {
		return 0, nil, newTooLargeVersionError(q.version, version)
	}
	if q.ResourceVersionMatch == metav1.ResourceVersionMatchExact && q.version != version {
		return 0, nil, newExpiredError(q.version, version)
	}
	list := c.key.resource.newList()
	items := make([]runtime.Object, 0, len(objects))
	for _, obj := range objects {
		items = append(items, obj)
	}
	if err := meta.SetList(list, items); err != nil {
		return 0, nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return 0, nil, err
	}
	accessor.SetResourceVersion(formatVersion(version))
	return http.StatusOK, list, nil
}

func newTooLargeVersionError(requested, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", requested, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

func isWatch(req *http.Request) bool {
	watch := req.URL.Query().Get("watch")
	return req.Method == http.MethodGet && req.PathValue("name") == "" && (watch == "true" || watch == "1")
}

// watch streams changes until the client disconnects, the requested timeout ends or the connection is cut.
func (s *APIServer) watch(w http.ResponseWriter, c call) {
	q, err := parseQuery(c)
	if err != nil {
		c.encoding.respond(w, 0, nil, err)
		return
	}
	ctx := c.Context()
	if q.TimeoutSeconds != nil && *q.TimeoutSeconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*q.TimeoutSeconds)*time.Second)
		defer cancel()
	}
	watcher := &watcher{query: q, storage: s.storage, cut: s.currentCut()}
	initial, err := watcher.start()
	watcher.events = newEventWriter(w, c.encoding) // the start version is fixed before the client gets the header
	if err == nil {
		watcher.sendInitial(initial)
		err = watcher.follow(ctx)
	}
	if err != nil {
		watcher.sendError(err)
	}
}

// watcher is a watch in progress. The goroutine that serves the request owns it.
type watcher struct {
	query
	storage *storage
	cut     <-chan struct{}
	events  *eventWriter
	sent    int64 // all changes up to this version were sent
}

// start sets the version after which changes are sent, and returns the objects to send first.
func (w *watcher) start() ([]object, error) {
	if w.version > 0 && !w.isStreamingList() {
		w.sent = w.version
		return nil, nil
	}
	objects, version := w.storage.list(w.filter)
	if w.version > version {
		return nil, newTooLargeVersionError(w.version, version)
	}
	w.sent = version
	if w.SendInitialEvents != nil && !*w.SendInitialEvents {
		return nil, nil
	}
	return objects, nil
}

func (w *watcher) isStreamingList() bool { return w.SendInitialEvents != nil && *w.SendInitialEvents }

func (w *watcher) sendInitial(objects []object) {
	for _, obj := range objects {
		w.events.send(watch.Added, obj)
	}
	if w.isStreamingList() && w.AllowWatchBookmarks {
		w.sendBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
}

// follow sends changes as they happen.
func (w *watcher) follow(ctx context.Context) error {
	var bookmarks <-chan time.Time
	if w.AllowWatchBookmarks {
		ticker := time.NewTicker(bookmarkInterval)
		defer ticker.Stop()
		bookmarks = ticker.C
	}
	for {
		changes, changed, err := w.storage.changesSince(w.sent)
		if err != nil {
			return err
		}
		for _, change := range changes {
			w.abortIfCut()
			w.sendChange(change)
			w.sent = change.version
		}
		select {
		case <-changed:
		case <-bookmarks:
			w.sendBookmark(nil)
		case <-w.cut:
			w.abortIfCut()
		case <-ctx.Done():
			return nil
		}
	}
}

// abortIfCut breaks the connection if it was cut. It runs before each change: changes after a cut must not be sent.
func (w *watcher) abortIfCut() {
	select {
	case <-w.cut:
		panic(http.ErrAbortHandler)
	default:
	}
}

// sendChange sends a change as the filter shows it: an object that starts to match is added, one that stops to match is
// deleted.
func (w *watcher) sendChange(change change) {
	before, after := w.matches(change.key, change.before), w.matches(change.key, change.after)
	switch {
	case before && after:
		w.events.send(watch.Modified, change.after)
	case after:
		w.events.send(watch.Added, change.after)
	case before:
		w.events.send(watch.Deleted, atVersion(change.before, change.version))
	}
}

func (w *watcher) sendBookmark(annotations map[string]string) {
	bookmark := w.resource.newObject()
	bookmark.SetResourceVersion(formatVersion(w.sent))
	bookmark.SetAnnotations(annotations)
	w.events.send(watch.Bookmark, bookmark)
}

// sendError sends an error as a watch event, because the response header was sent already.
func (w *watcher) sendError(err error) { w.events.send(watch.Error, statusOf(err)) }

// eventWriter writes watch events. It ignores write errors: the request's context ends when the client is gone.
type eventWriter struct {
	encoding
	frames io.Writer
	flush  func() error
}

func newEventWriter(w http.ResponseWriter, encoding encoding) *eventWriter {
	contentType := encoding.MediaType
	if contentType != runtime.ContentTypeJSON {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	events := &eventWriter{
		encoding: encoding, frames: encoding.StreamSerializer.NewFrameWriter(w), flush: http.NewResponseController(w).Flush,
	}
	_ = events.flush()
	return events
}

func (e *eventWriter) send(eventType watch.EventType, obj runtime.Object) {
	body, err := e.encode(obj)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	event := &metav1.WatchEvent{Type: string(eventType), Object: runtime.RawExtension{Raw: body}}
	frame, err := e.encodeWith(e.StreamSerializer.Serializer, event)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = e.frames.Write(frame)
	_ = e.flush()
}

package localapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// writeTimeout bounds the time in which a client must read an event.
	writeTimeout = time.Minute
	// bookmarkPeriod is how often a watch without changes gets a bookmark, which keeps its version from expiring (KCT-24).
	bookmarkPeriod = time.Minute
)

// watchEvent is an event in the API server's encoding.
type watchEvent struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// watchStream writes the events of one watch.
type watchStream struct {
	options    *options
	format     format
	encoder    *json.Encoder
	controller *http.ResponseController
	hasColumns bool   // the columns of a table were sent
	position   uint64 // the version up to which changes were sent
}

// serveWatch streams changes until the client leaves, the requested time is over or the server stops.
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, o *options, f format) {
	ctx := r.Context()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	stream := &watchStream{options: o, format: f, encoder: json.NewEncoder(w), controller: http.NewResponseController(w)}
	changed, unsubscribe := s.store.subscribe()
	defer unsubscribe()
	if !stream.begin(s.store) || stream.controller.Flush() != nil { // send the header even if there are no events yet
		return
	}
	bookmarks := time.NewTicker(bookmarkPeriod)
	defer bookmarks.Stop()
	for !s.store.isClosed() {
		if !stream.sendChanges(s.store) {
			return
		}
		select {
		case <-changed:
		case <-bookmarks.C:
			if o.bookmarks && !stream.sendBookmark(nil) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// begin sends the existing objects if the watch begins with them, and sets the position.
func (w *watchStream) begin(s *store) bool {
	w.position = w.options.version
	if w.options.hasVersion && !w.options.initialEvents {
		return true
	}
	objects, version := s.list(w.options.kind)
	if w.options.hasVersion && w.options.version > version {
		return w.sendError(tooLargeVersion(w.options.version, version))
	}
	w.position = version
	for _, obj := range objects {
		if w.options.matches(obj) && !w.send(watch.Added, obj) {
			return false
		}
	}
	if w.options.initialEvents && w.options.bookmarks {
		return w.sendBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return true
}

// sendChanges sends what has changed since the position.
func (w *watchStream) sendChanges(s *store) bool {
	changes, version, ok := s.since(w.options.kind, w.position)
	if !ok { // KCT-22
		return w.sendError(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.position, version)))
	}
	for _, c := range changes {
		if !w.sendChange(c) {
			return false
		}
	}
	w.position = version
	return true
}

// sendChange sends a change as seen through the selectors: an object that begins to match is added, one that ceases to match is
// deleted (KCT-25).
func (w *watchStream) sendChange(c change) bool {
	before, after := w.options.matches(c.before), w.options.matches(c.after)
	switch {
	case before && after:
		return w.send(watch.Modified, c.after)
	case after:
		return w.send(watch.Added, c.after)
	case before:
		return w.send(watch.Deleted, withVersion(c.before, c.version))
	}
	return true
}

// withVersion returns a copy of a deleted object with the version of its deletion.
func withVersion(obj object, version uint64) object {
	copied := obj.DeepCopyObject().(object)
	copied.SetResourceVersion(strconv.FormatUint(version, 10))
	return copied
}

func (w *watchStream) send(eventType watch.EventType, obj object) bool {
	converted := w.format.convert(w.options.kind, obj, !w.hasColumns)
	w.hasColumns = true
	return w.write(watchEvent{Type: eventType, Object: converted})
}

// sendBookmark tells the client the position.
func (w *watchStream) sendBookmark(annotations map[string]string) bool {
	obj := w.options.kind.newObject()
	obj.GetObjectKind().SetGroupVersionKind(w.options.kind.groupVersionKind())
	obj.SetResourceVersion(strconv.FormatUint(w.position, 10))
	obj.SetAnnotations(annotations)
	if w.format.as == asMetadata {
		return w.write(watchEvent{Type: watch.Bookmark, Object: partialMetadata(obj)})
	}
	return w.write(watchEvent{Type: watch.Bookmark, Object: obj})
}

// sendError sends the error as the last event, and returns false.
func (w *watchStream) sendError(err *apierrors.StatusError) bool {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	_ = w.write(watchEvent{Type: watch.Error, Object: &status})
	return false
}

func (w *watchStream) write(event watchEvent) bool {
	_ = w.controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // an httptest.ResponseRecorder has no deadlines
	return w.encoder.Encode(event) == nil && w.controller.Flush() == nil
}

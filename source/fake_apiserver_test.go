package source_test

import (
	"context"
	"errors"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// fakeAPIServer is a small API server for pods with versions, watches and the faults of a real one. Unlike
// heraldtest.APIServer it implements cache.ListerWatcher and runs in a synctest bubble without connections.
type fakeAPIServer struct {
	streams          bool // client and server support streamed lists
	rejectsStreaming bool // only the client does

	mu       sync.Mutex // guards all below
	version  int
	pods     map[string]*v1.Pod
	history  []versionedEvent
	oldest   int // older versions are compacted
	watches  []*watch.RaceFreeFakeWatcher
	err      error       // returned by every request
	stalled  bool        // open watches receive no more events
	hangs    bool        // requests get no response
	cutLists int         // number of streamed lists that end before they are complete
	response *v1.PodList // returned by every list

	listRequests, watchRequests []metav1.ListOptions
}

type versionedEvent struct {
	version int
	event   watch.Event
}

func newFakeAPIServer(pods ...*v1.Pod) *fakeAPIServer {
	s := &fakeAPIServer{version: 100, pods: map[string]*v1.Pod{}}
	for _, p := range pods {
		s.set(p)
	}
	return s
}

// set creates or updates a pod.
func (s *fakeAPIServer) set(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := watch.Added
	if old, found := s.pods[p.Name]; found && old.UID == p.UID {
		kind = watch.Modified
	}
	s.version++
	p = p.DeepCopy()
	p.ResourceVersion = strconv.Itoa(s.version)
	s.pods[p.Name] = p
	s.publishLocked(watch.Event{Type: kind, Object: p})
}

func (s *fakeAPIServer) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[name].DeepCopy()
	delete(s.pods, name)
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.publishLocked(watch.Event{Type: watch.Deleted, Object: p})
}

func (s *fakeAPIServer) publishLocked(event watch.Event) {
	s.history = append(s.history, versionedEvent{s.version, event})
	if s.stalled {
		return
	}
	for _, w := range s.watches {
		w.Action(event.Type, event.Object.DeepCopyObject())
	}
}

// configure changes the faults of the server.
func (s *fakeAPIServer) configure(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// closeWatches ends all watches without an error.
func (s *fakeAPIServer) closeWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

// compact drops the history and ends all watches with an expired version.
func (s *fakeAPIServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version
	for _, w := range s.watches {
		gone := apierrors.NewResourceExpired("too old resource version").Status()
		w.Error(&gone)
	}
	s.watches = nil
}

func (s *fakeAPIServer) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for _, w := range s.watches {
		w.Action(watch.Bookmark, s.bookmarkLocked())
	}
}

func (s *fakeAPIServer) bookmarkLocked() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.version)}}
}

func (s *fakeAPIServer) requests() (lists, watches []metav1.ListOptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listRequests, s.watchRequests
}

func (s *fakeAPIServer) IsWatchListSemanticsUnSupported() bool {
	return !s.streams && !s.rejectsStreaming
}

func (s *fakeAPIServer) List(metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("use the method with a context")
}

func (s *fakeAPIServer) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("use the method with a context")
}

func (s *fakeAPIServer) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := s.hangIfConfigured(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listRequests = append(s.listRequests, options)
	requested, _ := strconv.Atoi(options.ResourceVersion)
	switch {
	case s.err != nil:
		return nil, s.err
	case s.response != nil:
		return s.response, nil
	case requested > s.version:
		return nil, newVersionTooLargeError()
	}
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, p := range s.pods {
		list.Items = append(list.Items, *p.DeepCopy())
	}
	return list, nil
}

// newVersionTooLargeError returns the error of a server that was restored from an older state.
func newVersionTooLargeError() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

// hangIfConfigured blocks until the client cancels the request if the server hangs.
func (s *fakeAPIServer) hangIfConfigured(ctx context.Context) error {
	s.mu.Lock()
	hangs := s.hangs
	s.mu.Unlock()
	if !hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *fakeAPIServer) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := s.hangIfConfigured(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchRequests = append(s.watchRequests, options)
	from, _ := strconv.Atoi(options.ResourceVersion)
	switch {
	case s.err != nil:
		return nil, s.err
	case s.rejectsStreaming && options.SendInitialEvents != nil:
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	case from < s.oldest && options.SendInitialEvents == nil:
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	w := watch.NewRaceFreeFake()
	if options.SendInitialEvents != nil {
		for _, p := range s.pods {
			w.Add(p.DeepCopy())
		}
		if s.cutLists > 0 {
			s.cutLists--
			w.Stop()
			return w, nil
		}
		end := s.bookmarkLocked()
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		w.Action(watch.Bookmark, end)
	} else {
		for _, r := range s.history {
			if r.version > from {
				w.Action(r.event.Type, r.event.Object.DeepCopyObject())
			}
		}
	}
	s.stalled = false
	s.watches = append(s.watches, w)
	return w, nil
}

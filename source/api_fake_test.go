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

// apiServer is a small API server for pods: versions, a history of events, watches, and the faults that real ones have.
type apiServer struct {
	streams bool // lists can be sent as a watch
	old     bool // the client believes that they can, but the server cannot

	mu       sync.Mutex // guards all below
	version  int
	pods     map[string]*v1.Pod
	history  []recorded
	kept     int // versions before this are compacted away
	watches  []*watch.RaceFreeFakeWatcher
	down     error       // the answer to every request
	stalled  bool        // open watches hear nothing more
	silent   bool        // requests are not answered at all
	severed  int         // so many of the next streamed lists end before they are complete
	answer   *v1.PodList // the answer to the next lists
	lists    []metav1.ListOptions
	watching []metav1.ListOptions
}

type recorded struct {
	version int
	event   watch.Event
}

func newAPIServer(pods ...*v1.Pod) *apiServer {
	s := &apiServer{version: 100, pods: map[string]*v1.Pod{}}
	for _, p := range pods {
		s.set(p)
	}
	return s
}

// set creates or changes a pod.
func (s *apiServer) set(p *v1.Pod) {
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
	s.happenLocked(watch.Event{Type: kind, Object: p})
}

func (s *apiServer) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[name].DeepCopy()
	delete(s.pods, name)
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.happenLocked(watch.Event{Type: watch.Deleted, Object: p})
}

func (s *apiServer) happenLocked(event watch.Event) {
	s.history = append(s.history, recorded{s.version, event})
	if s.stalled {
		return
	}
	for _, w := range s.watches {
		w.Action(event.Type, event.Object.DeepCopyObject())
	}
}

// fault changes how the server behaves.
func (s *apiServer) fault(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// cut ends all watches without a word.
func (s *apiServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

// compact forgets the history and tells the watches so.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = s.version
	for _, w := range s.watches {
		gone := apierrors.NewResourceExpired("too old resource version").Status()
		w.Error(&gone)
	}
	s.watches = nil
}

func (s *apiServer) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for _, w := range s.watches {
		w.Action(watch.Bookmark, s.bookmarkLocked())
	}
}

func (s *apiServer) bookmarkLocked() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.version)}}
}

func (s *apiServer) requests() (lists, watches []metav1.ListOptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watching
}

func (s *apiServer) IsWatchListSemanticsUnSupported() bool { return !s.streams && !s.old }

func (s *apiServer) List(metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("a context is wanted")
}

func (s *apiServer) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("a context is wanted")
}

func (s *apiServer) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := s.hang(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, options)
	asked, _ := strconv.Atoi(options.ResourceVersion)
	switch {
	case s.down != nil:
		return nil, s.down
	case s.answer != nil:
		return s.answer, nil
	case asked > s.version:
		return nil, tooLarge()
	}
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, p := range s.pods {
		list.Items = append(list.Items, *p.DeepCopy())
	}
	return list, nil
}

// tooLarge is what a server says that was restored from an older state.
func tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

// hang waits for the client to lose its patience with a server that does not answer.
func (s *apiServer) hang(ctx context.Context) error {
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if !silent {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *apiServer) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := s.hang(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching = append(s.watching, options)
	from, _ := strconv.Atoi(options.ResourceVersion)
	switch {
	case s.down != nil:
		return nil, s.down
	case s.old && options.SendInitialEvents != nil:
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	case from < s.kept && options.SendInitialEvents == nil:
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	w := watch.NewRaceFreeFake()
	if options.SendInitialEvents != nil {
		for _, p := range s.pods {
			w.Add(p.DeepCopy())
		}
		if s.severed > 0 {
			s.severed--
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

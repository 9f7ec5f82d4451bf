package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/podid"
)

// APIConfig configures an API source.
type APIConfig struct {
	// ListerWatcher lists and watches the pods of all namespaces with the field selector spec.nodeName=<NodeName>. Required.
	ListerWatcher cache.ListerWatcher
	// NodeName is the name of this node. Required. Pods of other nodes are skipped and reported.
	NodeName string
	// Server is the URL of the API server, for Mux.States only. Defaults to "API server".
	Server string
	// WaitForNode returns when the Node object is known and pods can be admitted (CFG-31), or when ctx is done. Default: no
	// wait.
	WaitForNode func(ctx context.Context) error
	// IdleTimeout is the maximum time of a list, of the start of a watch, and between two events of a watch. A watch that
	// exceeds it is replaced. The API server sends a bookmark about once a minute. Defaults to 3m.
	IdleTimeout time.Duration
	// Logger receives the messages of client-go's reflector (Info and Debug). Defaults to slog.DiscardHandler.
	Logger *slog.Logger
}

// API reads the pods that are bound to this node from the API server. Run is called once.
type API struct {
	config APIConfig
}

// NewAPI returns an API source. It returns an error if the configuration is invalid.
func NewAPI(config APIConfig) (*API, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.IdleTimeout = cmp.Or(config.IdleTimeout, 3*time.Minute)
	config.Server = cmp.Or(config.Server, apiLocation)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &API{config: config}, nil
}

func (c APIConfig) validate() error {
	var errs []error
	if c.ListerWatcher == nil {
		errs = append(errs, errors.New("source.APIConfig: ListerWatcher is required"))
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("source.APIConfig: NodeName is required"))
	}
	if c.IdleTimeout < 0 {
		errs = append(errs, errors.New("source.APIConfig: IdleTimeout must not be negative"))
	}
	return errors.Join(errs...)
}

// Origin returns the URL of the API server.
func (a *API) Origin() string { return a.config.Server }

// Name implements Source.
func (a *API) Name() podid.Source { return podid.API }

// Run implements Source. Only the API server removes a pod: by a complete list without it or by a watch event, never by an
// error (CFG-34).
func (a *API) Run(ctx context.Context, sink Sink) error {
	if a.config.WaitForNode != nil {
		if err := a.config.WaitForNode(ctx); err != nil {
			return fmt.Errorf("wait for node %s: %w", a.config.NodeName, err)
		}
	}
	problems := &apiProblems{sink: sink}
	client := newAPIClient(a.config.ListerWatcher, a.config.IdleTimeout, problems)
	defer client.close()
	store := newAPIStore(a.config.NodeName, sink, problems, client.resetIdleTimer)
	options := cache.ReflectorOptions{Name: "pods of this node"}
	reflector := cache.NewReflectorWithOptions(client, &v1.Pod{}, store, options)
	a.runReflector(klog.NewContext(ctx, logr.FromSlogHandler(a.config.Logger.Handler())), reflector)
	return nil
}

// runReflector replaces the reflector's own loop, which passes errors to a handler shared by the whole process. The client
// has reported them already. Between attempts it honors Retry-After, within limits (F4).
func (a *API) runReflector(ctx context.Context, reflector *cache.Reflector) {
	backoff := newBackoff()
	for ctx.Err() == nil {
		started := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		a.config.Logger.Debug("List and watch of pods ended", "err", err)
		if time.Since(started) > 2*time.Minute {
			backoff = newBackoff()
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(backoff.Step(), apierror.RetryAfter(err))):
		}
	}
}

// newBackoff returns the backoff of client-go's reflector: from about one second to between 30 and 60.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}

// apiStore receives the reflector's objects. A list becomes a complete set. An event becomes the change of one pod,
// whatever the number of pods. The reflector's goroutine owns it.
type apiStore struct {
	nodeName       string
	sink           Sink
	problems       *apiProblems
	resetIdleTimer func()
	uids           map[podid.FullName]types.UID
}

func newAPIStore(nodeName string, sink Sink, problems *apiProblems, resetIdleTimer func()) *apiStore {
	return &apiStore{
		nodeName: nodeName, sink: sink, problems: problems, resetIdleTimer: resetIdleTimer,
		uids: map[podid.FullName]types.UID{},
	}
}

// Replace implements cache.ReflectorStore.
func (s *apiStore) Replace(items []any, _ string) error {
	s.resetIdleTimer()
	s.uids = make(map[podid.FullName]types.UID, len(items))
	pods := make([]*v1.Pod, 0, len(items))
	foreignPod := ""
	for _, item := range items {
		pod, isPod := item.(*v1.Pod)
		switch {
		case !isPod:
			return fmt.Errorf("list of pods contains a %T", item)
		case pod.Spec.NodeName != s.nodeName:
			foreignPod = s.describeForeignPod(pod)
		default:
			s.uids[podid.FullNameOf(pod)] = pod.UID
			pods = append(pods, withoutManagedFields(pod))
		}
	}
	s.problems.setForeignPod(foreignPod)
	s.sink.Replace(pods)
	return nil
}

// Add implements cache.ReflectorStore.
func (s *apiStore) Add(item any) error { return s.Update(item) }

// Update implements cache.ReflectorStore. A pod replaces the previous pod of its name, even without a delete event.
func (s *apiStore) Update(item any) error {
	s.resetIdleTimer()
	pod, isPod := item.(*v1.Pod)
	if !isPod {
		return fmt.Errorf("watch of pods contains a %T", item)
	}
	if pod.Spec.NodeName != s.nodeName {
		s.problems.setForeignPod(s.describeForeignPod(pod))
		return nil
	}
	name := podid.FullNameOf(pod)
	var deleted []types.UID
	if previous, found := s.uids[name]; found && previous != pod.UID {
		deleted = append(deleted, previous)
	}
	s.uids[name] = pod.UID
	s.sink.Apply([]*v1.Pod{withoutManagedFields(pod)}, deleted)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *apiStore) Delete(item any) error {
	s.resetIdleTimer()
	pod, isPod := item.(*v1.Pod)
	if !isPod {
		return fmt.Errorf("watch of pods contains a %T", item)
	}
	if name := podid.FullNameOf(pod); s.uids[name] == pod.UID {
		delete(s.uids, name)
	}
	s.sink.Apply(nil, []types.UID{pod.UID})
	return nil
}

// Resync implements cache.ReflectorStore. The reflector has no resync period.
func (s *apiStore) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore. A bookmark shows that the watch is alive.
func (s *apiStore) Bookmark(string) error {
	s.resetIdleTimer()
	return nil
}

func (s *apiStore) describeForeignPod(pod *v1.Pod) string {
	return fmt.Sprintf("sent pods that are not bound to node %s, such as %s on %q; they are skipped; "+
		"the request needs the field selector spec.nodeName", s.nodeName, podid.FullNameOf(pod), pod.Spec.NodeName)
}

// withoutManagedFields returns a copy without managed fields, which no component reads and which are often half of an
// object.
func withoutManagedFields(pod *v1.Pod) *v1.Pod {
	trimmed := *pod
	trimmed.ManagedFields = nil
	return &trimmed
}

// apiProblems holds the current problems of the API server and reports them to the sink. The reflector's goroutine and the
// lists that it waits for use it in turn.
type apiProblems struct {
	sink       Sink
	requestErr string // error of the last request
	foreignPod string // a pod of another node
}

// apiLocation is the location of problems with the API server.
const apiLocation = "API server"

// setRequestResult records the result of a request. An expired resource version is no problem: the reflector requests a
// newer one at once.
func (p *apiProblems) setRequestResult(verb string, err error) {
	switch {
	case err == nil:
		p.requestErr = ""
	case errors.Is(err, context.Canceled), apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return
	default:
		p.requestErr = fmt.Sprintf("cannot %s pods; the known pods are kept: %v", verb, withoutURL(err))
	}
	p.report()
}

// setForeignPod records a pod of another node that the server sent, or "" if a complete list had none.
func (p *apiProblems) setForeignPod(description string) {
	p.foreignPod = description
	p.report()
}

func (p *apiProblems) report() {
	var problems []Problem
	if p.requestErr != "" {
		problems = append(problems, Problem{Location: apiLocation, Message: p.requestErr, Unavailable: true})
	}
	if p.foreignPod != "" {
		problems = append(problems, Problem{Location: apiLocation, Message: p.foreignPod})
	}
	p.sink.Report(problems)
}

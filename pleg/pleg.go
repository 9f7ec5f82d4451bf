package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Runtime is the part of the container runtime that the PLEG reads. Every call returns when its context ends. The PLEG
// never modifies the pods that it returns.
type Runtime interface {
	// ListPods returns every pod that the runtime holds, in any state. Sandboxes and containers need only their IDs,
	// names, states and creation times.
	ListPods(ctx context.Context) ([]*observed.Pod, error)
	// InspectPod returns one pod in full. For an unknown pod it returns one without sandboxes and containers.
	InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error)
	// WatchPods calls changed for each pod that has an event, until ctx or the stream ends. It returns
	// errors.ErrUnsupported if the runtime has no events.
	WatchPods(ctx context.Context, changed func(podid.UID)) error
}

// Config configures a PLEG.
type Config struct {
	// Runtime is required.
	Runtime Runtime
	// RelistPeriod is the time from the end of one relist to the start of the next (PLEG-1). Defaults to 1s.
	RelistPeriod time.Duration
	// MaxInspections is how many pods are inspected concurrently (PLEG-22). Defaults to 8.
	MaxInspections int
	// CallTimeout bounds each runtime call. Defaults to 2m.
	CallTimeout time.Duration
	// UnhealthyAfter is the age of the last relist from which Healthy returns an error (PLEG-11). Defaults to 3m.
	UnhealthyAfter time.Duration
	// StaleAfter is the age of the last relist from which the states of containers count as unknown, see Stale. Defaults to 30s: three
	// slow relists.
	StaleAfter time.Duration
	// OnFresh is called after a relist if the last one was stale, or the first. It must not block. Defaults to none.
	OnFresh func()
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the metrics. Defaults to none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.Runtime == nil {
		errs = append(errs, errors.New("pleg.Config: Runtime is required"))
	}
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"RelistPeriod", int64(c.RelistPeriod)},
		{"MaxInspections", int64(c.MaxInspections)},
		{"CallTimeout", int64(c.CallTimeout)},
		{"UnhealthyAfter", int64(c.UnhealthyAfter)},
		{"StaleAfter", int64(c.StaleAfter)},
	} {
		if field.value < 0 {
			errs = append(errs, fmt.Errorf("pleg.Config: %s must not be negative", field.name))
		}
	}
	c.RelistPeriod = cmp.Or(c.RelistPeriod, time.Second)
	c.MaxInspections = cmp.Or(c.MaxInspections, 8)
	c.CallTimeout = cmp.Or(c.CallTimeout, 2*time.Minute)
	c.UnhealthyAfter = cmp.Or(c.UnhealthyAfter, 3*time.Minute)
	c.StaleAfter = cmp.Or(c.StaleAfter, 30*time.Second)
	if c.OnFresh == nil {
		c.OnFresh = func() {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, errors.Join(errs...)
}

// PLEG is the pod lifecycle event generator. All methods are safe for concurrent use before, during and after Run.
type PLEG struct {
	config  Config
	metrics *metrics
	queue   *workqueue.Typed[podid.UID] // pods to inspect; never inspects one pod twice at a time

	mu         sync.Mutex // guards the fields below; never held across a runtime call
	records    map[podid.UID]*record
	list       []*observed.Pod             // result of the last successful relist
	listed     map[podid.UID]*observed.Pod // list by UID
	listedAt   time.Time                   // when the last successful relist began
	listErr    error                       // error of the newest relist, nil if it succeeded
	changed    map[podid.UID]bool
	changesSet wakeup.Signal // set when changed grows
}

// New returns a PLEG with an empty cache. It has no side effects except registering the metrics.
func New(config Config) (*PLEG, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &PLEG{
		config:     config,
		queue:      workqueue.NewTyped[podid.UID](),
		records:    map[podid.UID]*record{},
		changed:    map[podid.UID]bool{},
		changesSet: wakeup.New(),
	}
	p.metrics, err = newMetrics(config.Metrics, p)
	return p, err
}

// Get returns the cached state of the pod. It never returns nil: an unknown pod has no sandboxes and containers (PLEG-15).
// Its time is zero before the first relist, and while the pod was listed but not inspected yet.
func (p *PLEG) Get(uid podid.UID) *observed.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.getLocked(uid)
}

func (p *PLEG) getLocked(uid podid.UID) *observed.Pod {
	r, found := p.records[uid]
	switch {
	case !found:
		return &observed.Pod{UID: uid, At: p.listedAt}
	case r.pod == nil:
		return &observed.Pod{UID: uid}
	default:
		return r.pod
	}
}

// GetNewerThan returns the state of the pod at some time after minTime. If the cache is older, it requests an inspection and
// waits for the result until ctx ends (PLEG-15). It returns the error of a failed inspection.
func (p *PLEG) GetNewerThan(ctx context.Context, uid podid.UID, minTime time.Time) (*observed.Pod, error) {
	for requested := false; ; requested = true {
		p.mu.Lock()
		pod, err, ok := p.newerThanLocked(uid, minTime)
		if ok {
			p.mu.Unlock()
			return pod, err
		}
		if _, found := p.records[uid]; !requested || !found {
			p.requestInspectionLocked(uid)
		}
		updated := p.records[uid].subscribe()
		p.mu.Unlock()
		p.queue.Add(uid)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for runtime state of pod %s: %w", uid, ctx.Err())
		case <-updated:
		}
	}
}

// newerThanLocked returns the cached result and reports whether it is newer than minTime.
func (p *PLEG) newerThanLocked(uid podid.UID, minTime time.Time) (*observed.Pod, error, bool) {
	r, found := p.records[uid]
	switch {
	case !found:
		return p.getLocked(uid), nil, p.listedAt.After(minTime)
	case r.validAt(p.listedAt).After(minTime):
		return p.getLocked(uid), nil, true
	case r.err != nil && r.failedAt.After(minTime):
		return nil, r.err, true
	default:
		return nil, nil, false
	}
}

// Refresh requests an inspection of the pod before the next relist. Requests made before the inspection begins share it. It
// does not block.
func (p *PLEG) Refresh(uid podid.UID) {
	p.mu.Lock()
	p.requestInspectionLocked(uid)
	p.mu.Unlock()
	p.queue.Add(uid)
}

// requestInspectionLocked marks the cached state as stale until the pod is inspected.
func (p *PLEG) requestInspectionLocked(uid podid.UID) {
	r, found := p.records[uid]
	if !found {
		r = &record{}
		p.records[uid] = r
	}
	r.requested++
}

// Pods returns the last complete list, without details, and when it was begun. The time is zero before the first relist.
func (p *PLEG) Pods() ([]*observed.Pod, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list, p.listedAt
}

// WaitForChanges blocks until the state of at least one pod has changed since it was last returned, and returns all such
// pods. Only one goroutine may call it.
func (p *PLEG) WaitForChanges(ctx context.Context) ([]podid.UID, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.changesSet:
		}
		p.mu.Lock()
		uids := slices.Sorted(maps.Keys(p.changed))
		clear(p.changed)
		p.mu.Unlock()
		if len(uids) > 0 {
			return uids, nil
		}
	}
}

func (p *PLEG) markChangedLocked(uid podid.UID) {
	p.changed[uid] = true
	p.changesSet.Set()
}

// Stale reports whether the runtime was not listed for so long that the states of containers are not known.
func (p *PLEG) Stale() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isStaleLocked(time.Now())
}

func (p *PLEG) isStaleLocked(now time.Time) bool {
	return p.listedAt.IsZero() || now.Sub(p.listedAt) > p.config.StaleAfter
}

// Healthy returns an error if the last relist is older than Config.UnhealthyAfter. A pod that is slow to inspect does not
// make the PLEG unhealthy (PLEG-11, BUG-38).
func (p *PLEG) Healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := time.Since(p.listedAt)
	var err error
	switch {
	case p.listedAt.IsZero():
		err = errors.New("the runtime has not listed its pods yet")
	case age > p.config.UnhealthyAfter:
		err = fmt.Errorf("the runtime last listed its pods %v ago", age.Round(time.Second))
	default:
		return nil
	}
	if p.listErr != nil {
		err = fmt.Errorf("%w: %w", err, p.listErr)
	}
	return err
}

package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/heraldnode/herald/podid"
)

// Mirrors keeps exactly one mirror in the API server for each static pod that the Manager holds, and none for those
// that it does not. It goes by level: whatever happened, it compares what should be with what is and makes one step
// after the other.
//
// Any goroutine may call its methods. A name has at most one worker at a time (the queue sees to it), and that worker
// alone touches the name's memory.
type Mirrors struct {
	config    MirrorConfig
	calls     calls
	owner     *owner
	patience  patience
	conflicts *conflicts

	queue atomic.Pointer[nameQueue] // nil while Run does not run

	mu         sync.Mutex // guards memories (the map, not what it leads to) and pauseUntil
	memories   map[podid.FullName]*memory
	pauseUntil time.Time // the server asked us to keep quiet until then
}

// nameQueue delays but does not limit: how long a name waits is for patience to say, and must hold against a wake-up
// too.
type nameQueue = workqueue.TypedDelayingInterface[podid.FullName]

// NewMirrors checks the config and registers the metrics. The error names the field that is wrong.
func NewMirrors(config MirrorConfig) (*Mirrors, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	total, gauge := newCallsTotal(), newConflictsGauge()
	if config.Metrics != nil {
		for _, metric := range []prometheus.Collector{total, gauge} {
			if err := config.Metrics.Register(metric); err != nil {
				return nil, fmt.Errorf("pod: MirrorConfig.Metrics: %w", err)
			}
		}
	}
	api := calls{api: config.API, total: total}
	return &Mirrors{
		config: config,
		calls:  api,
		owner: &owner{
			nodeName: config.NodeName, get: api.getNode, log: config.Logger, turn: make(chan struct{}, 1),
		},
		patience: newPatience(),
		conflicts: &conflicts{
			log: config.Logger, events: config.Events, gauge: gauge, open: map[podid.FullName]Conflict{},
		},
		memories: map[podid.FullName]*memory{},
	}, nil
}

// Run keeps the mirrors until ctx ends, and returns nil then. Without an API server there is nothing to keep and it
// returns nil at once (PM-17). The error is that of a second Run beside the first.
func (m *Mirrors) Run(ctx context.Context) error {
	if m.config.API == nil {
		return nil
	}
	queue := workqueue.NewTypedDelayingQueue[podid.FullName]()
	if !m.queue.CompareAndSwap(nil, &queue) {
		queue.ShutDown()
		return errors.New("pod: Mirrors.Run is already running")
	}
	var workers sync.WaitGroup
	for range m.config.Workers {
		workers.Go(func() { m.work(ctx, queue) })
	}
	m.lookAtAllUntilDone(ctx)
	m.queue.Store(nil)
	queue.ShutDown()
	workers.Wait()
	return nil
}

// Wake says that something about the name may have changed: its static pod, its mirror, or that a pod of the name
// stopped. It never blocks for long, and any number of calls before the look is one. Before Run it does nothing, for
// Run begins with a look at all names.
func (m *Mirrors) Wake(name podid.FullName) {
	if queue := m.queue.Load(); queue != nil {
		(*queue).Add(name)
	}
}

// Conflicts lists the static pods that the cluster cannot see until somebody acts, by name.
func (m *Mirrors) Conflicts() []Conflict { return m.conflicts.list() }

func (m *Mirrors) lookAtAllUntilDone(ctx context.Context) {
	ticker := time.NewTicker(m.config.Resync)
	defer ticker.Stop()
	for {
		for _, name := range m.allNames() {
			m.Wake(name)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// allNames are those that the Manager or our own memory has something about. A name may be in it twice.
func (m *Mirrors) allNames() []podid.FullName {
	names := m.config.Pods.GetMirroredNames()
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(names, maps.Keys(m.memories))
}

func (m *Mirrors) work(ctx context.Context, queue nameQueue) {
	for {
		name, shutDown := queue.Get()
		if shutDown {
			return
		}
		if ctx.Err() == nil {
			if again := m.upkeep(ctx, name); again > 0 {
				queue.AddAfter(name, again)
			}
		}
		queue.Done(name)
	}
}

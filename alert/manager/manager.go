package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// Manager evaluates the rules of a node. Run must be called at most once. All other methods are safe for concurrent use, before, during and
// after Run; those that tell what happened never block and do no I/O.
type Manager struct {
	config   Config
	queue    *queue
	metrics  *metrics
	requests chan request
	ended    chan struct{} // closed when Run ends
	// triggers has those of all rules: what no rule depends on is not queued.
	triggers   atomic.Uint32
	alerting   atomic.Pointer[view.Alerting]
	conditions atomic.Pointer[[]v1.NodeCondition]
	loader     *loader // owned by the goroutine that watches files
	worker     *worker // owned by Run

	mu     sync.RWMutex // guards all below; only Run writes
	engine *engine.Engine
	rules  *loadedRules
}

// New returns a Manager that continues what Config.State has. It reads the rule files.
func New(config Config) (*Manager, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		config: config, queue: newQueue(), requests: make(chan request), ended: make(chan struct{}),
		engine: engine.New(engine.Config{NodeName: config.NodeName, Instance: config.Instance}),
	}
	m.alerting.Store(&view.Alerting{})
	m.conditions.Store(&[]v1.NodeCondition{})
	if m.loader, err = newLoader(&m.config); err != nil {
		return nil, err
	}
	if m.worker, err = newWorker(m); err != nil {
		return nil, err
	}
	if m.metrics, err = newMetrics(config.Metrics, m); err != nil {
		return nil, err
	}
	now := time.Now()
	m.rules, _ = m.loader.scan()
	if err := m.restore(now); err != nil {
		return nil, err
	}
	m.setRules(m.rules, now)
	m.worker.publish()
	m.worker.publishConditions(now)
	return m, nil
}

// restore continues the alerts and silences of an earlier run.
func (m *Manager) restore(now time.Time) error {
	log := m.worker.log
	if log == nil {
		return nil
	}
	saved, err := log.Load()
	var invalid *checkpoint.InvalidFileError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &invalid): // the log has set the file aside
		m.config.Logger.Error("Failed to load alerts, starting without them", "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("load alerts: %w", err)
	}
	m.engine.Restore(engine.Join(saved...), now)
	return nil
}

// setRules replaces the rules. The caller holds the lock, or is New.
func (m *Manager) setRules(loaded *loadedRules, now time.Time) {
	m.rules = loaded
	var triggers rule.Trigger
	for _, r := range loaded.set.Rules {
		triggers |= r.Triggers
	}
	m.triggers.Store(uint32(triggers))
	m.engine.SetRules(loaded.set, now)
}

// isWanted reports whether a rule depends on the trigger.
func (m *Manager) isWanted(trigger rule.Trigger) bool {
	return rule.Trigger(m.triggers.Load())&trigger != 0
}

// PodVersion tells of a version of a pod's status. Call it for each version in order, with a lock held that keeps the order.
func (m *Manager) PodVersion(version Version) { m.queue.addVersion(version) }

// PodSynced tells that the API server acknowledged or refused a status of the pod.
func (m *Manager) PodSynced(uid podid.UID) {
	if m.isWanted(rule.OnSync) {
		m.queue.addFact(uid, rule.OnSync)
	}
}

// PodProbed tells that a probe of the pod was answered.
func (m *Manager) PodProbed(uid podid.UID) {
	if m.isWanted(rule.OnProbe) {
		m.queue.addFact(uid, rule.OnProbe)
	}
}

// PodsSampled tells that the loads of pods were measured.
func (m *Manager) PodsSampled() {
	if m.isWanted(rule.OnLoad) {
		m.queue.add(func(p *pending) { p.allPods |= rule.OnLoad })
	}
}

// NodeSampled tells that the load of the node was measured.
func (m *Manager) NodeSampled() { m.queue.add(func(p *pending) { p.node |= rule.OnLoad }) }

// NodeChanged tells that something about the node, its runtime, its sources or its connection to the API server may have changed. Rules are
// evaluated if something has.
func (m *Manager) NodeChanged() { m.queue.add(func(p *pending) { p.node |= rule.OnNode }) }

// NodeEvent tells that something happened to the node, for node.count: clock, boot, lease, load or runtime.
func (m *Manager) NodeEvent(kind string, at time.Time) {
	m.queue.add(func(p *pending) {
		if len(p.events) < maxEvents {
			p.events = append(p.events, nodeEvent{kind, at})
		}
	})
}

// Stopping tells why the agent is about to stop an instance of a container, in the words of plan.StopReason. containerID is the one of the
// pod status.
func (m *Manager) Stopping(containerID, reason string) { m.queue.addStop(containerID, reason) }

// KnownPods tells which pods the node is to run, when all sources are complete. When each of them has been seen, restored alerts of others
// are resolved. Later calls are ignored. known must not be modified afterwards.
func (m *Manager) KnownPods(known map[types.UID]bool) {
	if !m.worker.hasStarted.Load() {
		m.queue.add(func(p *pending) { p.known = known })
	}
}

// Run evaluates rules until ctx ends. Then it processes what is pending and stores everything.
func (m *Manager) Run(ctx context.Context) error {
	defer close(m.ended)
	var watcher sync.WaitGroup
	watcher.Go(func() { m.watchFiles(ctx) })
	m.worker.run(ctx)
	watcher.Wait()
	return nil
}

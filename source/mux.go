package source

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/podid"
)

// MuxConfig says what a Mux merges.
type MuxConfig struct {
	// Sources to merge, each with a name of its own. Required. A source that is not listed is not waited for (CFG-32).
	Sources []Source
	// Events gets an event for each problem. Default: none.
	Events event.Recorder
	// NodeName is what events are about when a problem is not about a pod. Required with Events.
	NodeName string
	// Logger gets problems (Warn), static pods that come, change and go (Info) and API pods likewise (Debug).
	// Default: silence.
	Logger *slog.Logger
	// Metrics takes herald_manifest_errors_total and herald_manifest_problems while Run runs. Default: none.
	Metrics prometheus.Registerer
}

// Mux merges the pods of all sources into one stream of changes.
//
// Run is called once; its delivery goroutine owns the ledger. All other methods may be called by any goroutine at any
// time.
type Mux struct {
	sources    []Source
	intakes    []*intake // of the sources, in their order
	updates    chan Update
	changed    chan struct{} // capacity 1: look again
	ledger     *ledger
	problems   *registry
	metrics    *metrics
	logger     *slog.Logger
	registerer prometheus.Registerer
}

// NewMux checks the configuration.
func NewMux(config MuxConfig) (*Mux, error) {
	if len(config.Sources) == 0 {
		return nil, fmt.Errorf("source.MuxConfig.Sources: want at least one")
	}
	if config.Events != nil && config.NodeName == "" {
		return nil, fmt.Errorf("source.MuxConfig.Node: required with Events")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Mux{
		sources:    config.Sources,
		updates:    make(chan Update),
		changed:    make(chan struct{}, 1),
		ledger:     newLedger(),
		metrics:    newMetrics(config.Sources),
		logger:     config.Logger,
		registerer: config.Metrics,
	}
	m.problems = newRegistry(config, m.metrics)
	for _, source := range config.Sources {
		if m.intake(source.Name()) != nil {
			return nil, fmt.Errorf("source.MuxConfig.Sources: two are named %q", source.Name())
		}
		m.intakes = append(m.intakes, newIntake(source.Name(), m.look, m.problems))
	}
	return m, nil
}

// Updates delivers the batches in order. Nobody may drop one: each is a difference to those before it. It is closed
// when Run ends.
func (m *Mux) Updates() <-chan Update { return m.updates }

// Ready reports whether the consumer knows, and has acted on, a complete set of the source. Until then the source's
// pods are unknown: what is not wanted by it must not be taken for unwanted. It says nothing about any other source, so
// that one that cannot be reached stops nobody else's pods from being replaced or removed (BUG-11). A source that is
// not configured has nothing to tell and is ready.
func (m *Mux) Ready(source podid.Source) bool {
	in := m.intake(source)
	return in == nil || in.ready()
}

// AllReady reports whether every source is ready (CFG-41).
func (m *Mux) AllReady() bool {
	for _, in := range m.intakes {
		if !in.ready() {
			return false
		}
	}
	return true
}

// Problems lists all that is wrong with the sources now.
func (m *Mux) Problems() []Problem { return m.problems.all() }

// Run runs the sources and delivers until ctx ends. It fails only when the metrics cannot be registered.
func (m *Mux) Run(ctx context.Context) error {
	defer close(m.updates)
	unregister, err := m.metrics.register(m.registerer)
	if err != nil {
		return fmt.Errorf("register the metrics of the pod sources: %w", err)
	}
	defer unregister()
	var running sync.WaitGroup
	for i, source := range m.sources {
		running.Go(func() { m.runSource(ctx, source, m.intakes[i]) })
	}
	m.deliver(ctx)
	running.Wait()
	return nil
}

// runSource keeps the failure of one source from being the end of the others: its pods stay as they are, and the
// problem is shown.
func (m *Mux) runSource(ctx context.Context, source Source, in *intake) {
	err := source.Run(ctx, in)
	if ctx.Err() != nil {
		return
	}
	in.Report([]Problem{{Message: fmt.Sprintf("source has stopped and its pods are kept; restart the agent: %v", err)}})
}

func (m *Mux) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		for _, in := range m.intakes {
			for _, update := range m.step(in) {
				m.log(ctx, update)
				select {
				case <-ctx.Done():
					return
				case m.updates <- update:
				}
			}
		}
	}
}

// step brings the ledger up to what one source wants now.
func (m *Mux) step(in *intake) []Update {
	changes, first := in.take()
	if len(changes) == 0 && !first {
		return nil
	}
	now := time.Now()
	updates := m.ledger.apply(in.source, changes, first, now)
	if first {
		in.announce(updates)
	}
	m.reportConflicts(now)
	return updates
}

func (m *Mux) reportConflicts(now time.Time) {
	conflicts := map[podid.Source][]complaint{}
	for _, c := range m.ledger.conflicts() {
		conflicts[c.Source] = append(conflicts[c.Source], c)
	}
	for _, in := range m.intakes {
		m.problems.report(reporter{in.source, "conflicts"}, conflicts[in.source], now)
	}
}

// look wakes the delivery; a wake-up that is already pending stands for this one too.
func (m *Mux) look() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// log leaves a trace of every change to a static pod: whoever may write a manifest is root on this node.
func (m *Mux) log(ctx context.Context, update Update) {
	level := slog.LevelInfo
	if update.Source == podid.API || update.Op == OpReconcile {
		level = slog.LevelDebug
	}
	if !m.logger.Enabled(ctx, level) {
		return
	}
	for _, pod := range update.Pods {
		m.logger.LogAttrs(ctx, level, "pod change from a source", podAttrs(update, pod)...)
	}
}

func podAttrs(update Update, pod *v1.Pod) []slog.Attr {
	return []slog.Attr{
		slog.String("source", string(update.Source)), slog.String("op", update.Op.String()),
		slog.String("pod", podid.FullNameOf(pod).String()), slog.String("uid", string(pod.UID)),
		slog.String("hash", podid.HashOf(pod)),
	}
}

func (m *Mux) intake(source podid.Source) *intake {
	for _, in := range m.intakes {
		if in.source == source {
			return in
		}
	}
	return nil
}

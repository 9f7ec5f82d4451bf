package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
)

// MuxConfig configures a Mux.
type MuxConfig struct {
	// Sources are merged. Required. Their names must be unique. Sources that are not listed are not waited for (CFG-32).
	Sources []Source
	// Events receives an event for each problem. Defaults to event.Discard.
	Events event.Recorder
	// OnProblem is called when a problem appears and when it is resolved. It must not block, and may be called from several
	// goroutines at once. Defaults to none.
	OnProblem func(problem Problem, isResolved bool)
	// NodeName is the object of events about problems without a pod. Required with Events.
	NodeName string
	// Logger receives problems (Warn), changes of static pods (Info) and changes of API pods (Debug). Defaults to
	// slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers herald_manifest_errors_total and herald_manifest_problems while Run runs. Default: none.
	Metrics prometheus.Registerer
}

// Mux merges the pods of all sources into one stream of updates.
//
// Run is called once. Its goroutine owns delivered. All other methods are safe for concurrent use.
type Mux struct {
	sources    []Source
	states     []*sourceState // in the order of sources
	updates    chan Update
	changed    wakeup.Signal
	delivered  *deliveredState
	problems   *problemSet
	metrics    *metrics
	logger     *slog.Logger
	registerer prometheus.Registerer
}

// NewMux returns a Mux that has not started its sources. It returns an error if the configuration is invalid.
func NewMux(config MuxConfig) (*Mux, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Events == nil {
		config.Events = event.Discard
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.OnProblem == nil {
		config.OnProblem = func(Problem, bool) {}
	}
	m := &Mux{
		sources:    config.Sources,
		updates:    make(chan Update),
		changed:    wakeup.New(),
		delivered:  newDeliveredState(),
		metrics:    newMetrics(config.Sources),
		logger:     config.Logger,
		registerer: config.Metrics,
	}
	m.problems = newProblemSet(config, m.metrics)
	for _, source := range config.Sources {
		m.states = append(m.states, newSourceState(source.Name(), m.changed, m.problems))
	}
	return m, nil
}

func (c MuxConfig) validate() error {
	var errs []error
	if len(c.Sources) == 0 {
		errs = append(errs, errors.New("source.MuxConfig: Sources is required"))
	}
	seen := map[podid.Source]bool{}
	for _, source := range c.Sources {
		if seen[source.Name()] {
			errs = append(errs, fmt.Errorf("source.MuxConfig: Sources contains two sources named %q", source.Name()))
		}
		seen[source.Name()] = true
	}
	if c.Events != nil && c.NodeName == "" {
		errs = append(errs, errors.New("source.MuxConfig: NodeName is required with Events"))
	}
	return errors.Join(errs...)
}

// Updates returns the channel that delivers the batches in order. Run closes it. The consumer must not drop a batch: each
// one is relative to those before it.
func (m *Mux) Updates() <-chan Update { return m.updates }

// Ready reports whether the consumer has acted on a complete set of the source. Until then a pod that is missing from the
// source must not be treated as unwanted. Ready does not depend on other sources, so that an unreachable source does not
// block the replacement or removal of the pods of another (BUG-11). A source that is not configured is ready.
func (m *Mux) Ready(source podid.Source) bool {
	for _, state := range m.states {
		if state.source == source {
			return state.ready()
		}
	}
	return true
}

// AllReady reports whether every source is ready (CFG-41).
func (m *Mux) AllReady() bool {
	for _, state := range m.states {
		if !state.ready() {
			return false
		}
	}
	return true
}

// Problems returns the current problems of all sources.
func (m *Mux) Problems() []Problem { return m.problems.list() }

// Run runs the sources and delivers updates until ctx is done. It returns an error only if the metrics cannot be
// registered.
func (m *Mux) Run(ctx context.Context) error {
	defer close(m.updates)
	unregister, err := m.metrics.register(m.registerer)
	if err != nil {
		return fmt.Errorf("register the metrics of the pod sources: %w", err)
	}
	defer unregister()
	var running sync.WaitGroup
	for i, source := range m.sources {
		running.Go(func() { m.runSource(ctx, source, m.states[i]) })
	}
	m.deliver(ctx)
	running.Wait()
	return nil
}

// runSource runs one source. If it stops, its pods are kept, the problem is reported and the other sources continue.
func (m *Mux) runSource(ctx context.Context, source Source, state *sourceState) {
	err := source.Run(ctx, state)
	if ctx.Err() != nil {
		return
	}
	message := fmt.Sprintf("source stopped; its pods are kept; restart the agent: %v", err)
	state.Report([]Problem{{Message: message, Unavailable: true}})
}

func (m *Mux) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		for _, state := range m.states {
			for _, update := range m.step(state) {
				m.logUpdate(ctx, update)
				select {
				case <-ctx.Done():
					return
				case m.updates <- update:
				}
			}
		}
	}
}

// step applies the pending changes of one source to the delivered state and returns the batches to deliver.
func (m *Mux) step(state *sourceState) []Update {
	changes, isFirstSet := state.takeChanges()
	if len(changes) == 0 && !isFirstSet {
		return nil
	}
	now := time.Now()
	updates := m.delivered.apply(state.source, changes, isFirstSet, now)
	if isFirstSet {
		state.awaitAcks(updates)
	}
	m.reportConflicts(now)
	return updates
}

func (m *Mux) reportConflicts(now time.Time) {
	conflicts := map[podid.Source][]podProblem{}
	for _, conflict := range m.delivered.conflicts() {
		conflicts[conflict.Source] = append(conflicts[conflict.Source], conflict)
	}
	for _, state := range m.states {
		m.problems.report(reporter{state.source, reportedConflicts}, conflicts[state.source], now)
	}
}

// logUpdate logs the pods of a batch. Changes of static pods are logged at Info: write access to a manifest is equivalent
// to root on this node.
func (m *Mux) logUpdate(ctx context.Context, update Update) {
	level := slog.LevelInfo
	if update.Source == podid.API || update.Op == OpReconcile {
		level = slog.LevelDebug
	}
	if !m.logger.Enabled(ctx, level) {
		return
	}
	for _, pod := range update.Pods {
		m.logger.LogAttrs(ctx, level, "Received pod update", updateAttrs(update, pod)...)
	}
}

func updateAttrs(update Update, pod *v1.Pod) []slog.Attr {
	return []slog.Attr{
		slog.String("podSource", string(update.Source)), slog.String("op", update.Op.String()),
		slog.String("pod", podid.FullNameOf(pod).Key()), slog.String("podUID", string(pod.UID)),
		slog.String("hash", podid.HashOf(pod)),
	}
}

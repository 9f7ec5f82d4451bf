package notify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/internal/wakeup"
)

// maxItems bounds the alerts that are kept for delivery. The engine has at most 1,000; more are those that it has forgotten, and a sink has
// not heard of yet.
const maxItems = 2000

// Notifier delivers alerts. Its methods may be called from any goroutine, before, during and after Run. Use New to create one.
type Notifier struct {
	config  Config
	sinks   []*sink
	metrics *metrics
	journal journal
	begin   time.Time // of this run

	mu    sync.Mutex // guards all below and the state of sinks; never held during I/O
	items map[string]*item
	lost  []loss
}

// loss is an alert that a sink will not be told about any more.
type loss struct{ sink, key, result string }

// New returns a Notifier that continues where the checkpoint says. Run delivers.
func New(config Config) (*Notifier, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Notifier{config: config, begin: time.Now(), items: map[string]*item{}}
	if n.sinks, err = newSinks(config); err != nil {
		return nil, err
	}
	if n.metrics, err = newMetrics(config.Metrics, n); err != nil {
		return nil, err
	}
	if err := n.restore(); err != nil {
		return nil, err
	}
	return n, nil
}

// Update takes over alerts that have changed, each as it is now. It never blocks. The alerts must not be modified afterwards.
func (n *Notifier) Update(alerts []alert.Alert) {
	now := time.Now()
	n.mu.Lock()
	isChanged := n.updateLocked(alerts, now)
	n.mu.Unlock()
	if isChanged {
		n.wakeSinks()
	}
}

// Reconcile takes over all alerts. What was told as firing and is not among them is resolved. It never blocks. Call it when all alerts are
// known after a restart.
func (n *Notifier) Reconcile(all []alert.Alert) {
	now := time.Now()
	isKnown := make(map[string]bool, len(all))
	for i := range all {
		isKnown[all[i].Key()] = true
	}
	n.mu.Lock()
	n.updateLocked(all, now)
	var gone []alert.Alert
	for key, i := range n.items {
		if i.alert.IsFiring() && !isKnown[key] {
			gone = append(gone, resolve(&i.alert, now, "the alert is not known any more"))
		}
	}
	n.updateLocked(gone, now)
	n.mu.Unlock()
	n.wakeSinks()
}

// resolve returns the alert as resolved.
func resolve(a *alert.Alert, now time.Time, reason string) alert.Alert {
	ended := *a
	ended.State, ended.EndsAt, ended.Reason = alert.Resolved, now, reason
	return ended
}

func (n *Notifier) updateLocked(alerts []alert.Alert, now time.Time) (isChanged bool) {
	for i := range alerts {
		a := &alerts[i]
		key := a.Key()
		known := n.items[key]
		if a.State == alert.Pending || a.State == "" {
			if known == nil || !known.alert.IsFiring() {
				continue // nobody was told, and nobody will be
			}
			ended := resolve(&known.alert, now, a.Reason)
			a = &ended
		}
		isNew := known == nil
		if isNew {
			known = &item{key: key, group: groupOf(a.Labels), told: make([]told, len(n.sinks)), isRestored: true}
			n.items[key] = known
		}
		if known.describe(a, now, n.begin) || isNew {
			isChanged = true
		}
		n.journal.mark(key)
	}
	n.dropExcessLocked()
	return isChanged
}

// dropExcessLocked forgets resolved alerts, oldest first, if there are too many.
func (n *Notifier) dropExcessLocked() {
	excess := len(n.items) - maxItems
	if excess <= 0 {
		return
	}
	var ended []*item
	for _, i := range n.items {
		if !i.alert.IsFiring() {
			ended = append(ended, i)
		}
	}
	slices.SortFunc(ended, func(a, b *item) int {
		return cmp.Or(a.endedAt.Compare(b.endedAt), cmp.Compare(a.key, b.key))
	})
	for _, i := range ended[:min(excess, len(ended))] {
		n.removeLocked(i, resultDropped)
	}
}

// removeLocked forgets an alert. Sinks that have not heard all of it are counted.
func (n *Notifier) removeLocked(i *item, result string) {
	for _, s := range n.sinks {
		if next, _, isRefresh := s.rhythm.due(i, s.index); next != nothing && !isRefresh {
			n.metrics.count(s, result)
			if len(n.lost) < maxItems {
				n.lost = append(n.lost, loss{sink: s.name, key: i.key, result: result})
			}
		}
	}
	delete(n.items, i.key)
	n.journal.mark(i.key)
}

// expireLocked forgets alerts that all sinks know to be resolved, and those that it is too late to tell about.
func (n *Notifier) expireLocked(now time.Time) {
	for _, i := range n.items {
		age := now.Sub(i.endedAt)
		switch {
		case i.alert.IsFiring() || age < forgetAfter:
		case age >= resolveTTL:
			n.removeLocked(i, resultExpired)
		case n.isDoneLocked(i):
			n.removeLocked(i, resultExpired) // counts nothing: all sinks know
		}
	}
	for _, s := range n.sinks {
		s.sweep(n.items, now)
	}
}

func (n *Notifier) isDoneLocked(i *item) bool {
	for _, s := range n.sinks {
		if next, _, _ := s.rhythm.due(i, s.index); next != nothing {
			return false
		}
	}
	return true
}

func (n *Notifier) wakeSinks() {
	for _, s := range n.sinks {
		s.wake.Set()
	}
}

// Run delivers alerts until the context is done. It saves what was acknowledged before it returns. Call it once.
func (n *Notifier) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, s := range n.sinks {
		running.Go(func() { n.deliver(ctx, s) })
	}
	n.keep(ctx)
	running.Wait()
	for _, s := range n.sinks {
		s.sender.close()
	}
	if err := n.save(); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}

// deliver is the goroutine of a sink.
func (n *Notifier) deliver(ctx context.Context, s *sink) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, isSent := n.deliverOnce(ctx, s)
		if isSent {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// deliverOnce sends what is ready, or returns when something will be.
func (n *Notifier) deliverOnce(ctx context.Context, s *sink) (next time.Time, isSent bool) {
	n.mu.Lock()
	batch, truncated, found := s.pick(n.items, time.Now())
	isChanged := found.failing != s.health.isFailing
	s.health.isFailing = found.failing
	for i := range batch {
		if n.items[batch[i].key].attempt(s.index, &batch[i]) {
			n.journal.mark(batch[i].key)
		}
	}
	n.mu.Unlock()
	if isChanged {
		n.config.FailingChanged()
	}
	if len(batch) == 0 {
		return found.next, false
	}
	err := s.sender.send(ctx, batch, truncated)
	if err != nil && ctx.Err() != nil {
		return time.Time{}, true // shutting down: what is not acknowledged is sent by the next run
	}
	n.settle(s, batch, err, time.Now())
	return time.Time{}, true
}

// settle notes and logs the result of a request.
func (n *Notifier) settle(s *sink, batch []message, err error, now time.Time) {
	failures := n.note(s, batch, err, now)
	if failures == 0 && err != nil {
		n.config.Logger.Warn("Failed to deliver alerts", "sink", s.name, "alerts", len(batch), "err", err)
	} else if failures > 0 && err == nil {
		n.config.Logger.Info("Alerts are delivered again", "sink", s.name, "failures", failures)
	}
}

// note notes the result of a request and returns the number of failures before it.
func (n *Notifier) note(s *sink, batch []message, err error, now time.Time) (failures int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var units []*unit
	for i := range batch {
		m := &batch[i]
		known := n.items[m.key]
		if known == nil {
			continue // dropped meanwhile
		}
		if u := s.units[s.unitKey(known)]; u != nil && !slices.Contains(units, u) {
			units = append(units, u)
		}
		if err != nil {
			if isUnheard(err) {
				known.fail(s.index, m)
				n.journal.mark(m.key)
			}
			continue
		}
		if known.acknowledge(s.index, m, now) {
			n.journal.mark(m.key)
			n.metrics.observe(s, known, m, now)
		}
	}
	failures = s.health.failures
	s.settleUnits(units, len(batch), err, now)
	n.metrics.count(s, resultOf(err))
	return failures
}

// newSinks returns the sinks of the configuration.
func newSinks(config Config) ([]*sink, error) {
	var sinks []*sink
	for i := range config.Alertmanagers {
		s, err := newAlertmanager(config, config.Alertmanagers[i])
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, s)
	}
	for i := range config.Webhooks {
		s, err := newWebhook(config, config.Webhooks[i])
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, s)
	}
	if config.Events != nil {
		sinks = append(sinks, newEventSink(config))
	}
	sinks = append(sinks, newLogSink(config))
	names := map[string]bool{}
	for i, s := range sinks {
		if names[s.name] {
			return nil, fmt.Errorf("notify.Config: two sinks are called %s", s.name)
		}
		names[s.name] = true
		s.index, s.wake, s.units = i, wakeup.New(), map[string]*unit{}
	}
	return sinks, nil
}

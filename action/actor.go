package action

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/remedy"
)

// Actor carries out the actions of alerts. Create it with New. All methods are safe for concurrent use. Run must be called once.
type Actor struct {
	config  Config
	log     *checkpoint.Log[remedy.Ledger]
	metrics *metrics
	wake    wakeup.Signal
	results chan result
	resumes chan resume
	deeds   sync.WaitGroup

	mu       sync.Mutex
	inputs   map[string]input // by key of the alert: what is new since Run looked last
	ledger   remedy.Ledger    // modified by Run alone, which reads it without the lock
	refusals []Record

	// The fields below belong to Run.

	startedAt time.Time
	alerts    map[string]*firing // by key
	work      work
	state     State // as OnChange was told last
}

// input is the newest state of an alert that Run has not seen.
type input struct {
	alert   alert.Alert
	actions []rule.Action
	allows  Allows
}

// Allows evaluates the expression only_if of an action, by its index in the actions of the rule, with the present facts. It is called by
// the goroutine of Run. Without an expression it returns true.
type Allows func(action int) (bool, error)

// work is what goes on besides the ledger.
type work struct {
	disruptive bool // one is under way
	others     int  // number of other deeds under way
	uncordon   retry
	sweep      time.Time // from when on a cordon of an alert that is not known is undone
	breaker    due       // when the breaker is looked at
	verify     due       // when it is looked at whether actions helped
}

// due is when something is looked at next: now, at a time, or, if both are zero, never.
type due struct {
	now bool
	at  time.Time
}

func (d due) is(now time.Time) bool { return d.now || !d.at.IsZero() && !now.Before(d.at) }

// retry is when something that failed is tried again.
type retry struct {
	at    time.Time
	delay time.Duration
}

const (
	// maxAlerts bounds the alerts that are looked at.
	maxAlerts = 2048
	// maxOthers is the number of deeds that are not disruptive at a time.
	maxOthers = 2
	// recheck is when a refusal is decided again whose end is not known.
	recheck = 30 * time.Second
	// startup is how long after the start all alerts of earlier runs are known.
	startup = 3 * time.Minute
)

// New returns an Actor with the ledger of earlier runs. A ledger that is damaged is moved away, and disruptive actions are suspended.
func New(config Config) (*Actor, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Actor{
		config: config, metrics: newMetrics(), wake: wakeup.New(), results: make(chan result), resumes: make(chan resume),
		inputs: map[string]input{}, alerts: map[string]*firing{}, work: work{breaker: due{now: true}, verify: due{now: true}},
	}
	if err := a.metrics.register(config.Metrics); err != nil {
		return nil, err
	}
	if a.log, err = checkpoint.NewLog[remedy.Ledger](config.State, ledgerName, ledgerVersion); err != nil {
		return nil, err
	}
	now := config.Now()
	a.startedAt = now.At
	if err := a.load(now); err != nil {
		return nil, err
	}
	return a, nil
}

// load reads the ledger.
func (a *Actor) load(now remedy.Instant) error {
	values, err := a.log.Load()
	var invalid *checkpoint.InvalidFileError
	switch {
	case errors.As(err, &invalid):
		a.config.Logger.Error("The ledger of actions was damaged, so that disruptive actions are suspended", "err", err)
		breaker := remedy.Breaker{}.Suspend("the ledger of actions was damaged: what was done before is not known", now)
		a.ledger.Breaker = &breaker
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("load ledger of actions: %w", err)
	}
	for i := range values {
		a.ledger.Apply(values[i])
	}
	unknown := a.ledger.Restore(now)
	for i := range unknown {
		a.metrics.total.WithLabelValues(string(unknown[i].Type), resultOf(&unknown[i])).Inc()
		a.config.OnRecord(newRecord(unknown[i]))
	}
	if len(unknown) > 0 || invalid != nil {
		if err := a.write(remedy.Ledger{Entries: unknown, Breaker: a.ledger.Breaker}); err != nil {
			a.config.Logger.Error("Failed to write the ledger of actions", "err", err)
		}
	}
	a.publish()
	return nil
}

// Fired tells the Actor that an alert fires, or what has changed about an alert that fires. Calling it again with the same alert is
// harmless. Call it for alerts without actions, too: the breaker looks at all of them, and after a start for all alerts that still fire.
// It does not block.
func (a *Actor) Fired(fired alert.Alert, actions []rule.Action, allows func(action int) (bool, error)) {
	a.put(input{alert: fired, actions: actions, allows: allows})
}

// Resolved tells the Actor that an alert does not fire any more, also because its object is gone or its rule was removed. It does not
// block.
func (a *Actor) Resolved(resolved alert.Alert) {
	resolved.State = alert.Resolved
	a.put(input{alert: resolved})
}

func (a *Actor) put(in input) {
	key := in.alert.Key()
	a.mu.Lock()
	_, found := a.inputs[key]
	isFull := !found && len(a.inputs) >= maxAlerts
	if !isFull {
		a.inputs[key] = in
	}
	a.mu.Unlock()
	if isFull {
		a.metrics.dropped.Inc()
		return
	}
	a.wake.Set()
}

// Run decides and acts until ctx ends. Deeds that are under way then are waited for, so that their outcomes are written.
func (a *Actor) Run(ctx context.Context) error {
	a.work.sweep = a.startedAt.Add(startup)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := a.config.Now() // reads a file
		if next := a.step(ctx, now); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(0, next.Sub(now.At)))
		}
		select {
		case <-ctx.Done():
			a.drain()
			return nil
		case <-a.wake:
		case <-timer.C:
		case finished := <-a.results:
			a.finish(finished)
		case request := <-a.resumes:
			request.answer <- a.resume(request.by)
		}
	}
}

// drain waits for the deeds that are under way.
func (a *Actor) drain() {
	done := make(chan struct{})
	go func() {
		a.deeds.Wait()
		close(done)
	}()
	for {
		select {
		case finished := <-a.results:
			a.finish(finished)
		case <-done:
			return
		}
	}
}

// step does all that is due and returns when something is due next; zero if nothing is. Alerts that flap call it often: it must cost
// little if nothing is due.
func (a *Actor) step(ctx context.Context, now remedy.Instant) time.Time {
	a.takeInputs(now.At)
	node := sync.OnceValue(func() remedy.Node { return a.nodeFacts(ctx) })
	if a.work.breaker.is(now.At) {
		a.work.breaker = due{at: a.stepBreaker(node().Pods, now)}
	}
	if a.work.verify.is(now.At) {
		a.work.verify = due{at: a.verify(now.At)}
	}
	next := earliest(a.work.breaker.at, a.work.verify.at)
	next = earliest(next, a.undoCordons(ctx, now))
	return earliest(next, a.decideAll(ctx, node, now.At))
}

// takeInputs updates the alerts.
func (a *Actor) takeInputs(now time.Time) {
	a.mu.Lock()
	inputs := a.inputs
	a.inputs = map[string]input{}
	a.mu.Unlock()
	for key, in := range inputs {
		known, found := a.alerts[key]
		switch {
		case !found && !in.alert.IsFiring():
		case !found && len(a.alerts) >= maxAlerts:
			a.metrics.dropped.Inc()
		case !found:
			a.alerts[key] = newFiring(key, in, now)
			a.work.breaker.now = true
		default:
			wasActive := known.isActive()
			if known.update(in, now) {
				a.work.breaker.now = true
			} else if !wasActive && known.isActive() && a.ledger.Breaker != nil && a.ledger.Breaker.Reason != "" {
				a.work.breaker.at = earliest(a.work.breaker.at, now.Add(breakerPause)) // it may prolong the suspension
			}
		}
	}
}

// earliest returns the earlier of two times, one of which may be zero for never.
func earliest(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}

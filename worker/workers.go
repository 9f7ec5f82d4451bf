package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/heraldnode/herald/podid"
)

// Workers are the drivers of all pods of a node.
//
// Any goroutine may call the methods. mu is held for a few map operations at a time, never while anybody else is called;
// of a record, its own goroutine alone touches the memory, and mu guards the rest.
type Workers struct {
	config  Config
	metrics *metrics
	wake    chan struct{} // capacity 1: look at asleep
	journal *journal

	door sync.Mutex // one pod is asked about at a time; taken before mu

	mu        sync.Mutex // guards all below
	running   bool       // Run is
	records   map[podid.UID]*record
	names     names
	asleep    []*record          // want a goroutine and have none
	waiting   map[podid.UID]bool // static pods without a place
	housekept bool               // a pass knew every source (PW-41)
}

// New checks the config and registers the metrics. The error names the field that is wrong.
func New(config Config) (*Workers, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Workers{
		config: config, wake: make(chan struct{}, 1), records: map[podid.UID]*record{}, names: newNames(), waiting: map[podid.UID]bool{},
	}
	if w.journal, err = openJournal(config.State); err != nil {
		config.Logger.Error("What was begun before is not known", "err", err)
	}
	if w.metrics, err = newMetrics(config.Metrics, w); err != nil {
		return nil, err
	}
	return w, nil
}

// Run drives the pods until ctx ends, and returns nil when every step has ended. Containers are left as they are. What was
// asked for before Run is done now. The error is that of a second Run beside the first.
func (w *Workers) Run(ctx context.Context) error {
	if !w.occupy() {
		return errors.New("worker: Run is already running")
	}
	var live sync.WaitGroup
	for ctx.Err() == nil {
		for _, r := range w.takeAsleep() {
			live.Go(func() { w.live(ctx, r) })
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		}
	}
	live.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	return nil
}

func (w *Workers) occupy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	free := !w.running
	w.running = true
	return free
}

func (w *Workers) takeAsleep() []*record {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.asleep
	w.asleep = nil
	return taken
}

// wakeLocked makes the record's goroutine look again, and starts one where there is none.
func (w *Workers) wakeLocked(r *record) {
	if r.held {
		return
	}
	signal(r.inbox)
	if !r.live {
		r.live = true
		w.sleepLocked(r)
	}
}

// sleepLocked puts the record where Run finds it.
func (w *Workers) sleepLocked(r *record) {
	w.asleep = append(w.asleep, r)
	signal(w.wake)
}

// signal leaves a token, unless one lies there already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package pleg

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Runtime is what is asked of the container runtime. Every call ends with its context. What it returns is never modified.
type Runtime interface {
	// ListPods is every pod that the runtime holds, in any state: its sandboxes and containers with their IDs, names,
	// states and creation times, and no more.
	ListPods(ctx context.Context) ([]*observed.Pod, error)
	// InspectPod is one pod in full. A pod that is not there gives one without sandboxes and containers.
	InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error)
	// WatchPods calls back with each pod of which an event is heard, until ctx or the stream ends.
	// errors.ErrUnsupported: the runtime has no events.
	WatchPods(ctx context.Context, changed func(podid.UID)) error
}

// Config is what a PLEG needs. Runtime is required.
type Config struct {
	Runtime Runtime
	// RelistPeriod is the time from the end of one list to the next (PLEG-1). Default 1 s.
	RelistPeriod time.Duration
	// MaxInspections is how many pods are inspected at once (PLEG-22). Default 8.
	MaxInspections int
	// CallTimeout bounds each call of the runtime. Default 2 min.
	CallTimeout time.Duration
	// UnhealthyAfter is how old the newest list may be (PLEG-11). Default 3 min.
	UnhealthyAfter time.Duration
	// Logger is where the PLEG speaks. Nil: silence.
	Logger *slog.Logger
	// Metrics is where it counts. Nil: nowhere.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var err error
	if c.Runtime == nil {
		err = errors.Join(err, errors.New("pleg.Config: Runtime is required"))
	}
	if c.RelistPeriod < 0 || c.MaxInspections < 0 || c.CallTimeout < 0 || c.UnhealthyAfter < 0 {
		err = errors.Join(err, errors.New("pleg.Config: MaxInspections and durations must not be negative"))
	}
	c.RelistPeriod = orDefault(c.RelistPeriod, time.Second)
	c.MaxInspections = orDefault(c.MaxInspections, 8)
	c.CallTimeout = orDefault(c.CallTimeout, 2*time.Minute)
	c.UnhealthyAfter = orDefault(c.UnhealthyAfter, 3*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

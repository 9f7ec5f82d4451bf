package action

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
)

// Config configures an Actor. State, Views and Deeds are required.
type Config struct {
	// State is the directory of the ledger.
	State *checkpoint.Dir
	Views Views
	Deeds Deeds
	// NeverEnforce makes every disruptive action a dry-run, whatever its policy says.
	NeverEnforce bool
	// Now returns the time, with the time since the boot of the machine. Default: time.Now, without the latter.
	Now func() remedy.Instant
	// OnRecord is called for each decision and each outcome. It must not block. Default: none.
	OnRecord func(Record)
	// OnChange is called when State has changed. It must not block. Default: none.
	OnChange func()
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the metrics. Defaults to none.
	Metrics prometheus.Registerer
}

// Views has the present state of the node and its pods.
type Views interface {
	Pod(ctx context.Context, name podid.FullName) (view.PodView, bool)
	Node(ctx context.Context) view.NodeView
}

// Deeds carries out actions.
type Deeds interface {
	// Do carries an action out and returns what it did, in a few words. It returns an error that is ErrRefused if nothing was done because
	// somebody who decides about it does not allow it.
	Do(ctx context.Context, request Request) (message string, err error)
}

// ErrRefused says that an action was not allowed, for example by a disruption budget.
var ErrRefused = errors.New("refused")

// Request is an action to carry out.
type Request struct {
	// ID is the number of the action in the ledger.
	ID   uint64
	Type remedy.Type
	// Target is the name of a webhook or a program.
	Target string
	// Object is what the action acts upon.
	Object remedy.Object
	Alert  alert.Alert
}

// Reason says who wants the action and why, for the history of the object.
func (r *Request) Reason() string { return "alert " + r.Alert.Labels[alert.LabelName] }

const (
	ledgerName    = "actions"
	ledgerVersion = 1
)

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.State == nil {
		errs = append(errs, errors.New("action.Config: State is required"))
	}
	if c.Views == nil {
		errs = append(errs, errors.New("action.Config: Views is required"))
	}
	if c.Deeds == nil {
		errs = append(errs, errors.New("action.Config: Deeds is required"))
	}
	if c.Now == nil {
		c.Now = func() remedy.Instant { return remedy.Instant{At: time.Now()} }
	}
	if c.OnRecord == nil {
		c.OnRecord = func(Record) {}
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, errors.Join(errs...)
}

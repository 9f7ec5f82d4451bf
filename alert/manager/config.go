package manager

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// Views returns what rules are evaluated with. The Manager calls it from its own goroutine.
type Views interface {
	// PodVersion returns the view of a version of a pod's status.
	PodVersion(pod *v1.Pod, status *v1.PodStatus, version uint64, at time.Time) *view.PodView
	// PodNow returns the view of a pod as it is now, and false if the node does not have it.
	PodNow(uid podid.UID) (*view.PodView, bool)
	NodeNow() *view.NodeView
	// Describe returns why the pod is as it is, in one line, and the last lines of a container that failed, if there are any. It may read
	// files.
	Describe(ctx context.Context, pod podid.FullName, container string) (explain string, lastLog []string)
}

// Notifier delivers alerts. *notify.Notifier implements it.
type Notifier interface {
	// Update takes over alerts that have changed. It must not block.
	Update(alerts []alert.Alert)
	// Reconcile takes over all alerts: others are resolved. It must not block.
	Reconcile(all []alert.Alert)
	// Failing returns how many receivers fail.
	Failing() int
	// Deliveries returns by the keys of alerts which receivers know their present states. It must not block.
	Deliveries() map[string][]alert.Delivery
}

// Actor carries out the actions of rules. *action.Actor implements it.
type Actor interface {
	// Fired is called for each alert that fires, and when what mutes it changes. allows reports whether the condition of an action is true.
	// It must not block.
	Fired(fired alert.Alert, actions []rule.Action, allows func(action int) (bool, error))
	// Resolved is called for each alert that does not fire any more. It must not block.
	Resolved(resolved alert.Alert)
}

// Journal records what happens. *history.Log implements its first method.
type Journal interface {
	// AlertChanged records that an alert fired or was resolved. It must not block.
	AlertChanged(a *alert.Alert, at time.Time)
	// RulesChanged records that a rule file cannot be used, or can be used again: then message is empty. It must not block.
	RulesChanged(path, message string)
}

// Config configures a Manager. NodeName and Views are required.
type Config struct {
	// NodeName is the name of the node. Instance is the label of that name. Defaults to NodeName.
	NodeName, Instance string
	Views              Views

	// Paths are rule files and folders of them, which are watched. A folder need not exist. Defaults to none.
	Paths []string
	// NewWatcher creates the watcher of Paths. Defaults to fsnotify.NewWatcher.
	NewWatcher func() (*fsnotify.Watcher, error)
	// NoDefaults leaves the default rules out. Disable has names of rules that are not used.
	NoDefaults bool
	Disable    []string
	// ExternalURL is where people find the agent, for links in annotations. Defaults to none: there are no links.
	ExternalURL string

	// State stores alerts, silences and the last good rules. Defaults to none: nothing is stored.
	State *checkpoint.Dir
	// Notifier and Actor are told what fires and what is resolved. Default to none.
	Notifier Notifier
	Actor    Actor
	// Remedies returns for how many objects an action did not help twice in a row, and whether actions are suspended. It must not block.
	// Defaults to none.
	Remedies func() (exhausted int, isSuspended bool)
	// Journal records alerts and problems of rule files. Defaults to none.
	Journal Journal
	// OnConditions is called when the result of Conditions has changed. It must not block. Defaults to none.
	OnConditions func()
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the metrics. Defaults to none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("manager.Config: NodeName is required"))
	}
	if c.Views == nil {
		errs = append(errs, errors.New("manager.Config: Views is required"))
	}
	c.Instance = cmp.Or(c.Instance, c.NodeName)
	if c.Notifier == nil {
		c.Notifier = nobody{}
	}
	if c.Actor == nil {
		c.Actor = nobody{}
	}
	if c.Journal == nil {
		c.Journal = nobody{}
	}
	if c.Remedies == nil {
		c.Remedies = func() (int, bool) { return 0, false }
	}
	if c.NewWatcher == nil {
		c.NewWatcher = fsnotify.NewWatcher
	}
	if c.OnConditions == nil {
		c.OnConditions = func() {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, errors.Join(errs...)
}

// nobody is told nothing.
type nobody struct{}

func (nobody) Update([]alert.Alert)                                      {}
func (nobody) Reconcile([]alert.Alert)                                   {}
func (nobody) Failing() int                                              { return 0 }
func (nobody) Deliveries() map[string][]alert.Delivery                   { return nil }
func (nobody) Fired(alert.Alert, []rule.Action, func(int) (bool, error)) {}
func (nobody) Resolved(alert.Alert)                                      {}
func (nobody) AlertChanged(*alert.Alert, time.Time)                      {}
func (nobody) RulesChanged(string, string)                               {}

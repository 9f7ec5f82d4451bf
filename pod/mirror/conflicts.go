package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/podid"
)

// Reasons of a Conflict, and of the Warning event that reports it.
const (
	ReasonNameTaken = "MirrorPodNameTaken"    // the name belongs to a pod that this node must not touch (BUG-15)
	ReasonRejected  = "FailedCreateMirrorPod" // the API server rejects the mirror pod
)

// Conflict describes a static pod that stays invisible to the cluster until an operator acts. The pod runs, and the
// Reconciler keeps trying at a low rate.
type Conflict struct {
	Name    podid.FullName
	Reason  string // ReasonNameTaken or ReasonRejected
	Message string
	Since   time.Time
}

// conflictError is the error of a request that ends in a Conflict.
type conflictError struct {
	reason, message string
}

// Error returns the message.
func (e *conflictError) Error() string { return e.message }

func isConflict(err error) bool {
	var conflict *conflictError
	return errors.As(err, &conflict)
}

func newNameTakenError(pod *v1.Pod) *conflictError {
	return &conflictError{reason: ReasonNameTaken, message: fmt.Sprintf(
		"Cannot create a mirror pod: the name is taken by pod %s on node %q, which is not a mirror pod of this node; "+
			"rename or delete one of them", pod.UID, pod.Spec.NodeName)}
}

// newNameTakenUnreadableError reports a pod that this node may not read: one that is unbound, or bound to another node.
func newNameTakenUnreadableError() *conflictError {
	return &conflictError{reason: ReasonNameTaken, message: "Cannot create a mirror pod: " +
		"the name is taken by a pod that this node may not read; rename or delete one of them"}
}

func newRejectedError(err error) *conflictError {
	return &conflictError{reason: ReasonRejected, message: "Cannot create a mirror pod: " + err.Error()}
}

// conflictTracker holds the open conflicts and reports each change once.
type conflictTracker struct {
	logger *slog.Logger
	events event.Recorder
	gauge  prometheus.Gauge

	mu   sync.Mutex // guards open
	open map[podid.FullName]Conflict
}

func newConflictTracker(logger *slog.Logger, events event.Recorder) *conflictTracker {
	return &conflictTracker{
		logger: logger,
		events: events,
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "herald_mirror_conflicts",
			Help: "Number of static pods without mirror pod because their name is taken or the API server rejects the mirror pod.",
		}),
		open: map[podid.FullName]Conflict{},
	}
}

// report opens or updates the conflict of a static pod. It ignores a conflict that is already reported.
func (c *conflictTracker) report(static *v1.Pod, err *conflictError) {
	name := podid.FullNameOf(static)
	conflict := Conflict{Name: name, Reason: err.reason, Message: err.message, Since: time.Now()}
	c.mu.Lock()
	previous, found := c.open[name]
	changed := !found || previous.Reason != conflict.Reason || previous.Message != conflict.Message
	if changed {
		c.open[name] = conflict
		c.gauge.Set(float64(len(c.open)))
	}
	c.mu.Unlock()
	if !changed {
		return
	}
	c.logger.Warn("Static pod has no mirror pod", "pod", name.Key(), "podUID", static.UID,
		"reason", conflict.Reason, "message", conflict.Message)
	c.events.Event(static, v1.EventTypeWarning, conflict.Reason, conflict.Message)
}

// resolve closes the conflict of the name, if one is open.
func (c *conflictTracker) resolve(name podid.FullName) {
	c.mu.Lock()
	_, found := c.open[name]
	delete(c.open, name)
	c.gauge.Set(float64(len(c.open)))
	c.mu.Unlock()
	if found {
		c.logger.Info("Mirror pod conflict resolved", "pod", name.Key())
	}
}

// list returns the open conflicts, sorted by namespace and name.
func (c *conflictTracker) list() []Conflict {
	c.mu.Lock()
	defer c.mu.Unlock()
	conflicts := make([]Conflict, 0, len(c.open))
	for _, conflict := range c.open {
		conflicts = append(conflicts, conflict)
	}
	slices.SortFunc(conflicts, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name))
	})
	return conflicts
}

package pod

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

// The reasons of a Conflict, which are also those of the Warning events on the static pod.
const (
	ReasonNameTaken = "MirrorPodNameTaken"    // another pod has the name, and it is not ours to touch (BUG-15)
	ReasonRefused   = "FailedCreateMirrorPod" // the API server will not have the mirror
)

// Conflict is a static pod that the cluster cannot see, for a reason that an operator must remove. The pod runs
// nevertheless, and its mirror is still tried for, seldom.
type Conflict struct {
	Name    podid.FullName
	Reason  string // ReasonNameTaken or ReasonRefused
	Message string // for people
	Since   time.Time
}

// conflictError is a Conflict on its way from the server's answer to the report.
type conflictError struct {
	reason, message string
}

func (e *conflictError) Error() string { return e.message }

func isFinal(err error) bool {
	var conflict *conflictError
	return errors.As(err, &conflict)
}

func nameTakenBy(pod *v1.Pod) *conflictError {
	return &conflictError{reason: ReasonNameTaken, message: fmt.Sprintf(
		"Cannot mirror this static pod: its name is taken by pod %s on node %q, which is not a mirror of this node's; "+
			"rename one of them or delete the other", pod.UID, pod.Spec.NodeName)}
}

// nameTakenUnseen is for a pod that this node may not read, which means that it is bound to no node or to another.
func nameTakenUnseen() *conflictError {
	return &conflictError{reason: ReasonNameTaken, message: "Cannot mirror this static pod: " +
		"its name is taken by a pod that this node may not read; rename one of them or delete the other"}
}

func refused(err error) *conflictError {
	return &conflictError{reason: ReasonRefused, message: "Cannot mirror this static pod: " + err.Error()}
}

// conflicts knows which static pods have no mirror and why, and tells of every change once.
type conflicts struct {
	log    *slog.Logger
	events event.Recorder // nil: nobody listens
	gauge  prometheus.Gauge

	mu   sync.Mutex // guards open
	open map[podid.FullName]Conflict
}

func newConflictsGauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "herald_mirror_conflicts",
		Help: "Number of static pods that the cluster cannot see because their name is taken or their mirror is refused.",
	})
}

// report opens or changes the conflict of a static pod. The same report again is not news.
func (c *conflicts) report(static *v1.Pod, conflict *conflictError) {
	name := podid.FullNameOf(static)
	now := Conflict{Name: name, Reason: conflict.reason, Message: conflict.message, Since: time.Now()}
	c.mu.Lock()
	before, known := c.open[name]
	isNews := !known || before.Reason != now.Reason || before.Message != now.Message
	if isNews {
		c.open[name] = now
		c.gauge.Set(float64(len(c.open)))
	}
	c.mu.Unlock()
	if !isNews {
		return
	}
	c.log.Warn("Static pod has no mirror pod", "pod", name, "reason", now.Reason, "message", now.Message)
	if c.events != nil {
		c.events.Event(static, v1.EventTypeWarning, now.Reason, now.Message)
	}
}

// resolve closes the conflict of that name, if there is one.
func (c *conflicts) resolve(name podid.FullName) {
	c.mu.Lock()
	_, known := c.open[name]
	delete(c.open, name)
	c.gauge.Set(float64(len(c.open)))
	c.mu.Unlock()
	if known {
		c.log.Info("Nothing hinders the mirror pod any more", "pod", name)
	}
}

func (c *conflicts) list() []Conflict {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Conflict, 0, len(c.open))
	for _, conflict := range c.open {
		list = append(list, conflict)
	}
	slices.SortFunc(list, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name))
	})
	return list
}

package replay

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/transition"
)

// Pod is the state of a pod.
type Pod struct{ state *podState }

// NewPod returns the state before a record.
func NewPod(record *history.Record) *Pod { return &Pod{newPodState(record, nil)} }

// Apply applies changes.
func (p *Pod) Apply(changes []transition.Change, at time.Time) { p.state.apply(changes, at) }

// Status returns the rebuilt status.
func (p *Pod) Status() *v1.PodStatus { return &p.state.pod.Status }

package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/source"
)

// NewStartObserver returns the observe method of a startTracker.
func NewStartObserver(runtime Runtime, registry prometheus.Registerer) (func(source.Update, *v1.Pod, time.Time), error) {
	tracker, err := newStartTracker(runtime, registry)
	if err != nil {
		return nil, err
	}
	return tracker.observe, nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

const (
	healthCheckInterval      = 5 * time.Second
	healthCheckRetryInterval = time.Second // while the runtime is not ready
	healthCheckTimeout       = 10 * time.Second
)

var errHealthUnknown = errors.New("runtime status is not known yet")

// runtimeHealth checks the runtime periodically and caches the result, so that readers do not block.
type runtimeHealth struct {
	runtime Runtime
	// isPLEGStale reports whether the states of containers are not known.
	isPLEGStale func() bool
	onChange    func()
	checked     chan struct{} // closed after the first check

	mu      sync.Mutex // guards the fields below
	result  healthResult
	since   time.Time // when the runtime ceased to be ready; zero if it is
	nextTry time.Time
	isStale bool // at the last check
}

// healthResult is the result of a health check. Nil errors mean ready.
type healthResult struct{ runtimeErr, networkErr error }

func newRuntimeHealth(runtime Runtime, onChange func()) *runtimeHealth {
	if onChange == nil {
		onChange = func() {}
	}
	return &runtimeHealth{
		runtime: runtime, isPLEGStale: func() bool { return false }, onChange: onChange, checked: make(chan struct{}),
		result: healthResult{errHealthUnknown, errHealthUnknown},
	}
}

// run checks the runtime until ctx ends.
func (h *runtimeHealth) run(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		interval := healthCheckInterval
		if h.check(ctx) != (healthResult{}) {
			interval = healthCheckRetryInterval
		}
		h.setNextTry(time.Now().Add(interval))
		if first {
			close(h.checked)
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
	return nil
}

func (h *runtimeHealth) check(ctx context.Context) healthResult {
	ctx, cancel := context.WithTimeout(ctx, healthCheckTimeout)
	defer cancel()
	var result healthResult
	result.runtimeErr, result.networkErr = h.runtime.Ready(ctx)
	result, changed := h.store(result, h.isPLEGStale())
	if changed {
		h.onChange()
	}
	return result
}

// store keeps the result of a check. It reports whether anything but the text of an error changed.
func (h *runtimeHealth) store(result healthResult, isStale bool) (_ healthResult, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if result.runtimeErr != nil { // the state of the network is unknown then; keep the last one
		result = healthResult{fmt.Errorf("the runtime is not ready: %w", result.runtimeErr), h.result.networkErr}
	}
	switch {
	case result.runtimeErr == nil:
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = time.Now()
	}
	last := h.result
	changed = isStale != h.isStale || (result.runtimeErr == nil) != (last.runtimeErr == nil) ||
		(result.networkErr == nil) != (last.networkErr == nil)
	h.result, h.isStale = result, isStale
	return result, changed
}

func (h *runtimeHealth) setNextTry(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nextTry = at
}

// waitForFirst waits for the first check, which takes at most healthCheckTimeout.
func (h *runtimeHealth) waitForFirst(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-h.checked:
	}
}

// runtimeError returns what keeps the runtime from running pods, or nil.
func (h *runtimeHealth) runtimeError() error { return h.last().runtimeErr }

// networkError returns what keeps pods from getting a network, or nil.
func (h *runtimeHealth) networkError() error { return h.last().networkErr }

func (h *runtimeHealth) last() healthResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.result
}

// RuntimeHealth is the result of the last health check of the runtime.
type RuntimeHealth struct {
	// Err is why the runtime cannot run pods, since Since. Network is why pods cannot get a network.
	Err     error
	Since   time.Time
	Network error
	// NextTry is when the next check begins.
	NextTry time.Time
}

// RuntimeHealth returns the health of the runtime.
func (a *Agent) RuntimeHealth() RuntimeHealth {
	a.health.mu.Lock()
	defer a.health.mu.Unlock()
	result := a.health.result
	return RuntimeHealth{Err: result.runtimeErr, Since: a.health.since, Network: result.networkErr, NextTry: a.health.nextTry}
}

// The kubelet's intervals.
const (
	garbageCollectionInterval = time.Minute
	logRotationInterval       = 10 * time.Second
)

// collectGarbage collects garbage and rotates logs until ctx ends.
func (a *Agent) collectGarbage(ctx context.Context, collector GarbageCollector) error {
	collection, rotation := time.NewTicker(garbageCollectionInterval), time.NewTicker(logRotationInterval)
	defer collection.Stop()
	defer rotation.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-collection.C:
			err = collector.CollectGarbage(ctx, a.isWantedFunc())
		case <-rotation.C:
			err = collector.RotateLogs(ctx)
		}
		if err != nil && ctx.Err() == nil {
			a.config.Logger.Warn("Garbage collection or log rotation failed", "err", err)
		}
	}
}

// reclaimContainers removes exited containers, also those of pods that have terminated and were not deleted (EVI-14). The API server must
// know that they have: an agent that finds neither a container nor an end would start the pod again.
func (a *Agent) reclaimContainers(ctx context.Context, collector GarbageCollector) error {
	isWanted := a.isWantedFunc()
	return collector.CollectGarbage(ctx, func(uid podid.UID) bool {
		if !isWanted(uid) {
			return false
		}
		pod, found := a.Pods.GetPodByUID(uid)
		return !found || podid.IsStatic(pod) || !derive.IsTerminal(pod.Status.Phase) || !a.Workers.IsFinished(uid)
	})
}

// isWantedFunc returns a function that reports whether the remains of a pod must be kept. All are kept until every source is
// ready. The known pods are determined at the first call, after the runtime was listed: a pod may be created meanwhile.
func (a *Agent) isWantedFunc() func(podid.UID) bool {
	if !a.Sources.AllReady() {
		return func(podid.UID) bool { return true }
	}
	known := sync.OnceValue(a.knownPods)
	return func(uid podid.UID) bool { return known()[types.UID(uid)] }
}

package manager

import (
	"context"
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/podid"
)

// Volumes measures volumes.
type Volumes interface {
	// VolumeUsage returns the space in bytes that the pod's volumes on disk take, by name. With an error, it is the space that
	// was found until then.
	VolumeUsage(ctx context.Context, pod *v1.Pod) (map[string]int64, error)
}

// Containers measures containers.
type Containers interface {
	// ContainerUsage returns the space in bytes that the logs and writable layers of the pod's containers take, by name, and
	// that of the pod's other files on the node. With an error, it is the space that was found until then.
	ContainerUsage(ctx context.Context, pod *v1.Pod) (containers map[string]int64, files int64, err error)
}

const (
	// gracePeriod applies to every eviction for a local limit, as in the kubelet.
	gracePeriod = time.Second
	// measureTimeout bounds the measurement of one pod.
	measureTimeout = 30 * time.Second
	// restFactor is how many times longer than its measurement a pod is left alone: measuring takes at most a tenth of the time.
	restFactor = 10
)

// limits evicts pods that exceed limits of local storage (EVI-24). One goroutine owns it.
type limits struct {
	*Manager
	pods map[types.UID]*podState
}

// podState is kept while a pod with limits may run.
type podState struct {
	next     time.Time // of the next measurement
	reported string    // the violation of a critical pod that was reported
	failed   bool      // the last measurement failed and was logged
}

func newLimits(m *Manager) *limits { return &limits{Manager: m, pods: map[types.UID]*podState{}} }

func (l *limits) run(ctx context.Context) {
	ticker := time.NewTicker(l.config.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.pass(ctx)
		}
	}
}

func (l *limits) pass(ctx context.Context) {
	current := map[types.UID]bool{}
	for _, pod := range l.config.Pods() {
		if ctx.Err() != nil {
			return
		}
		if !eviction.LimitsVolumes(pod) && !eviction.LimitsContainers(pod) {
			continue
		}
		current[pod.UID] = true
		l.check(ctx, pod)
	}
	maps.DeleteFunc(l.pods, func(uid types.UID, _ *podState) bool { return !current[uid] })
}

// check measures the pod if it is time, and evicts it if it exceeds a limit.
func (l *limits) check(ctx context.Context, pod *v1.Pod) {
	state := l.pods[pod.UID]
	if state == nil {
		state = &podState{}
		l.pods[pod.UID] = state
	}
	started := time.Now()
	if started.Before(state.next) {
		return
	}
	usage, err := l.measure(ctx, pod)
	state.next = time.Now().Add(restFactor * time.Since(started))
	if ctx.Err() != nil {
		return
	}
	logger := l.config.Logger.With("pod", podid.FullNameOf(pod).Key(), "podUID", pod.UID)
	if err != nil && !state.failed {
		logger.Warn("Failed to measure disk usage of pod, its limits may not be enforced", "err", err)
	}
	state.failed = err != nil
	violation := eviction.CheckLocalLimits(pod, usage) // what could be measured may exceed a limit already
	switch {
	case violation == nil:
		state.reported = ""
	case derive.IsCritical(pod):
		l.report(pod, state, violation)
	default:
		l.evict(ctx, pod, violation)
	}
}

func (l *limits) measure(ctx context.Context, pod *v1.Pod) (usage eviction.Usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	usage.Volumes, err = l.config.Volumes.VolumeUsage(ctx, pod)
	if !eviction.LimitsContainers(pod) {
		return usage, err
	}
	containers, files, containerErr := l.config.Containers.ContainerUsage(ctx, pod)
	usage.Containers, usage.Files = containers, files
	return usage, errors.Join(err, containerErr)
}

// report records the violation of a pod that must not be evicted, once.
func (l *limits) report(pod *v1.Pod, state *podState, violation *eviction.Violation) {
	if state.reported == violation.Message {
		return
	}
	state.reported = violation.Message
	l.config.Events.Event(pod, v1.EventTypeWarning, "LocalStorageLimitExceeded",
		violation.Message+"Static and critical pods are not evicted.")
}

// evict ends a pod. Pressure of the node is looked at again afterwards.
func (l *limits) evict(ctx context.Context, pod *v1.Pod, violation *eviction.Violation) {
	l.acting.Lock()
	defer l.acting.Unlock()
	l.evictLocked(ctx, &eviction.Eviction{Pod: pod, GracePeriod: gracePeriod, Signal: violation.Signal, Message: violation.Message})
	l.lastLimit = time.Now()
}

// Package manager measures what pods use of the node's disk and evicts those that exceed their limits. It measures only pods
// that have limits.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/event"
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

// Config configures a Manager.
type Config struct {
	// Pods returns the pods that may run. Required.
	Pods func() []*v1.Pod
	// Volumes and Containers are required.
	Volumes    Volumes
	Containers Containers
	// Kill terminates the pod with the grace period and waits until its containers have stopped. setStatus modifies its final
	// status. Required.
	Kill func(ctx context.Context, pod *v1.Pod, gracePeriod time.Duration, setStatus func(*v1.PodStatus)) error

	// Interval is the time between two passes. Defaults to 10s.
	Interval time.Duration
	// Events receives evictions. Defaults to event.Discard.
	Events event.Recorder
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers kubelet_evictions. Defaults to none.
	Metrics prometheus.Registerer
}

const (
	// gracePeriod applies to every eviction for a local limit, as in the kubelet.
	gracePeriod = time.Second
	// measureTimeout bounds the measurement of one pod.
	measureTimeout = 30 * time.Second
	// restFactor is how many times longer than its measurement a pod is left alone: measuring takes at most a tenth of the time.
	restFactor = 10
)

// Manager evicts pods that exceed their limits of local storage. Only Run uses its state.
type Manager struct {
	config    Config
	evictions *prometheus.CounterVec
	pods      map[types.UID]*podState
}

// podState is kept while a pod with limits may run.
type podState struct {
	next     time.Time // of the next measurement
	reported string    // the violation of a critical pod that was reported
	failed   bool      // the last measurement failed and was logged
}

// New returns a Manager.
func New(config Config) (*Manager, error) {
	var errs []error
	for _, field := range []struct {
		name      string
		isMissing bool
	}{
		{"Pods", config.Pods == nil}, {"Volumes", config.Volumes == nil}, {"Containers", config.Containers == nil}, {"Kill", config.Kill == nil},
	} {
		if field.isMissing {
			errs = append(errs, fmt.Errorf("manager.Config: %s is required", field.name))
		}
	}
	if config.Interval < 0 {
		errs = append(errs, errors.New("manager.Config: Interval must not be negative"))
	}
	config.Interval = cmp.Or(config.Interval, 10*time.Second)
	config.Events = cmp.Or(config.Events, event.Discard)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	m := &Manager{config: config, pods: map[types.UID]*podState{}, evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_evictions", Help: "Number of evicted pods.",
	}, []string{"eviction_signal"})}
	if config.Metrics != nil {
		errs = append(errs, config.Metrics.Register(m.evictions))
	}
	return m, errors.Join(errs...)
}

// Run evicts pods until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	ticker := time.NewTicker(m.config.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			m.pass(ctx)
		}
	}
}

func (m *Manager) pass(ctx context.Context) {
	current := map[types.UID]bool{}
	for _, pod := range m.config.Pods() {
		if ctx.Err() != nil {
			return
		}
		if !eviction.LimitsVolumes(pod) && !eviction.LimitsContainers(pod) {
			continue
		}
		current[pod.UID] = true
		m.check(ctx, pod)
	}
	maps.DeleteFunc(m.pods, func(uid types.UID, _ *podState) bool { return !current[uid] })
}

// check measures the pod if it is time, and evicts it if it exceeds a limit.
func (m *Manager) check(ctx context.Context, pod *v1.Pod) {
	state := m.pods[pod.UID]
	if state == nil {
		state = &podState{}
		m.pods[pod.UID] = state
	}
	started := time.Now()
	if started.Before(state.next) {
		return
	}
	usage, err := m.measure(ctx, pod)
	state.next = time.Now().Add(restFactor * time.Since(started))
	if ctx.Err() != nil {
		return
	}
	logger := m.config.Logger.With("pod", podid.FullNameOf(pod).Key(), "podUID", pod.UID)
	if err != nil && !state.failed {
		logger.Warn("Failed to measure disk usage of pod, its limits may not be enforced", "err", err)
	}
	state.failed = err != nil
	violation := eviction.CheckLocalLimits(pod, usage) // what could be measured may exceed a limit already
	switch {
	case violation == nil:
		state.reported = ""
	case eviction.IsCritical(pod):
		m.report(pod, state, violation)
	default:
		m.evict(ctx, pod, violation, logger)
	}
}

func (m *Manager) measure(ctx context.Context, pod *v1.Pod) (usage eviction.Usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	usage.Volumes, err = m.config.Volumes.VolumeUsage(ctx, pod)
	if !eviction.LimitsContainers(pod) {
		return usage, err
	}
	containers, files, containerErr := m.config.Containers.ContainerUsage(ctx, pod)
	usage.Containers, usage.Files = containers, files
	return usage, errors.Join(err, containerErr)
}

// report records the violation of a pod that must not be evicted, once.
func (m *Manager) report(pod *v1.Pod, state *podState, violation *eviction.Violation) {
	if state.reported == violation.Message {
		return
	}
	state.reported = violation.Message
	m.config.Events.Event(pod, v1.EventTypeWarning, "LocalStorageLimitExceeded",
		violation.Message+"Static and critical pods are not evicted.")
}

func (m *Manager) evict(ctx context.Context, pod *v1.Pod, violation *eviction.Violation, logger *slog.Logger) {
	logger.Info("Evicting pod", "message", violation.Message)
	m.config.Events.Event(pod, v1.EventTypeWarning, eviction.Reason, violation.Message)
	err := m.config.Kill(ctx, pod, gracePeriod, func(status *v1.PodStatus) { // without DisruptionTarget (EVI-20)
		status.Phase, status.Reason, status.Message = v1.PodFailed, eviction.Reason, violation.Message
	})
	m.evictions.WithLabelValues(violation.Signal).Inc()
	if err != nil && ctx.Err() == nil {
		logger.Warn("Evicted pod is still running", "err", err)
	}
}

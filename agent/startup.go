package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// ImagePuller is an optional interface of a Runtime.
type ImagePuller interface {
	// ImagePullTime returns how long the pod has waited for images.
	ImagePullTime(uid podid.UID) time.Duration
}

// startTracker measures the startup latency of Kubernetes' service level indicator: from the creation of a pod until the API server
// shows all its containers as running. It is used by the dispatching goroutine only.
type startTracker struct {
	runtime      Runtime
	total, sli   prometheus.Histogram
	firstNetwork prometheus.Gauge
	isFirstSeen  bool               // firstNetwork is set
	starting     map[types.UID]bool // pods of the API server that have not started
}

func newStartTracker(runtime Runtime, registry prometheus.Registerer) (*startTracker, error) {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{
			.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
		}})
	}
	t := &startTracker{
		runtime: runtime, starting: map[types.UID]bool{},
		total: histogram("kubelet_pod_start_total_duration_seconds",
			"Duration from the creation of a pod until the API server shows its containers as running."),
		sli: histogram("kubelet_pod_start_sli_duration_seconds",
			"The same duration without pulling images and running init containers, for pods without persistent volumes."),
		firstNetwork: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_first_network_pod_start_sli_duration_seconds",
			Help: "That duration of the first pod with a network of its own.",
		}),
	}
	if registry == nil {
		return t, nil
	}
	if err := errors.Join(registry.Register(t.total), registry.Register(t.sli), registry.Register(t.firstNetwork)); err != nil {
		return nil, fmt.Errorf("agent: register metrics: %w", err)
	}
	return t, nil
}

// observe looks at a version of a pod from a source.
func (t *startTracker) observe(update source.Update, pod *v1.Pod, now time.Time) {
	switch {
	case update.Source != podid.API || podid.IsMirror(pod):
	case update.Op == source.OpRemove || derive.IsTerminal(pod.Status.Phase) || isUnschedulable(pod):
		delete(t.starting, pod.UID)
	case update.Op == source.OpAdd && pod.Status.StartTime.IsZero():
		t.starting[pod.UID] = true
	case t.starting[pod.UID] && hasStarted(pod):
		delete(t.starting, pod.UID)
		t.record(pod, now)
	}
}

func (t *startTracker) record(pod *v1.Pod, now time.Time) {
	total := now.Sub(pod.CreationTimestamp.Time)
	t.total.Observe(total.Seconds())
	if isStateful(pod) {
		return
	}
	sli := total - initTime(pod)
	if puller, ok := t.runtime.(ImagePuller); ok {
		sli -= puller.ImagePullTime(podid.UID(pod.UID))
	}
	sli = max(sli, 0) // times in the API are seconds
	t.sli.Observe(sli.Seconds())
	if !t.isFirstSeen && !pod.Spec.HostNetwork {
		t.isFirstSeen = true
		t.firstNetwork.Set(sli.Seconds())
	}
}

// isUnschedulable reports whether the pod had to wait for a node. The indicator does not count such a pod.
func isUnschedulable(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
			return true
		}
	}
	return false
}

func hasStarted(pod *v1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].State.Running == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

// isStateful reports whether the pod has a volume whose content outlives it, or may.
func isStateful(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.Secret == nil && volume.ConfigMap == nil && volume.DownwardAPI == nil && volume.EmptyDir == nil && volume.Projected == nil {
			return true
		}
	}
	return false
}

// initTime returns how long the pod's init containers ran.
func initTime(pod *v1.Pod) (sum time.Duration) {
	for i := range pod.Status.InitContainerStatuses {
		if ended := pod.Status.InitContainerStatuses[i].State.Terminated; ended != nil {
			sum += max(ended.FinishedAt.Sub(ended.StartedAt.Time), 0)
		}
	}
	return sum
}

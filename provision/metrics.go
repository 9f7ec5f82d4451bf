package provision

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/podid"
)

// metrics are the kubelet's metrics of volumes.
type metrics struct{ duration *prometheus.HistogramVec }

func newMetrics(registry prometheus.Registerer, p *Provisioner) (*metrics, error) {
	m := &metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds", Help: "Duration of mounting or updating a volume.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
	if registry == nil {
		return m, nil
	}
	if err := errors.Join(registry.Register(m.duration), registry.Register(volumeCollector{p})); err != nil {
		return nil, fmt.Errorf("provision: register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) observeMount(plugin string, start time.Time, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.duration.WithLabelValues(pluginLabel(plugin), "volume_mount", status, "false").Observe(time.Since(start).Seconds())
}

func pluginLabel(plugin string) string { return "kubernetes.io/" + plugin }

// volumeState is the result of the last Mount of a volume.
type volumeState struct {
	plugin    string
	isMounted bool
}

func (p *Provisioner) recordVolume(uid podid.UID, name string, state volumeState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	volumes := p.stateLocked(uid).volumes
	state.isMounted = state.isMounted || volumes[name].isMounted // files that could not be updated stay mounted
	volumes[name] = state
}

// volumeCollector counts volumes at scrape time: those that pods need, and those of them that are mounted.
type volumeCollector struct{ provisioner *Provisioner }

var volumesDesc = prometheus.NewDesc("volume_manager_total_volumes",
	"Number of volumes that pods need (desired_state_of_world), and of those that are mounted (actual_state_of_world).",
	[]string{"plugin_name", "state"}, nil)

// Describe implements prometheus.Collector.
func (c volumeCollector) Describe(descs chan<- *prometheus.Desc) { descs <- volumesDesc }

// Collect implements prometheus.Collector.
func (c volumeCollector) Collect(metrics chan<- prometheus.Metric) {
	for state, count := range c.provisioner.countVolumes() {
		name := "desired_state_of_world"
		if state.isMounted {
			name = "actual_state_of_world"
		}
		metrics <- prometheus.MustNewConstMetric(volumesDesc, prometheus.GaugeValue, float64(count), pluginLabel(state.plugin), name)
	}
}

// countVolumes counts all volumes, and once more those that are mounted.
func (p *Provisioner) countVolumes() map[volumeState]int {
	counts := map[volumeState]int{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		for _, volume := range pod.volumes {
			counts[volumeState{plugin: volume.plugin}]++
			if volume.isMounted {
				counts[volume]++
			}
		}
	}
	return counts
}

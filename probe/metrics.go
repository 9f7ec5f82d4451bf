package probe

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// metrics are the kubelet's series about probes, and ours.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	timeouts prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: "Rounds of probing, by what they found.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "Time that rounds of probing took which did not fail.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
		timeouts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "herald_probe_exec_timeouts_total", Help: "Commands of exec probes that were killed because their time was over.",
		}),
	}
	if registry == nil {
		return m, nil
	}
	var err error
	for _, c := range []prometheus.Collector{m.total, m.duration, m.timeouts} {
		err = errors.Join(err, registry.Register(c))
	}
	if err != nil {
		return nil, fmt.Errorf("probe: Config.Metrics: %w", err)
	}
	return m, nil
}

// The values of the label result.
const (
	resultSuccessful = "successful"
	resultFailed     = "failed"
	resultUnknown    = "unknown"
)

func labelOf(found judge.Result) string {
	switch found {
	case judge.Success:
		return resultSuccessful
	case judge.Failure:
		return resultFailed
	default:
		return resultUnknown
	}
}

// series are those of one probe, by result. Each is made when it is first needed, and kept, for to find it costs more than
// to count. That of the duration cannot be kept: a pod of the same name has it too, and removes it when it goes.
type series map[string]prometheus.Counter

// count is called before the probe is forgotten, or never: nobody would remove what it makes.
func (m *metrics) count(p *probe, found check.Outcome, took time.Duration) {
	result := labelOf(found.Result)
	counter, known := p.series[result]
	if !known {
		counter = m.total.WithLabelValues(
			p.kind.String(), result, p.container.Name, p.pod.Name, p.pod.Namespace, string(p.pod.UID))
		p.series[result] = counter
	}
	counter.Inc()
	if found.TimedOut {
		m.timeouts.Inc()
	}
	if found.Result != judge.Failure {
		m.duration.WithLabelValues(p.kind.String(), p.container.Name, p.pod.Name, p.pod.Namespace).Observe(took.Seconds())
	}
}

// forget removes the probe's series (PRB-42).
func (m *metrics) forget(p *probe) {
	for _, result := range []string{resultSuccessful, resultFailed, resultUnknown} {
		m.total.DeleteLabelValues(p.kind.String(), result, p.container.Name, p.pod.Name, p.pod.Namespace, string(p.pod.UID))
	}
	m.duration.DeleteLabelValues(p.kind.String(), p.container.Name, p.pod.Name, p.pod.Namespace)
}

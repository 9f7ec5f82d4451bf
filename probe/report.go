package probe

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// The kubelet's event reasons.
const (
	reasonUnhealthy = "Unhealthy"
	reasonWarning   = "ProbeWarning"
)

// maxMessageBytes limits how much of a container's output an event shows.
const maxMessageBytes = 1 << 10

// reportOutcome records an event for a check that did not succeed, with the kubelet's text. A container that is gone is not
// reported: it was stopped or exited, which has its own event. The message never contains the container's ID, so that the
// events of all instances are the same.
func (p *Prober) reportOutcome(probe *containerProbe, id observed.ContainerID, outcome check.Outcome) {
	var reason, verb string
	switch {
	case outcome.Warning:
		reason, verb = reasonWarning, "warning"
	case outcome.Result == judge.Success, outcome.Result == judge.NotFound:
		return
	case outcome.Result == judge.Failure:
		reason, verb = reasonUnhealthy, "failed"
	default:
		reason, verb = reasonUnhealthy, "errored and resulted in unknown state"
	}
	output := outcome.Message
	if id.ID != "" {
		output = strings.ReplaceAll(output, id.ID, probe.container.Name)
	}
	message := fmt.Sprintf("%s probe %s: %s", probe.kind, verb, sanitize(output))
	p.config.Logger.Debug("Probe did not succeed", "pod", podid.FullNameOf(probe.pod).Key(), "podUID", probe.pod.UID,
		"container", probe.container.Name, "message", message)
	p.config.Events.Event(containerReference(probe.pod, probe.container.Name), v1.EventTypeWarning, reason, message)
}

// sanitize truncates a container's output and removes control characters, which could control a terminal.
func sanitize(output string) string {
	output = output[:min(len(output), maxMessageBytes)]
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(output, "�"))
}

// containerReference returns a reference to a container of the pod.
func containerReference(pod *v1.Pod, container string) *v1.ObjectReference {
	list := "containers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			list = "initContainers"
		}
	}
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fmt.Sprintf("spec.%s{%s}", list, container),
	}
}

// metrics are the kubelet's probe metrics, and one of our own.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	timeouts prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: "Number of probes by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "Duration of probes that did not fail.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
		timeouts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "herald_probe_exec_timeouts_total", Help: "Number of exec probe commands killed by their timeout.",
		}),
	}
	if registry == nil {
		return m, nil
	}
	var err error
	for _, collector := range []prometheus.Collector{m.total, m.duration, m.timeouts} {
		err = errors.Join(err, registry.Register(collector))
	}
	if err != nil {
		return nil, fmt.Errorf("probe.Config: register metrics: %w", err)
	}
	return m, nil
}

// Values of the label result.
const (
	resultSuccessful = "successful"
	resultFailed     = "failed"
	resultUnknown    = "unknown"
)

func resultLabel(result judge.Result) string {
	switch result {
	case judge.Success:
		return resultSuccessful
	case judge.Failure:
		return resultFailed
	default:
		return resultUnknown
	}
}

// counters caches the counters of one probe by result: a lookup costs more than an increment. The duration is not cached,
// because another pod with the same name shares its series and deletes it.
type counters map[string]prometheus.Counter

// count counts a check. It must not be called after remove: nothing would remove the series again.
func (m *metrics) count(probe *containerProbe, outcome check.Outcome, duration time.Duration) {
	result := resultLabel(outcome.Result)
	counter, ok := probe.counters[result]
	if !ok {
		counter = m.total.WithLabelValues(probe.kind.String(), result, probe.container.Name,
			probe.pod.Name, probe.pod.Namespace, string(probe.pod.UID))
		probe.counters[result] = counter
	}
	counter.Inc()
	if outcome.TimedOut {
		m.timeouts.Inc()
	}
	if outcome.Result != judge.Failure {
		m.duration.WithLabelValues(probe.kind.String(), probe.container.Name, probe.pod.Name, probe.pod.Namespace).
			Observe(duration.Seconds())
	}
}

// remove removes the probe's series (PRB-42).
func (m *metrics) remove(probe *containerProbe) {
	for _, result := range []string{resultSuccessful, resultFailed, resultUnknown} {
		m.total.DeleteLabelValues(probe.kind.String(), result, probe.container.Name,
			probe.pod.Name, probe.pod.Namespace, string(probe.pod.UID))
	}
	m.duration.DeleteLabelValues(probe.kind.String(), probe.container.Name, probe.pod.Name, probe.pod.Namespace)
}

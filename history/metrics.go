package history

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	records                           *prometheus.CounterVec
	podRecords                        prometheus.Counter // of records, without a search by label
	folded, dropped, corrupt          prometheus.Counter
	writeErrors, syncs, logsTruncated prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "herald_history_" + name, Help: help})
	}
	m := &metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_history_records_total", Help: "Records written to the history, by kind: pod, node, ack, log, agent.",
		}, []string{"kind"}),
		folded:        counter("folded_versions_total", "Status versions that share a record because their pod changed too often."),
		dropped:       counter("dropped_records_total", "Records that were lost because the disk failed for too long."),
		corrupt:       counter("corrupt_total", "Damaged lines and blocks that were found and skipped."),
		writeErrors:   counter("write_errors_total", "Failed operations on the files of the history."),
		syncs:         counter("syncs_total", "Times that the history was synced to the disk."),
		logsTruncated: counter("omitted_logs_total", "Last lines of failed containers that were not attached because of the limits."),
	}
	m.podRecords = m.records.WithLabelValues(string(KindPod))
	if registry == nil {
		return m, nil
	}
	for _, collector := range []prometheus.Collector{m.records, m.folded, m.dropped, m.corrupt, m.writeErrors, m.syncs, m.logsTruncated} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("history: register metrics: %w", err)
		}
	}
	return m, nil
}

// registerGauges registers the metrics that are read from the log.
func (l *Log) registerGauges(registry prometheus.Registerer) error {
	if registry == nil {
		return nil
	}
	gauges := map[string]struct {
		help  string
		value func() float64
	}{
		"bytes":    {"Size of the history's files.", func() float64 { return float64(l.store.diskBytes()) }},
		"pending":  {"Status versions that are not written yet.", func() float64 { return float64(l.journal.size()) }},
		"segments": {"Number of the history's files.", func() float64 { return float64(l.store.segmentCount()) }},
	}
	for name, gauge := range gauges {
		collector := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "herald_history_" + name, Help: gauge.help}, gauge.value)
		if err := registry.Register(collector); err != nil {
			return fmt.Errorf("history: register metrics: %w", err)
		}
	}
	return nil
}

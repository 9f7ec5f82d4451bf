package notify_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/notify"
)

// BenchmarkEdgeToWebhook measures the time from the change of an alert to the request at a webhook on this machine, one change at a time. A
// Notifier may send 20 requests at once, so that each is used for as many changes.
func BenchmarkEdgeToWebhook(b *testing.B) {
	arrivals := make(chan time.Time, 1)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrivals <- time.Now() }))
	defer server.Close()
	dir, err := checkpoint.Open(b.TempDir(), checkpoint.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	var latencies []time.Duration
	stop := func() error { return nil }
	var n *notify.Notifier
	for i := range b.N {
		if i%notify.RequestBurst == 0 {
			b.StopTimer()
			if err := stop(); err != nil {
				b.Fatal(err)
			}
			n, stop = startForBenchmark(b, notify.Config{
				NodeName: "n1", Checkpoints: dir, Webhooks: []notify.Webhook{{Name: "hook", HTTP: notify.HTTP{URL: server.URL}}},
			})
			b.StartTimer()
		}
		a := firingAlert(fmt.Sprintf("Rule%d", i), "web", 1)
		begin := time.Now()
		n.Update([]alert.Alert{a})
		latencies = append(latencies, (<-arrivals).Sub(begin))
	}
	b.StopTimer()
	if err := stop(); err != nil {
		b.Fatal(err)
	}
	slices.Sort(latencies)
	b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds()), "p99-us")
}

func startForBenchmark(b *testing.B, config notify.Config) (*notify.Notifier, func() error) {
	b.Helper()
	n, err := notify.New(config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return n, func() error {
		cancel()
		return errors.Join(<-done, config.Checkpoints.Remove("notify"))
	}
}

// BenchmarkUpdate measures how long the caller is held up by a change, with as many alerts as an engine may have.
func BenchmarkUpdate(b *testing.B) {
	n, err := notify.New(notify.Config{NodeName: "n1"})
	if err != nil {
		b.Fatal(err)
	}
	var all []alert.Alert
	for i := range 1000 {
		all = append(all, firingAlert("PodFailed", fmt.Sprintf("web-%d", i), 1))
	}
	n.Update(all)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n.Update(all[i%1000 : i%1000+1])
	}
}

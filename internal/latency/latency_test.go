package latency_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/internal/latency"
)

func TestRecent_Window(t *testing.T) {
	var recent latency.Recent
	start := time.Now()
	if _, found := recent.P99(start); found {
		t.Error("got a quantile of nothing")
	}
	recent.Observe(start, time.Second)
	if got, found := recent.P99(start.Add(14 * time.Minute)); !found || got < time.Second || got > 1200*time.Millisecond {
		t.Errorf("got %v, %v, want a second", got, found)
	}
	if got, found := recent.P99(start.Add(15 * time.Minute)); found {
		t.Errorf("got %v after 15 minutes", got)
	}
	recent.Observe(start.Add(time.Hour), time.Millisecond)
	recent.Observe(start.Add(59*time.Minute), time.Millisecond) // another goroutine was faster
	if got, found := recent.P99(start.Add(time.Hour)); !found || got > 2*time.Millisecond {
		t.Errorf("got %v, %v, want a millisecond", got, found)
	}
}

// TestRecent_Quantile compares quantiles with those of all durations.
func TestRecent_Quantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recent latency.Recent
		now := time.Now()
		durations := rapid.SliceOfN(rapid.Int64Range(int64(100*time.Microsecond), int64(5*time.Minute)), 1, 300).Draw(t, "durations")
		for _, duration := range durations {
			recent.Observe(now, time.Duration(duration))
		}
		share := rapid.Float64Range(.01, 1).Draw(t, "share")
		slices.Sort(durations)
		want := float64(durations[int(math.Ceil(share*float64(len(durations))))-1])
		if got, found := recent.Quantile(now, share); !found || float64(got) < .999*want || float64(got) > 1.2*want {
			t.Errorf("got %v, want %v", got, time.Duration(want))
		}
	})
}

func TestRecent_Extremes(t *testing.T) {
	var recent latency.Recent
	now := time.Now()
	recent.Observe(now, -time.Second)
	recent.Observe(now, 0)
	if got, _ := recent.P99(now); got > time.Millisecond {
		t.Errorf("got %v", got)
	}
	recent.Observe(now, 100*time.Hour)
	if got, _ := recent.P99(now); got < 5*time.Minute {
		t.Errorf("got %v, want the longest", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	var recent latency.Recent
	now := time.Now()
	for b.Loop() {
		recent.Observe(now, 3*time.Millisecond)
	}
}

package load_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/load"
)

// number is a generator of values, some of them unknown.
func number(low, high float64) *rapid.Generator[load.Value] {
	return rapid.Custom(func(t *rapid.T) load.Value {
		if rapid.IntRange(0, 4).Draw(t, "known") == 0 {
			return load.Value{}
		}
		return load.Known(rapid.Float64Range(low, high).Draw(t, "number"))
	})
}

func drawSignals(t *rapid.T) load.Signals {
	share := number(0, 1.2)
	return load.Signals{
		CPU: share.Draw(t, "cpu"), CPUPressure: share.Draw(t, "cpu pressure"), Memory: share.Draw(t, "memory"),
		MemoryPressure: share.Draw(t, "memory pressure"), Disk: share.Draw(t, "disk"), Inodes: share.Draw(t, "inodes"),
		IOPressure: share.Draw(t, "io pressure"), HoursToFull: number(0, 10).Draw(t, "hours"), PIDs: share.Draw(t, "pids"),
	}
}

// fields returns the signals that raise the saturation when they rise.
func fields(s *load.Signals) []*load.Value {
	return []*load.Value{
		&s.CPU, &s.CPUPressure, &s.Memory, &s.MemoryPressure, &s.Disk, &s.Inodes, &s.IOPressure, &s.PIDs,
	}
}

func TestL1_SaturationIsMonotoneMaximum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		signals := drawSignals(t)
		before, known := load.Saturate(signals).Value.Get()
		if known && (before < 0 || before > 1) {
			t.Fatalf("saturation %v is not between 0 and 1", before)
		}
		changed := signals
		field := fields(&changed)[rapid.IntRange(0, 7).Draw(t, "field")]
		if current, ok := field.Get(); ok {
			*field = load.Known(current + rapid.Float64Range(0, 1).Draw(t, "rise"))
		}
		if after, _ := load.Saturate(changed).Value.Get(); after < before {
			t.Fatalf("saturation fell from %v to %v although a signal rose\nbefore %+v\nafter  %+v", before, after, signals, changed)
		}
	})
}

func TestL1_Saturate(t *testing.T) {
	tests := map[string]struct {
		signals load.Signals
		want    float64
		culprit load.Resource
	}{
		"idle":                          {load.Signals{CPU: load.Known(.3), Memory: load.Known(.6)}, 0, ""},
		"memory is the culprit":         {load.Signals{CPU: load.Known(.75), Memory: load.Known(.95)}, .25 / .30, load.Memory},
		"pressure of memory":            {load.Signals{Memory: load.Known(.5), MemoryPressure: load.Known(.40)}, 1, load.Memory},
		"CPU pressure without use":      {load.Signals{CPU: load.Known(.5), CPUPressure: load.Known(.9)}, 0, ""},
		"CPU pressure of a busy node":   {load.Signals{CPU: load.Known(.85), CPUPressure: load.Known(.40)}, 1, load.CPU},
		"disk at 95 percent":            {load.Signals{Disk: load.Known(.95)}, 1, load.Disk},
		"inodes":                        {load.Signals{Disk: load.Known(.1), Inodes: load.Known(.875)}, .5, load.Disk},
		"full in an hour":               {load.Signals{Disk: load.Known(.1), HoursToFull: load.Known(1)}, .75, load.Disk},
		"process IDs":                   {load.Signals{PIDs: load.Known(.85)}, .5, load.PIDs},
		"unknown resources count as no": {load.Signals{CPU: load.Known(.85)}, .5, load.CPU},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := load.Saturate(test.signals)
			value, known := got.Value.Get()
			if !known || math.Abs(value-test.want) > 1e-9 || got.Culprit != test.culprit {
				t.Errorf("got %v %v %q, want %v %q", value, known, got.Culprit, test.want, test.culprit)
			}
		})
	}
	if got := load.Saturate(load.Signals{}); got.Value.IsKnown() || got.Culprit != "" {
		t.Errorf("without signals: got %+v, want unknown", got)
	}
}

func TestL2_LevelHolds(t *testing.T) {
	var leveler load.Leveler
	at := time.Duration(0)
	step := func(after time.Duration, saturation load.Value, want load.Level) {
		t.Helper()
		at += after
		if leveler = leveler.Next(at, saturation); leveler.Level() != want {
			t.Fatalf("at %v: got %s, want %s", at, leveler.Level(), want)
		}
	}
	step(0, load.Value{}, load.LevelUnknown)
	step(0, load.Known(.3), load.LevelNormal) // the first one counts at once
	step(time.Second, load.Known(.9), load.LevelNormal)
	step(59*time.Second, load.Known(.9), load.LevelNormal)
	step(time.Second, load.Known(.9), load.LevelSaturated)
	step(time.Second, load.Known(.75), load.LevelSaturated) // within the hysteresis
	step(time.Hour, load.Known(.75), load.LevelSaturated)
	step(time.Second, load.Known(.6), load.LevelSaturated)
	step(5*time.Minute-time.Second, load.Known(.6), load.LevelSaturated)
	step(time.Second, load.Known(.6), load.LevelBusy)
	step(time.Second, load.Known(0), load.LevelBusy)
	step(4*time.Minute, load.Value{}, load.LevelBusy) // unknown ends the hold
	step(2*time.Minute, load.Known(0), load.LevelBusy)
	step(5*time.Minute, load.Known(0), load.LevelIdle)
	step(time.Second, load.Known(.06), load.LevelIdle)
	step(time.Minute, load.Known(.06), load.LevelNormal)
}

func TestL2_LevelChangesOnlyAfterHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var leveler load.Leveler
		at, changedAt := time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			at += time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second
			before := leveler.Level()
			leveler = leveler.Next(at, number(0, 1).Draw(t, "saturation"))
			if leveler.Level() == before {
				continue
			}
			if before != load.LevelUnknown && at-changedAt < time.Minute {
				t.Fatalf("level changed from %s to %s %v after the last change", before, leveler.Level(), at-changedAt)
			}
			changedAt = at
		}
	})
}

func TestL3_StaleIsUnknown(t *testing.T) {
	var series load.Series
	if series.Over(time.Minute, load.Window1m, time.Minute).Mean.IsKnown() || series.Last(0, time.Minute).IsKnown() {
		t.Fatal("an empty series has a value")
	}
	series.Add(100*time.Second, load.Known(2))
	series.Add(130*time.Second, load.Value{})
	if mean, known := series.Over(140*time.Second, load.Window1m, 45*time.Second).Mean.Get(); !known || mean != 2 {
		t.Errorf("got %v %v, want 2", mean, known)
	}
	if window := series.Over(146*time.Second, load.Window1m, 45*time.Second); window.Mean.IsKnown() || window.Max.IsKnown() {
		t.Errorf("a stale series has the values %+v", window)
	}
}

// TestSeries compares a series with a plain list of samples.
func TestSeries_Windows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var series load.Series
		slots := map[int64][]float64{}
		at := time.Duration(0)
		for range rapid.IntRange(1, 150).Draw(t, "samples") {
			at += time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second
			value := float64(rapid.IntRange(0, 100).Draw(t, "value"))
			series.Add(at, load.Known(value))
			slots[int64(at/load.SlotDuration)] = append(slots[int64(at/load.SlotDuration)], value)
		}
		window := rapid.SampledFrom([]time.Duration{load.Window1m, load.Window5m, load.Window15m}).Draw(t, "window")
		sum, largest, n := 0.0, 0.0, 0
		for slot := int64((at-window)/load.SlotDuration) + 1; slot <= int64(at/load.SlotDuration); slot++ {
			if samples := slots[slot]; len(samples) > 0 && (slot >= 0) {
				mean := 0.0
				for _, sample := range samples {
					mean += sample / float64(len(samples))
				}
				sum, largest, n = sum+mean, max(largest, mean), n+1
			}
		}
		got := series.Over(at, window, time.Minute)
		mean, known := got.Mean.Get()
		highest, _ := got.Max.Get()
		if !known || math.Abs(mean-sum/float64(n)) > .01 || math.Abs(highest-largest) > .01 {
			t.Fatalf("got %v and %v (%v), want %v and %v", mean, highest, known, sum/float64(n), largest)
		}
	})
}

func TestCounter_StartsAnew(t *testing.T) {
	var counter load.Counter
	for i, step := range []struct {
		at     time.Duration
		number float64
		want   load.Value
	}{
		{0, 100, load.Value{}},
		{10 * time.Second, 120, load.Known(2)},
		{20 * time.Second, 5, load.Value{}}, // restarted
		{30 * time.Second, 15, load.Known(1)},
		{30 * time.Second, 20, load.Value{}},
	} {
		if got := counter.Rate(step.at, load.Known(step.number)); got != step.want {
			t.Errorf("step %d: got %+v, want %+v", i, got, step.want)
		}
	}
}

func TestForecast(t *testing.T) {
	const gib = 1 << 30
	var forecast load.Forecast
	for minute := 0; minute <= 6*60; minute += 5 { // 1 GiB per hour
		forecast.Add(time.Duration(minute)*time.Minute, load.Known(float64(minute)/60*gib))
		if known := forecast.HoursToFull(load.Known(10 * gib)).IsKnown(); known != (minute >= 15) {
			t.Fatalf("after %d minutes: known is %v", minute, known)
		}
	}
	if hours, _ := forecast.HoursToFull(load.Known(10 * gib)).Get(); math.Abs(hours-10) > 1e-6 {
		t.Errorf("got %v hours, want 10", hours)
	}
	forecast.Add(365*time.Minute, load.Known(100*gib)) // a burst is no trend
	if hours, _ := forecast.HoursToFull(load.Known(160 * gib)).Get(); hours < 9 {
		t.Errorf("after a burst: got %v hours, want about 10", hours)
	}
	forecast.Add(370*time.Minute, load.Known(0))
	if forecast.HoursToFull(load.Known(10 * gib)).IsKnown() {
		t.Error("a file system that was emptied has a forecast")
	}
	forecast.Add(500*time.Minute, load.Known(1)) // after a gap
	if forecast.HoursToFull(load.Known(1)).IsKnown() {
		t.Error("a single sample after a gap has a forecast")
	}
}

package load_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

var midnight = time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)

// texts returns the values of a signal, with - for unknown ones.
func texts(values []load.Value) (all []string) {
	for _, value := range values {
		if number, known := value.Get(); known {
			all = append(all, fmt.Sprintf("%.3g", number))
		} else {
			all = append(all, "-")
		}
	}
	return all
}

func TestDay_Pod(t *testing.T) {
	day := load.NewDay()
	add := func(at time.Duration, cpu, memory load.Value) { day.AddPod(midnight.Add(at), "a", cpu, memory) }
	add(time.Minute, load.Known(1), load.Value{})
	add(2*time.Minute, load.Known(3), load.Known(100))
	add(16*time.Minute, load.Known(5), load.Known(300))
	add(17*time.Minute, load.Value{}, load.Known(100))
	points, found := day.Pod("a", midnight.Add(-time.Hour))
	if !found || !points.Start.Equal(midnight) || points.Step != 5*time.Minute {
		t.Errorf("got start %v, step %v", points.Start, points.Step)
	}
	got := fmt.Sprint(texts(points.Values[0]), texts(points.Values[1]), texts(points.Values[2]), texts(points.Values[3]))
	if want := "[2 - - 5] [3 - - 5] [100 - - 200] [100 - - 300]"; got != want {
		t.Errorf("got %s, want mean and maximum of cpu and memory: %s", got, want)
	}
	if points, _ := day.Pod("a", midnight.Add(6*time.Minute)); len(points.Values[0]) != 1 || !points.Start.Equal(midnight.Add(15*time.Minute)) {
		t.Errorf("got %v from %v on, want only the last value", texts(points.Values[0]), points.Start)
	}
	add(24*time.Hour+2*time.Minute, load.Known(7), load.Value{})
	if points, _ := day.Pod("a", midnight); fmt.Sprint(texts(points.Values[0][:3])) != "[5 - -]" || len(points.Values[0]) != 24*12-2 {
		t.Errorf("got %d values %v, want those of 24 hours", len(points.Values[0]), texts(points.Values[0]))
	}
}

// TestDay_ClockSetBack checks that what a clock that was wrong said is later does not hide what follows.
func TestDay_ClockSetBack(t *testing.T) {
	day := load.NewDay()
	for _, at := range []time.Duration{0, time.Minute, 1000 * time.Hour, 2 * time.Minute, 3 * time.Minute} {
		day.AddNode(midnight.Add(at), load.NodePoint{CPU: load.Known(at.Minutes())})
	}
	points := day.Node(midnight.Add(-time.Hour))
	if got := fmt.Sprint(texts(points.Values[1])); got != "[2 3]" { // all before the jump is older than 24 hours
		t.Errorf("got %s", got)
	}
	day.AddNode(midnight.Add(2*time.Minute), load.NodePoint{CPU: load.Known(9)})
	if got := fmt.Sprint(texts(day.Node(midnight).Values[1])); got != "[9]" {
		t.Errorf("got %s, want the slot to begin again", got)
	}
	day.AddNode(time.Unix(-1000, 0), load.NodePoint{CPU: load.Known(1)}) // a machine without a clock
}

func TestDay_Prune(t *testing.T) {
	day := load.NewDay()
	for n := range 600 {
		day.AddPod(midnight, podid.UID(fmt.Sprint(n)), load.Known(1), load.Known(1))
	}
	if got := day.Pods(); got != 512 {
		t.Errorf("got %d pods, want at most 512", got)
	}
	at := midnight.Add(16 * time.Minute)
	day.AddPod(at, "7", load.Known(1), load.Known(1))
	day.Prune(at)
	if got := day.Pods(); got != 512 {
		t.Errorf("got %d pods, want all: a runtime may fail for some ticks", got)
	}
	at = midnight.Add(21 * time.Minute)
	day.Prune(at)
	if _, found := day.Pod("7", midnight); !found || day.Pods() != 1 {
		t.Errorf("got %d pods, want the one that was measured", day.Pods())
	}
}

// TestDay_Encoding checks that a decoded day has the same points, that its size is bounded, and that damage is an error.
func TestDay_Encoding(t *testing.T) {
	day := load.NewDay()
	for minute := range 3000 {
		at := midnight.Add(time.Duration(minute) * time.Minute)
		day.AddNode(at, load.NodePoint{Saturation: load.Known(float64(minute)), CPU: load.Known(math.Sqrt(float64(minute)))})
		for pod := range 110 {
			if minute%5 == 0 {
				day.AddPod(at, podid.UID(fmt.Sprintf("0b1e7c2a-0000-4000-8000-%012d", pod)), load.Known(float64(minute*pod)), load.Known(1))
			}
		}
	}
	level := load.SavedLevel{Level: load.LevelBusy, Since: midnight, At: midnight.Add(time.Hour)}
	encoded := day.Encode(level)
	if len(encoded) > 600_000 {
		t.Errorf("got %d bytes for 110 pods, want at most 600,000: it is also what the slots take in memory", len(encoded))
	}
	decoded, gotLevel, err := load.DecodeDay(encoded)
	if err != nil || gotLevel != level {
		t.Fatalf("got %v, %v", gotLevel, err)
	}
	since := midnight.Add(26 * time.Hour)
	if got, want := fmt.Sprint(decoded.Node(since)), fmt.Sprint(day.Node(since)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got, _ := decoded.Pod("0b1e7c2a-0000-4000-8000-000000000109", since)
	if want, _ := day.Pod("0b1e7c2a-0000-4000-8000-000000000109", since); fmt.Sprint(got) != fmt.Sprint(want) || len(got.Values[0]) == 0 {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, length := range []int{0, 3, 4, 100, len(encoded) - 1} {
		if _, _, err := load.DecodeDay(encoded[:length]); err == nil {
			t.Errorf("%d bytes are no error", length)
		}
	}
	if _, _, err := load.DecodeDay(append(encoded, 0)); err == nil {
		t.Error("one more byte is no error")
	}
}

func FuzzDecodeDay(f *testing.F) {
	f.Add(load.NewDay().Encode(load.SavedLevel{}))
	f.Add([]byte{2, 0, 0, 0, '{', '}'})
	f.Fuzz(func(_ *testing.T, encoded []byte) {
		if day, _, err := load.DecodeDay(encoded); err == nil {
			day.AddNode(midnight, load.NodePoint{CPU: load.Known(1)})
			day.Node(midnight)
		}
	})
}

// TestTrack_Model compares a track with a list of all samples.
func TestTrack_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day := load.NewDay()
		sums, counts, newest, at := map[int64]float64{}, map[int64]float64{}, int64(0), midnight
		for range rapid.IntRange(1, 200).Draw(t, "samples") {
			at = at.Add(time.Duration(rapid.IntRange(0, 40*60).Draw(t, "seconds")) * time.Second)
			value := float64(rapid.IntRange(0, 1000).Draw(t, "value"))
			newest = at.Unix() / 60
			sums[newest], counts[newest] = sums[newest]+value, counts[newest]+1
			day.AddNode(at, load.NodePoint{CPU: load.Known(value)})
		}
		points := day.Node(midnight)
		for i, value := range points.Values[1] {
			slot := points.Start.Unix()/60 + int64(i)
			number, known := value.Get()
			if known != (counts[slot] > 0) || known && math.Abs(number-sums[slot]/counts[slot]) > .1 {
				t.Fatalf("slot %d: got %v (known %v), want the mean of %v values with the sum %v", slot, number, known, counts[slot], sums[slot])
			}
		}
		if last := points.Start.Unix()/60 + int64(len(points.Values[1])) - 1; last != newest {
			t.Fatalf("got slots up to %d, want %d", last, newest)
		}
	})
}

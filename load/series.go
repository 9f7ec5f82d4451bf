package load

import (
	"math"
	"time"
)

const (
	// SlotDuration is the resolution of a Series.
	SlotDuration = 10 * time.Second
	// slotCount covers the longest window, 15 minutes.
	slotCount = 90
)

// The windows.
const (
	Window1m  = time.Minute
	Window5m  = 5 * time.Minute
	Window15m = slotCount * SlotDuration
)

// Series has the samples of one signal over the last 15 minutes. It is not safe for concurrent use. The zero value is empty.
type Series struct {
	// slots has the mean of each slot, NaN for a slot without samples. Slot i is slots[i%slotCount].
	slots [slotCount]float32
	// newest is the number of the newest slot plus one; 0 if there is none. count is its number of samples.
	newest int64
	count  int32
	lastAt time.Duration
}

// Add adds a sample that was taken at the given time since the start of the agent. Samples older than the newest one and values that
// are unknown are ignored.
func (s *Series) Add(at time.Duration, value Value) {
	number, known := value.Get()
	slot := int64(at / SlotDuration)
	if !known || at < 0 || slot+1 < s.newest {
		return
	}
	if slot+1 > s.newest {
		s.advance(slot)
	}
	s.count++
	mean := &s.slots[slot%slotCount]
	*mean += (float32(number) - *mean) / float32(s.count)
	s.lastAt = max(s.lastAt, at)
}

// advance makes slot the newest one.
func (s *Series) advance(slot int64) {
	first := s.newest
	if s.newest == 0 || slot-first >= slotCount {
		first = slot - slotCount + 1
	}
	for i := max(first, 0); i < slot; i++ {
		s.slots[i%slotCount] = float32(math.NaN())
	}
	if s.newest == 0 { // the slots below 0 of a short life
		for i := slot + 1; i < slotCount; i++ {
			s.slots[i] = float32(math.NaN())
		}
	}
	s.slots[slot%slotCount], s.count, s.newest = 0, 0, slot+1
}

// Window has the mean and the maximum of a window.
type Window struct{ Mean, Max Value }

// Over returns mean and maximum over the window that ends now. Both are unknown if the newest sample is older than maxAge (L3); a
// window without samples has the value of the newest one otherwise.
func (s *Series) Over(now, window, maxAge time.Duration) Window {
	if s.newest == 0 || now-s.lastAt > maxAge {
		return Window{}
	}
	last := s.newest - 1
	first := max(int64((now-window)/SlotDuration)+1, last-slotCount+1, 0)
	first = min(first, last)
	sum, largest, n := 0.0, math.Inf(-1), 0
	for slot := first; slot <= last; slot++ {
		number := float64(s.slots[slot%slotCount])
		if math.IsNaN(number) {
			continue
		}
		sum, largest, n = sum+number, max(largest, number), n+1
	}
	return Window{Mean: Known(sum / float64(n)), Max: Known(largest)}
}

// Last returns the value of the newest slot, unknown if its last sample is older than maxAge.
func (s *Series) Last(now, maxAge time.Duration) Value {
	if s.newest == 0 || now-s.lastAt > maxAge {
		return Value{}
	}
	return Known(float64(s.slots[(s.newest-1)%slotCount]))
}

// Counter turns a number that only rises into a rate per second. The zero value has seen no sample.
type Counter struct {
	at     time.Duration
	number float64
	seen   bool
}

// Rate returns the rate since the sample before. It is unknown for the first sample, and for one that is lower than the one before:
// the counter started anew.
func (c *Counter) Rate(at time.Duration, value Value) Value {
	number, known := value.Get()
	if !known || (c.seen && at <= c.at) {
		return Value{}
	}
	before := *c
	*c = Counter{at: at, number: number, seen: true}
	if !before.seen || number < before.number {
		return Value{}
	}
	return Known((number - before.number) / (at - before.at).Seconds())
}

package load

import (
	"math"
	"time"
)

// TrackDuration is how far back tracks reach.
const TrackDuration = 24 * time.Hour

// Track has some signals over the last 24 hours, in slots of equal length. Unlike those of a Series, its times are those of the wall
// clock, so that it can outlive the agent. It is not safe for concurrent use.
type Track struct {
	step time.Duration
	// newest is the number of the newest slot since the epoch; 0 if there is none.
	newest  int64
	signals []signal
}

// signal is one signal of a track. Slot i is slots[i%len(slots)]; NaN if there was no sample.
type signal struct {
	slots []float32
	// isMax keeps the largest sample of a slot instead of the mean. count is the number of samples of the newest slot.
	isMax bool
	count int32
}

func newTrack(step time.Duration, isMax ...bool) Track {
	t := Track{step: step, signals: make([]signal, len(isMax))}
	for i := range t.signals {
		t.signals[i] = signal{slots: make([]float32, TrackDuration/step), isMax: isMax[i]}
		clearSlots(t.signals[i].slots)
	}
	return t
}

func clearSlots(slots []float32) {
	for i := range slots {
		slots[i] = float32(math.NaN())
	}
}

// Add adds one value for each signal. Unknown values are ignored. If the clock was set back, what it says is later is removed.
func (t *Track) Add(at time.Time, values ...Value) {
	slot := at.UnixNano() / int64(t.step)
	if slot < 1 { // before the epoch
		return
	}
	t.moveTo(slot)
	for i := range t.signals {
		t.signals[i].add(t.newest, values[i])
	}
}

func (s *signal) add(slot int64, value Value) {
	number, known := value.Get()
	if !known {
		return
	}
	kept := &s.slots[slot%int64(len(s.slots))]
	switch {
	case s.count == 0 || s.isMax && float32(number) > *kept:
		*kept = float32(number)
	case !s.isMax:
		*kept += (float32(number) - *kept) / float32(s.count+1)
	}
	s.count++
}

// moveTo makes slot the newest one.
func (t *Track) moveTo(slot int64) {
	if slot == t.newest {
		return
	}
	size := int64(len(t.signals[0].slots))
	first, last := t.newest+1, slot
	if slot < t.newest {
		first, last = slot, t.newest
	}
	first = max(first, last-size+1)
	for i := range t.signals {
		for n := first; n <= last; n++ {
			t.signals[i].slots[n%size] = float32(math.NaN())
		}
		t.signals[i].count = 0
	}
	t.newest = slot
}

// Points are the values of a track from Start on, Step apart.
type Points struct {
	Start time.Time
	Step  time.Duration
	// Values has the values of each signal.
	Values [][]Value
}

// Since returns the points that begin at or after since, up to the newest one, without unknown ones before the first.
func (t *Track) Since(since time.Time) Points {
	points := Points{Step: t.step, Values: make([][]Value, len(t.signals))}
	if t.newest == 0 {
		return points
	}
	size := int64(len(t.signals[0].slots))
	first := max(t.newest-size+1, (since.UnixNano()+int64(t.step)-1)/int64(t.step))
	for first <= t.newest && !t.isKnown(first) {
		first++
	}
	points.Start = time.Unix(0, first*int64(t.step)).UTC()
	for i := range t.signals {
		for slot := first; slot <= t.newest; slot++ {
			points.Values[i] = append(points.Values[i], Known(float64(t.signals[i].slots[slot%size])))
		}
	}
	return points
}

func (t *Track) isKnown(slot int64) bool {
	for i := range t.signals {
		if slots := t.signals[i].slots; !math.IsNaN(float64(slots[slot%int64(len(slots))])) {
			return true
		}
	}
	return false
}

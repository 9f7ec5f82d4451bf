// Package latency remembers how long an operation took in the last 15 minutes.
package latency

import (
	"math"
	"sync"
	"time"
)

const (
	// Window is how far back quantiles reach, give or take a minute.
	Window    = slotCount * slotDuration
	slotCount = 15

	slotDuration = time.Minute
	// The buckets have four steps per doubling, from shortest on: a quantile is at most 19 % too large.
	shortest    = 50 * time.Microsecond
	bucketCount = 92 // up to 7 minutes
	perDoubling = 4
)

// Recent counts durations in buckets, a minute at a time. It takes 5.6 KB whatever the rate. It is safe for concurrent use, and the zero
// value is empty.
type Recent struct {
	mu     sync.Mutex // guards the fields below
	slots  [slotCount][bucketCount]uint32
	newest int64 // the number of the newest slot
	begun  time.Time
}

// Observe counts a duration.
func (r *Recent) Observe(now time.Time, duration time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advanceLocked(now)
	r.slots[r.newest%slotCount][bucketOf(duration)]++
}

// Quantile returns the duration that the given share of all operations did not exceed, as the upper end of its bucket. It returns false
// if there were none.
func (r *Recent) Quantile(now time.Time, share float64) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advanceLocked(now)
	var counts [bucketCount]uint64
	total := uint64(0)
	for i := range r.slots {
		for bucket, count := range r.slots[i] {
			counts[bucket] += uint64(count)
			total += uint64(count)
		}
	}
	if total == 0 {
		return 0, false
	}
	rank := uint64(math.Ceil(share * float64(total)))
	for bucket, count := range counts {
		if rank <= count {
			return upperEnd(bucket), true
		}
		rank -= count
	}
	return upperEnd(bucketCount - 1), true
}

// P99 returns the duration that 99 of 100 operations did not exceed.
func (r *Recent) P99(now time.Time) (time.Duration, bool) { return r.Quantile(now, .99) }

// advanceLocked makes the slot of now the newest one. The monotonic clock counts; a time before the newest slot belongs to it.
func (r *Recent) advanceLocked(now time.Time) {
	if r.begun.IsZero() {
		r.begun = now
	}
	slot := int64(now.Sub(r.begun) / slotDuration)
	for n := max(r.newest+1, slot-slotCount+1); n <= slot; n++ {
		r.slots[n%slotCount] = [bucketCount]uint32{}
	}
	r.newest = max(r.newest, slot)
}

func bucketOf(duration time.Duration) int {
	if duration <= shortest {
		return 0
	}
	bucket := math.Ceil(perDoubling * math.Log2(float64(duration)/float64(shortest)))
	return min(int(bucket), bucketCount-1)
}

func upperEnd(bucket int) time.Duration {
	return time.Duration(float64(shortest) * math.Exp2(float64(bucket)/perDoubling))
}

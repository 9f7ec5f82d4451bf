package recent

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Limits of a Counter.
const (
	// MaxWindow is how long times are remembered.
	MaxWindow = 24 * time.Hour
	// MaxCount is how many times of one kind are remembered for an object: the newest. A count cannot be larger.
	MaxCount = 64
	maxKinds = 32  // of one object; others are not counted
	maxKind  = 128 // bytes
	// The objects to which nothing has happened for the longest time are forgotten beyond these.
	maxObjects = 4096
	maxTimes   = 128 << 10 // of all objects, 3 MiB
)

// Counter remembers what happened when. The zero value is ready to use. It is not safe for concurrent use.
type Counter struct {
	objects map[Object]*record
	// times is at least the number of all times.
	times int
	// added is what was added since the last TakeAdded, if isTaken: somebody calls it.
	added   []Entry
	isTaken bool
}

// record has the times of one object. Each list is in ascending order and not empty. The marks are of kinds that have times.
type record struct {
	times  map[string][]time.Time
	marks  map[string][]Mark
	newest time.Time
}

// Entry has times of one kind of an object. It is what a Counter is in JSON: a list of these.
type Entry struct {
	Object
	Kind  string      `json:"kind"`
	Times []time.Time `json:"times,omitempty"`
	// Marks identify what was counted last, oldest first. Those that TakeAdded returns are added to earlier ones, or replace them.
	Marks []Mark `json:"marks,omitempty"`
}

// Add notes that something happened. The time should have a monotonic clock reading if those of Count have one.
func (c *Counter) Add(o Object, kind string, at time.Time) {
	if c.add(o, kind, at) {
		c.note(Entry{Object: o, Kind: kind, Times: []time.Time{at}})
	}
}

// addMarked is Add for something that happened count times, and that the mark identifies.
func (c *Counter) addMarked(o Object, kind string, count int, mark Mark, at time.Time) {
	isAdded := false
	for range count {
		isAdded = c.add(o, kind, at)
	}
	if isAdded {
		c.setMark(o, kind, mark)
		c.note(Entry{Object: o, Kind: kind, Times: slices.Repeat([]time.Time{at}, count), Marks: []Mark{mark}})
	}
}

// note keeps for TakeAdded what was added.
func (c *Counter) note(added Entry) {
	if c.isTaken {
		c.added = append(c.added, added)
	}
}

func (c *Counter) add(o Object, kind string, at time.Time) bool {
	r := c.objects[o]
	if r == nil {
		r = &record{times: map[string][]time.Time{}}
	}
	r.prune(at)
	if len(kind) > maxKind || len(r.times) >= maxKinds && r.times[kind] == nil {
		return false
	}
	times := append(r.times[kind], at)
	for i := len(times) - 1; i > 0 && times[i].Before(times[i-1]); i-- {
		times[i], times[i-1] = times[i-1], times[i]
	}
	if len(times) > MaxCount {
		times = slices.Delete(times, 0, len(times)-MaxCount)
	}
	r.times[kind], r.newest = times, times[len(times)-1]
	if c.objects == nil {
		c.objects = map[Object]*record{}
	}
	c.objects[o] = r
	if c.times++; c.times > maxTimes || len(c.objects) > maxObjects {
		c.makeRoom(at)
	}
	return true
}

// prune forgets what is too old to be counted.
func (r *record) prune(now time.Time) {
	limit := now.Add(-MaxWindow)
	for kind, times := range r.times {
		if first := firstAfter(times, limit); first == len(times) {
			delete(r.times, kind)
			delete(r.marks, kind)
		} else if first > 0 {
			r.times[kind] = slices.Delete(times, 0, first)
		}
	}
}

// firstAfter returns the index of the first time after the limit.
func firstAfter(times []time.Time, limit time.Time) int {
	index, _ := slices.BinarySearchFunc(times, limit, func(t, limit time.Time) int {
		if t.After(limit) {
			return 1
		}
		return -1
	})
	return index
}

// makeRoom forgets the objects to which nothing has happened for 24 hours, and if that is not enough those to which nothing has happened
// for the longest time.
func (c *Counter) makeRoom(now time.Time) {
	c.times = 0
	for o, r := range c.objects {
		if r.prune(now); len(r.times) == 0 {
			delete(c.objects, o)
		}
		c.times += r.count()
	}
	if c.times <= maxTimes && len(c.objects) <= maxObjects {
		return
	}
	oldestFirst := slices.SortedFunc(maps.Keys(c.objects), func(a, b Object) int {
		return cmp.Or(c.objects[a].newest.Compare(c.objects[b].newest), a.Compare(b))
	})
	for _, o := range oldestFirst {
		if c.times <= maxTimes*7/8 && len(c.objects) <= maxObjects*7/8 { // so that it is rarely needed
			return
		}
		c.times -= c.objects[o].count()
		delete(c.objects, o)
	}
}

func (r *record) count() int {
	count := 0
	for _, times := range r.times {
		count += len(times)
	}
	return count
}

// Count returns how often something happened after now-window, at most MaxCount, and when that number decreases if nothing more happens;
// zero if never.
func (c *Counter) Count(o Object, kind string, window time.Duration, now time.Time) (count int, next time.Time) {
	r := c.objects[o]
	if r == nil {
		return 0, time.Time{}
	}
	times := r.times[kind]
	first := firstAfter(times, now.Add(-window))
	if first == len(times) {
		return 0, time.Time{}
	}
	return len(times) - first, times[first].Add(window)
}

// Entries returns everything that Count can count at that time, in a fixed order. The wall clock readings of the times are those of now's
// clock, also if the clock was set since they were added.
func (c *Counter) Entries(now time.Time) []Entry {
	var entries []Entry
	for o, r := range c.objects {
		if r.prune(now); len(r.times) == 0 {
			delete(c.objects, o)
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(c.objects), Object.Compare) {
		times, marks := c.objects[o].times, c.objects[o].marks
		for _, kind := range slices.Sorted(maps.Keys(times)) {
			entry := Entry{Object: o, Kind: kind, Times: make([]time.Time, len(times[kind])), Marks: slices.Clone(marks[kind])}
			for i, at := range times[kind] {
				entry.Times[i] = now.Add(at.Sub(now))
			}
			entries = append(entries, entry)
		}
	}
	return entries
}

// TakeAdded returns what was added since the last call. The first call returns nothing.
func (c *Counter) TakeAdded() []Entry {
	added := c.added
	c.added, c.isTaken = nil, true
	return added
}

// Restore adds what Entries or TakeAdded have returned in an earlier run. A time in the future becomes now.
func (c *Counter) Restore(entries []Entry, now time.Time) {
	for _, entry := range entries {
		for _, at := range entry.Times {
			if age := now.Sub(at); age < MaxWindow {
				c.add(entry.Object, entry.Kind, now.Add(-max(age, 0)))
			}
		}
		for _, mark := range entry.Marks {
			c.setMark(entry.Object, entry.Kind, mark)
		}
	}
}

// MarshalJSON implements json.Marshaler.
func (c *Counter) MarshalJSON() ([]byte, error) {
	var newest time.Time
	for _, r := range c.objects {
		if r.newest.After(newest) {
			newest = r.newest
		}
	}
	return json.Marshal(c.Entries(newest))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Counter) UnmarshalJSON(data []byte) error {
	var entries []Entry
	if err := json.Unmarshal(data, &entries); err != nil {
		return err
	}
	*c = Counter{}
	var newest time.Time
	for _, entry := range entries {
		for _, at := range entry.Times {
			newest = slices.MaxFunc([]time.Time{newest, at}, time.Time.Compare)
		}
	}
	c.Restore(entries, newest)
	return nil
}

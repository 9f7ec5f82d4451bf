package history

import (
	"time"

	"github.com/heraldnode/herald/transition"
)

// A pod may change once per second, and 600 times at once. Beyond that, one record per foldPeriod stands for all its versions.
const (
	foldRate   = 1.0 // per second
	foldBurst  = 600
	foldPeriod = 10 * time.Second
)

// tokenBucket limits the records of one pod.
type tokenBucket struct {
	tokens   float64
	refilled time.Time
}

func newTokenBucket(now time.Time) tokenBucket { return tokenBucket{tokens: foldBurst, refilled: now} }

func (b *tokenBucket) take(now time.Time) bool { return b.takeAt(now, foldRate, foldBurst) }

// takeAt takes a token of a bucket that is refilled with rate tokens per second, up to burst.
func (b *tokenBucket) takeAt(now time.Time, rate, burst float64) bool {
	if elapsed := now.Sub(b.refilled); elapsed > 0 {
		b.tokens, b.refilled = min(burst, b.tokens+rate*elapsed.Seconds()), now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// fold collects the versions of a pod that share a record.
type fold struct {
	started time.Time
	version Version // stands for all of them
	counts  map[string]int
	changes []transition.Change // reused
}

func newFold(v *Version) *fold {
	f := &fold{started: v.Time, version: *v, counts: map[string]int{}}
	f.count(v)
	return f
}

func (f *fold) add(v *Version) {
	f.count(v)
	merged := *v
	merged.merge(&f.version)
	f.version = merged
}

// count counts the changes of a version by their fields.
func (f *fold) count(v *Version) {
	f.changes = transition.AppendPod(f.changes[:0], v.Before, v.After)
	for i := range f.changes {
		field := string(f.changes[i].Field)
		if container := f.changes[i].Container; container != "" {
			field = container + "/" + field
		}
		f.counts[field]++
	}
	clear(f.changes)
}

// flushFolds writes the folds whose period has ended.
func (w *writer) flushFolds(now time.Time) {
	for _, state := range w.folds {
		if now.Sub(state.fold.started) >= foldPeriod {
			w.flushFold(state)
		}
	}
}

// flushFold writes the pod's folded versions, if there are any. While the bucket is empty, the next version begins another
// fold.
func (w *writer) flushFold(state *podState) {
	if state.fold == nil {
		return
	}
	folded := state.fold
	state.fold = nil
	delete(w.folds, folded.version.UID)
	w.record(state, &folded.version, folded.counts)
}

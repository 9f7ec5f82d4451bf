package cri

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pauses between the pulls of an image that fail.
const (
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	// forgetAfter is when a failure no longer counts.
	forgetAfter = 2 * longestPause
)

// pullBackoff remembers which pulls failed. As for the kubelet, each pod has its own memory of each image: whoever repairs
// something and makes the pod anew need not wait.
type pullBackoff struct {
	mu     sync.Mutex // guards what follows
	failed map[backoffKey]pullFailure
}

type backoffKey struct {
	pod   types.UID
	image string
}

type pullFailure struct {
	at      time.Time
	pause   time.Duration
	message string // "<reason>: <cause>"
}

// rest is how long the pull must wait still, and why; 0 is for one that may be tried.
func (b *pullBackoff) rest(key backoffKey, now time.Time) (time.Duration, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	failure := b.failed[key]
	return max(0, failure.at.Add(failure.pause).Sub(now)), failure.message
}

// note doubles the pause.
func (b *pullBackoff) note(key backoffKey, now time.Time, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.failed, func(_ backoffKey, f pullFailure) bool { return now.Sub(f.at) > forgetAfter })
	pause := min(max(firstPause, 2*b.failed[key].pause), longestPause)
	b.failed[key] = pullFailure{at: now, pause: pause, message: message}
}

func (b *pullBackoff) forget(key backoffKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failed, key)
}

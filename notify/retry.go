package notify

import (
	"math/rand/v2"
	"time"
)

const (
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
	// refusalDelay is how long a request is not repeated that the receiver has refused.
	refusalDelay = time.Hour
	// requestRate and requestBurst limit the requests to a sink.
	requestRate  = 10 // per second
	requestBurst = 20
)

// backoff returns the delay after that many failures in a row, without jitter.
func backoff(failures int) time.Duration {
	delay := minBackoff
	for range failures - 1 {
		if delay *= 2; delay >= maxBackoff {
			return maxBackoff
		}
	}
	return delay
}

// jitter returns the delay, longer by up to a fifth: nodes that lost a receiver together do not return to it together.
func jitter(delay time.Duration) time.Duration { return delay + rand.N(delay/5+1) }

// bucket limits the rate of requests. The zero value is full.
type bucket struct {
	used float64 // tokens
	at   time.Time
}

// ready returns when the next request may be sent.
func (b *bucket) ready(now time.Time) time.Time {
	b.fill(now)
	if b.used <= requestBurst-1 {
		return now
	}
	return now.Add(time.Duration((b.used - (requestBurst - 1)) / requestRate * float64(time.Second))).Add(time.Microsecond)
}

func (b *bucket) take(now time.Time) {
	b.fill(now)
	b.used++
}

func (b *bucket) fill(now time.Time) {
	if elapsed := now.Sub(b.at).Seconds(); elapsed > 0 {
		b.used = max(0, b.used-elapsed*requestRate)
	}
	b.at = now
}

// unit is what is retried together: an alert, or a group of alerts that share their messages.
type unit struct {
	attemptedAt  time.Time // least recently attempted units come first, so that none is starved by one that always fails
	retryAt      time.Time
	spacedUntil  time.Time // changes that follow a message soon share the next one
	failures     int
	failingSince time.Time
	isAlone      bool // it was part of a message that was refused: the others shall not suffer from it
}

// Package wakeup provides a level-triggered wake-up signal.
package wakeup

// Signal wakes one receiver when there is work. Calls of Set before a receive are coalesced, and none is lost. Receive from it
// like from any channel.
type Signal chan struct{}

// New returns a signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set wakes the receiver, now or at its next receive. It never blocks.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

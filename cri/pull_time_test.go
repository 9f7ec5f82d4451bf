package cri_test

import (
	"testing"
	"time"

	"github.com/heraldnode/herald/cri"
)

func TestPullTimes_OverlappingPullsCountOnce(t *testing.T) {
	var times cri.PullTimes
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	first, second := times.Begin("a", at(0)), times.Begin("a", at(2))
	other := times.Begin("b", at(1))
	first(at(5))
	if got := times.Of("a"); got != 0 {
		t.Errorf("while a pull is in progress: got %v, want 0", got)
	}
	second(at(8))
	other(at(3))
	times.Begin("a", at(10))(at(11))
	if got := times.Of("a"); got != 9*time.Second {
		t.Errorf("got %v, want 9s", got)
	}
	if got := times.Of("b"); got != 2*time.Second {
		t.Errorf("another pod: got %v, want 2s", got)
	}
	times.Forget("a")
	if got := times.Of("a"); got != 0 {
		t.Errorf("after removal: got %v, want 0", got)
	}
}

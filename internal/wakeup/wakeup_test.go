package wakeup_test

import (
	"testing"

	"github.com/heraldnode/herald/internal/wakeup"
)

func TestSignal_Collapses(t *testing.T) {
	signal := wakeup.New()
	signal.Set()
	signal.Set()
	<-signal
	select {
	case <-signal:
		t.Fatal("two sets woke the receiver twice")
	default:
	}
	signal.Set()
	select {
	case <-signal:
	default:
		t.Fatal("a set after a receive was lost")
	}
}

package expression

import (
	"time"

	"github.com/heraldnode/herald/alert/recent"
)

// Recent counts what happened to objects in windows of time; see package recent for the kinds.
type Recent interface {
	// Count returns how often it happened in (now-window, now], at most MaxCount, and when that decreases next; zero for never.
	Count(object recent.Object, kind string, window time.Duration, now time.Time) (count int, next time.Time)
}

package imagegc

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Policy says when images are removed. The zero value removes all unused images; see DefaultPolicy.
type Policy struct {
	// HighThresholdPercent is the use of the image file system from which on images are removed, LowThresholdPercent the use down to
	// which they are removed.
	HighThresholdPercent, LowThresholdPercent int
	// MinAge is how long an image stays after it was first detected.
	MinAge time.Duration
	// MaxAge is how long an image may be unused, whatever the file system. Zero means for ever.
	MaxAge time.Duration
}

// DefaultPolicy returns the kubelet's default policy (IGC-2).
func DefaultPolicy() Policy {
	return Policy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}
}

// IsOff reports whether the policy never removes an image (IGC-1).
func (p Policy) IsOff() bool { return p.HighThresholdPercent == 100 && p.MaxAge == 0 }

// Validate returns what is wrong with the policy (IGC-2).
func (p Policy) Validate() error {
	var errs []error
	reject := func(condition bool, format string, args ...any) {
		if condition {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	reject(p.HighThresholdPercent < 0 || p.HighThresholdPercent > 100,
		"high threshold %d%% must be between 0%% and 100%%", p.HighThresholdPercent)
	reject(p.LowThresholdPercent < 0 || p.LowThresholdPercent > 100,
		"low threshold %d%% must be between 0%% and 100%%", p.LowThresholdPercent)
	reject(p.LowThresholdPercent >= p.HighThresholdPercent,
		"low threshold %d%% must be less than the high threshold %d%%", p.LowThresholdPercent, p.HighThresholdPercent)
	reject(p.MinAge < 0, "minimum age %v must not be negative", p.MinAge)
	reject(p.MaxAge < 0, "maximum age %v must not be negative", p.MaxAge)
	reject(p.MaxAge > 0 && p.MaxAge <= p.MinAge, "maximum age %v must be more than the minimum age %v", p.MaxAge, p.MinAge)
	return errors.Join(errs...)
}

// ErrNoCapacity means that the image file system has no size (IGC-11).
var ErrNoCapacity = errors.New("invalid capacity 0 on image filesystem")

// Amount is the capacity of a file system and what is available of it.
type Amount struct{ Capacity, Available int64 }

// Usage describes the image file system. Inodes are zero if the file system has no limit of them.
type Usage struct{ Bytes, Inodes Amount }

// UsedPercent returns how much is used, rounded up as the kubelet does (IGC-7). An amount without a capacity is not used.
func (a Amount) UsedPercent() int {
	if a.Capacity <= 0 {
		return 0
	}
	available := min(max(a.Available, 0), a.Capacity)
	high, low := bits.Mul64(uint64(available), 100)
	free, _ := bits.Div64(high, low, uint64(a.Capacity))
	return 100 - int(free)
}

// target returns how much must be available so that no more than percent is used.
func (a Amount) target(percent int) int64 {
	free := int64(100 - percent)
	return a.Capacity/100*free + a.Capacity%100*free/100 // Capacity*free can overflow
}

// UsedPercent returns the larger of the used percentages of bytes and inodes.
func (u Usage) UsedPercent() int { return max(u.Bytes.UsedPercent(), u.Inodes.UsedPercent()) }

// Goal is what must be available before the removal of images may stop. Zero means that an amount does not matter.
type Goal struct{ Bytes, Inodes int64 }

// Goal returns the goal of a pass: the low threshold for what exceeds the high one. isExceeded is false if nothing does (IGC-7).
func (p Policy) Goal(u Usage) (goal Goal, isExceeded bool) {
	if u.Bytes.UsedPercent() >= p.HighThresholdPercent {
		goal.Bytes, isExceeded = u.Bytes.target(p.LowThresholdPercent), true
	}
	if u.Inodes.Capacity > 0 && u.Inodes.UsedPercent() >= p.HighThresholdPercent {
		goal.Inodes, isExceeded = u.Inodes.target(p.LowThresholdPercent), true
	}
	return goal, isExceeded
}

// IsReached reports whether enough is available.
func (g Goal) IsReached(u Usage) bool {
	return u.Bytes.Available >= g.Bytes && u.Inodes.Available >= g.Inodes
}

// MissingBytes returns how many bytes must still become available.
func (g Goal) MissingBytes(u Usage) int64 { return max(0, g.Bytes-u.Bytes.Available) }

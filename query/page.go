package query

import (
	"fmt"
	"strconv"
	"time"
)

// Limits of a page.
const (
	DefaultLimit = 200
	MaxLimit     = 1000
)

// ParseLimit parses the maximum number of items of a page. Empty text is the default.
func ParseLimit(text string) (int, error) {
	if text == "" {
		return DefaultLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > MaxLimit {
		return 0, fmt.Errorf("limit must be between 1 and %d", MaxLimit)
	}
	return limit, nil
}

// ParseSequence parses a sequence number: a cursor, or the ID of an event. name is that of the parameter. Empty text is 0.
func ParseSequence(name, text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	sequence, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s must be a sequence number", name)
	}
	return sequence, nil
}

// ParseTime parses RFC 3339, or a duration before now like 10m. name is that of the parameter. Empty text is the zero time.
func ParseTime(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %q must be RFC 3339, or how long ago, like 10m", name, text)
	}
	return parsed, nil
}

package view

import "time"

// layout has milliseconds.
const layout = "2006-01-02T15:04:05.000Z07:00"

// Time is a time in JSON with milliseconds.
type Time struct{ time.Time }

// NewTime returns t in UTC, or nil if it is zero.
func NewTime(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{t.UTC().Round(0)}
}

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(layout) + `"`), nil
}

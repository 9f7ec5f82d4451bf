package alert

import (
	"errors"
	"time"
)

// ErrNoSilence says that a silence does not exist, or has ended.
var ErrNoSilence = errors.New("no such silence")

// Silence mutes the alerts that all its matchers match, until it ends.
type Silence struct {
	ID       string    `json:"id"`
	Matchers []Matcher `json:"matchers"`
	StartsAt time.Time `json:"startsAt"`
	EndsAt   time.Time `json:"endsAt"`
	// CreatedBy and Comment say who created it, and why.
	CreatedBy string `json:"createdBy"`
	Comment   string `json:"comment"`
}

// Matches reports whether the silence is in force and matches the labels.
func (s *Silence) Matches(labels Labels, now time.Time) bool {
	return !now.Before(s.StartsAt) && now.Before(s.EndsAt) && MatchAll(s.Matchers, labels)
}

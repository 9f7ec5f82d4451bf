package server

import (
	"errors"
	"strconv"
	"time"
)

const maxBookmarkSeconds = 60

// parseBookmarks returns how often a client wants a BOOKMARK. 0 is never.
func parseBookmarks(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 1 || seconds > maxBookmarkSeconds {
		return 0, errors.New("bookmarks must be a number of seconds from 1 to 60")
	}
	return time.Duration(seconds) * time.Second, nil
}

// every returns a channel that fires after each period, or nil if the client did not ask for what it is for.
func every(period time.Duration, isWanted bool) (ticks <-chan time.Time, stop func()) {
	if !isWanted {
		return nil, func() {}
	}
	ticker := time.NewTicker(period)
	return ticker.C, ticker.Stop
}

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

// bookmarkTimer returns a channel that fires when a BOOKMARK is to be sent, or nil if the client wants none.
func (w *watchStream) bookmarkTimer() (timer <-chan time.Time, stop func()) {
	if w.bookmarks == 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(w.bookmarks)
	return ticker.C, ticker.Stop
}

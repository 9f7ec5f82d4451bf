// Package entry reads the entries of container logs: it parses them, selects those that were asked for, and finds the last
// lines of a log. It handles bytes only; package containerlog reads the files.
//
// An entry is a line of the file. A line of the container is one entry, or several partial ones and a final one.
package entry

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

// Stream is the stream that a container wrote an entry to.
type Stream int

// Streams.
const (
	Stdout Stream = iota
	Stderr
	streams
)

// Entry is an entry of a log. Its slices share the memory that was parsed.
type Entry struct {
	Time   Time
	Stream Stream
	// Partial reports that the next entry of the stream continues the line.
	Partial bool
	// Text ends with a newline unless the entry is partial or its end is missing.
	Text []byte
}

var (
	errNoTime   = errors.New("log entry has no time")
	errNoStream = errors.New("log entry has no stream")
	errNoTag    = errors.New("log entry has no tag")
)

// Parse parses "<time> <stream> <tags> <text>" (LOG-20). The text may be incomplete.
func Parse(line []byte) (Entry, error) {
	var entry Entry
	field, line, _ := bytes.Cut(line, space)
	time, ok := parseTime(field)
	if !ok {
		return entry, errNoTime
	}
	entry.Time = time
	field, line, found := bytes.Cut(line, space)
	switch {
	case !found:
		return entry, errNoStream
	case string(field) == "stdout":
		entry.Stream = Stdout
	case string(field) == "stderr":
		entry.Stream = Stderr
	default:
		return entry, errNoStream
	}
	field, entry.Text, found = bytes.Cut(line, space)
	if !found {
		return entry, errNoTag
	}
	tag, _, _ := bytes.Cut(field, colon)
	if entry.Partial = string(tag) == "P"; entry.Partial {
		entry.Text = bytes.TrimSuffix(entry.Text, newline)
	}
	return entry, nil
}

var (
	space   = []byte(" ")
	colon   = []byte(":")
	newline = []byte("\n")
)

// parseJSON parses an entry of Docker's json-file driver (LOG-21).
func parseJSON(line []byte) (Entry, error) {
	var parsed struct {
		Log    string    `json:"log"`
		Stream string    `json:"stream"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(line, &parsed); err != nil {
		return Entry{}, err
	}
	entry := Entry{Time: Time{at: parsed.Time}, Text: []byte(parsed.Log)}
	switch parsed.Stream {
	case "stdout":
		entry.Stream = Stdout
	case "stderr":
		entry.Stream = Stderr
	default:
		return Entry{}, errNoStream
	}
	entry.Partial = len(parsed.Log) > 0 && !bytes.HasSuffix(entry.Text, newline)
	return entry, nil
}

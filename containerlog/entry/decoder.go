package entry

import (
	"bytes"
	"errors"
	"time"
)

// Options select what a Decoder returns.
type Options struct {
	// Since drops entries before this time (LOG-23).
	Since time.Time
	// Omit drops the entries of a stream, which then do not count for Limit (LOG-26).
	Omit [streams]bool
	// Timestamps puts the time before each line.
	Timestamps bool
	// Limit is the number of bytes to return, or negative for no limit. A character may be cut (LOG-25).
	Limit int64
}

// ErrFormat means that the first entry of a log is in no known format (LOG-21).
var ErrFormat = errors.New("unsupported log format")

// Decoder turns the content of a log into what its container wrote. Memory is bounded: a long entry is decoded in pieces.
type Decoder struct {
	options  Options
	position int64
	// starts are the positions from which on entries of a stream are returned.
	starts Starts
	json   bool
	begun  bool // the format is known

	// midLine reports for each stream whether the last entry was partial. The kubelet has one state for both: parts of one
	// stream then hide the time of the other (LOG-22).
	midLine [streams]bool
	current piece
	full    bool // Limit is reached
	dropped int
}

// piece is an entry whose end was not decoded yet.
type piece struct {
	open, emit, partial bool
}

// Sizes of input with which Decode always consumes something, also if there is no end of an entry. See Decoder.MaxEntry.
const (
	MaxEntry     = 64 << 10
	maxJSONEntry = 1 << 20 // must be decoded as a whole
)

// NewDecoder returns a decoder.
func NewDecoder(options Options) *Decoder {
	if options.Limit < 0 {
		options.Limit = 1<<63 - 1
	}
	return &Decoder{options: options}
}

// StartFile tells the decoder that the next input is the content of another file from this position on. Entries of a stream that
// are before its start are dropped.
func (d *Decoder) StartFile(position int64, starts Starts) {
	d.position, d.starts = position, starts
	d.current = piece{}
}

// Full reports whether the limit of bytes is reached.
func (d *Decoder) Full() bool { return d.full }

// Dropped returns the number of entries that could not be parsed.
func (d *Decoder) Dropped() int { return d.dropped }

// MaxEntry is the size of input with which Decode always consumes something.
func (d *Decoder) MaxEntry() int {
	if d.json {
		return maxJSONEntry
	}
	return MaxEntry
}

// Decode decodes the beginning of input, appends the result to output, and returns how much of input it consumed. The rest is an
// incomplete entry, unless Full; pass it again with more input. isEnd says that there will be no more.
func (d *Decoder) Decode(output, input []byte, isEnd bool) (_ []byte, consumed int, err error) {
	for !d.full && consumed < len(input) {
		line := input[consumed:]
		if !d.begun {
			d.json = line[0] == '{'
		}
		end := bytes.IndexByte(line, '\n') + 1
		switch {
		case end > 0:
			line = line[:end]
		case !d.current.open && !isEnd && len(line) < d.MaxEntry():
			return output, consumed, nil
		}
		if d.current.open {
			output = d.continueEntry(output, line)
		} else if output, err = d.decodeEntry(output, line); err != nil {
			return output, consumed, err
		}
		d.current.open = end == 0
		consumed += len(line)
		d.position += int64(len(line))
	}
	return output, consumed, nil
}

// decodeEntry decodes an entry or its beginning.
func (d *Decoder) decodeEntry(output, line []byte) ([]byte, error) {
	entry, ok := d.parse(line)
	d.current = piece{}
	if !ok {
		if !d.begun {
			return output, ErrFormat
		}
		d.dropped++
		return output, nil
	}
	d.begun = true
	d.current.partial = entry.Partial
	isContinued := d.midLine[entry.Stream]
	d.midLine[entry.Stream] = entry.Partial
	if d.options.Omit[entry.Stream] || d.position < d.starts[entry.Stream] {
		return output, nil
	}
	if !d.options.Since.IsZero() && entry.Time.At().Before(d.options.Since) {
		return output, nil
	}
	d.current.emit = true
	if d.options.Timestamps && !isContinued {
		before := len(output)
		output = append(entry.Time.appendTo(output), ' ')
		output = d.count(output, before)
	}
	return d.emit(output, entry.Text), nil
}

// continueEntry decodes the rest of an entry.
func (d *Decoder) continueEntry(output, text []byte) []byte {
	if !d.current.emit {
		return output
	}
	if d.current.partial {
		text = bytes.TrimSuffix(text, newline)
	}
	return d.emit(output, text)
}

func (d *Decoder) emit(output, text []byte) []byte {
	if d.full {
		return output
	}
	before := len(output)
	return d.count(append(output, text...), before)
}

// count cuts what was appended at the limit.
func (d *Decoder) count(output []byte, before int) []byte {
	added := int64(len(output) - before)
	if added >= d.options.Limit {
		d.full = true
		added = d.options.Limit
	}
	d.options.Limit -= added
	return output[:before+int(added)]
}

// parse parses an entry in the format of the first one.
func (d *Decoder) parse(line []byte) (entry Entry, ok bool) {
	var err error
	if d.json {
		entry, err = parseJSON(line)
	} else {
		entry, err = Parse(line)
	}
	return entry, err == nil
}

// CheckFormat returns ErrFormat if the line is no entry in a known format.
func CheckFormat(line []byte) error {
	if len(line) > 0 && line[0] == '{' {
		return nil // the decoder checks it
	}
	if _, err := Parse(line); err != nil {
		return ErrFormat
	}
	return nil
}

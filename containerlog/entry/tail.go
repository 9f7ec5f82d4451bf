package entry

// Starts are the positions in a file from which on entries of each stream were asked for.
type Starts [streams]int64

// Tail finds the last lines of a log, which it is given backwards. It counts lines of the container, not entries (LOG-24). A line
// without an end, whose last entry is partial, is a line.
type Tail struct {
	lines   int64
	streams [streams]tailStream
	// passed is how many bytes were read since enough lines were found.
	passed int64
}

// tailStream is what Tail knows about a stream.
type tailStream struct {
	isCounted bool // a line of it is among the last ones
	isClosed  bool // the beginning of its first line is known
	isOmitted bool
}

// maxGap is how far before the last lines the other parts of a line are looked for.
const maxGap = 1 << 20

// NewTail returns a Tail for this many lines.
func NewTail(lines int64, omit [streams]bool) *Tail {
	tail := &Tail{lines: lines}
	for stream := range tail.streams {
		tail.streams[stream].isOmitted = omit[stream]
	}
	return tail
}

// Add adds the entry before the last one that was added, and its size in the file. It reports whether the entry belongs to the
// last lines.
func (t *Tail) Add(stream Stream, isPartial bool, size int64) bool {
	state := &t.streams[stream]
	if t.lines == 0 {
		t.passed += size
	}
	switch {
	case state.isOmitted || state.isClosed:
		return false
	case isPartial && state.isCounted: // continued by the entry behind it
		t.passed = 0
		return true
	case t.lines == 0:
		state.isClosed = true
		return false
	}
	t.lines--
	state.isCounted = true
	return true
}

// Done reports whether no earlier entry belongs to the last lines.
func (t *Tail) Done() bool {
	if t.lines > 0 {
		return false
	}
	if t.passed > maxGap {
		return true
	}
	for _, state := range t.streams {
		if state.isCounted && !state.isClosed {
			return false
		}
	}
	return true
}

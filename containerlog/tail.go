package containerlog

import (
	"bytes"
	"errors"
	"io"

	"github.com/heraldnode/herald/containerlog/entry"
)

const (
	tailBlock = 32 << 10
	// maxHeader is the size of an entry's beginning that has its time, stream and tags.
	maxHeader = 128
)

// backwardReader gives the entries of a file to a Tail, the last one first.
type backwardReader struct {
	content io.ReaderAt
	tail    *entry.Tail
	starts  entry.Starts
	first   int64 // position of the first entry of the last lines
	block   []byte
	left    int64 // position of block
}

// findTail returns where the last lines begin in a file of this size, the first position that must be read for them, and the end of
// the last entry. What follows that end is an incomplete entry, which is not counted.
func findTail(content io.ReaderAt, size int64, tail *entry.Tail) (starts entry.Starts, first, end int64, err error) {
	r := &backwardReader{content: content, tail: tail, block: make([]byte, 0, tailBlock), left: size}
	newline, err := r.previousNewline(size)
	if err != nil {
		return starts, 0, 0, err
	}
	end = newline + 1
	r.first = end
	for stream := range r.starts {
		r.starts[stream] = end // nothing, until an entry of the stream is found
	}
	for position := newline; position >= 0 && !tail.Done(); position = newline {
		if newline, err = r.previousNewline(position); err == nil {
			err = r.add(newline+1, position)
		}
		if err != nil {
			return starts, 0, 0, err
		}
	}
	return r.starts, r.first, end, nil
}

// previousNewline returns the position of the last newline before position, or -1.
func (r *backwardReader) previousNewline(position int64) (int64, error) {
	for {
		if position > r.left {
			if i := bytes.LastIndexByte(r.block[:position-r.left], '\n'); i >= 0 {
				return r.left + int64(i), nil
			}
			position = r.left
		}
		if position == 0 {
			return -1, nil
		}
		r.left = max(0, position-tailBlock)
		r.block = r.block[:position-r.left]
		if n, err := r.content.ReadAt(r.block, r.left); n < len(r.block) {
			return 0, errors.Join(err, io.ErrUnexpectedEOF) // truncated meanwhile
		}
	}
}

// add adds the entry from start to its newline at end.
func (r *backwardReader) add(start, end int64) error {
	header := make([]byte, 0, maxHeader)
	length := min(end-start, maxHeader)
	if from := start - r.left; from >= 0 && from+length <= int64(len(r.block)) {
		header = r.block[from : from+length]
	} else {
		header = header[:length]
		if n, err := r.content.ReadAt(header, start); n < len(header) {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
	}
	if bytes.HasPrefix(header, []byte("{")) { // Docker's format: each entry counts as a line
		if r.tail.Add(entry.Stdout, false, end-start+1) {
			r.starts, r.first = entry.Starts{start, start}, start
		}
		return nil
	}
	if parsed, err := entry.Parse(header); err == nil && r.tail.Add(parsed.Stream, parsed.Partial, end-start+1) {
		r.starts[parsed.Stream], r.first = start, start
	}
	return nil
}

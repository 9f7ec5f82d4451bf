package history

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"
)

// segmentView is a consistent copy of what a reader needs of a segment.
type segmentView struct {
	first, next uint64 // sequence numbers of this and the next segment; next is 0 for the last one
	name        string
	sealed      bool
	foreign     bool
	size        int64
	times       *[2]int64
	blocks      []block // of a plain segment
	written     int64   // what follows is in tail
	tail        []byte
}

// views returns all segments, oldest first.
func (s *store) views() []segmentView {
	s.mu.Lock()
	defer s.mu.Unlock()
	views := make([]segmentView, 0, len(s.segments))
	for i, segment := range s.segments {
		view := segmentView{
			first: segment.first, name: segment.name(), sealed: segment.sealed, foreign: segment.foreign, size: segment.size,
			times: segment.times, written: segment.size,
		}
		if !segment.sealed {
			view.blocks = segment.index.snapshot()
		}
		if i+1 < len(s.segments) {
			view.next = s.segments[i+1].first
		} else {
			view.written, view.tail = s.written, bytes.Clone(s.unwritten)
		}
		views = append(views, view)
	}
	return views
}

// scan selects blocks and visits their lines.
type scan struct {
	// isBackward visits the newest lines first.
	isBackward bool
	// hasKey limits the blocks to those that have key.
	hasKey bool
	key    uint32
	// after and before limit the sequence numbers: after < seq < before. Zero is no limit.
	after, before uint64
	// since and until limit the times of blocks. Zero is no limit.
	since, until time.Time
	// visit returns false to end the scan. head and payload are valid until it returns.
	visit func(h head, payload []byte) bool

	reader *blockReader // set by store.read
}

// blockReader has the memory for reading blocks, one at a time.
type blockReader struct {
	content  []byte
	payloads [][]byte
	decompressor
}

// read visits the lines that match the scan, and possibly others of the same blocks. Damaged lines and blocks are skipped and
// counted. An error of the disk skips a segment; it is returned at the end.
func (s *store) read(ctx context.Context, q *scan) error {
	reader, _ := s.readers.Get().(*blockReader)
	if reader == nil {
		reader = &blockReader{}
	}
	defer s.readers.Put(reader)
	q.reader = reader
	views := s.views()
	if q.isBackward {
		slices.Reverse(views)
	}
	var errs []error
	for i := range views {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !q.wantsSegment(&views[i]) {
			continue
		}
		more, err := s.readSegmentView(ctx, q, &views[i])
		if errors.Is(err, fs.ErrNotExist) { // it was sealed or removed meanwhile
			if again, found := s.view(views[i].first); found && again.name != views[i].name {
				more, err = s.readSegmentView(ctx, q, &again)
			} else {
				more, err = true, nil
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !more {
			break
		}
	}
	return errors.Join(errs...)
}

func (s *store) view(first uint64) (segmentView, bool) {
	for _, view := range s.views() {
		if view.first == first {
			return view, true
		}
	}
	return segmentView{}, false
}

func (q *scan) wantsSegment(view *segmentView) bool {
	isOutside := view.next != 0 && view.next <= q.after+1 || q.before != 0 && view.first >= q.before
	return !view.foreign && !isOutside && (view.times == nil || q.wantsTimes(view.times[0], view.times[1]))
}

func (q *scan) wantsTimes(from, to int64) bool {
	return (q.since.IsZero() || to >= q.since.UnixMilli()) && (q.until.IsZero() || from <= q.until.UnixMilli())
}

func (q *scan) wantsBlock(b *block) bool {
	isOutside := b.firstSeq == 0 || b.lastSeq <= q.after || q.before != 0 && b.firstSeq >= q.before
	return !isOutside && q.wantsTimes(b.minTime, b.maxTime) && (!q.hasKey || b.hasKey(q.key))
}

func (s *store) readSegmentView(ctx context.Context, q *scan, view *segmentView) (more bool, err error) {
	var f file
	if view.written > 0 {
		if f, err = s.files.Open(view.name, false); err != nil {
			return true, err
		}
		defer f.Close()
	}
	blocks := view.blocks
	if view.sealed {
		index, err := s.index(view, f)
		if err != nil {
			return true, err
		}
		blocks = index.blocks
	}
	for i := range blocks {
		b := &blocks[i]
		if q.isBackward {
			b = &blocks[len(blocks)-1-i]
		}
		if !q.wantsBlock(b) {
			continue
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		lines, err := s.readBlock(q.reader, view, f, b)
		if err != nil {
			return true, err
		}
		if !s.visitLines(q, view, b, lines) {
			return false, nil
		}
	}
	return true, nil
}

// index returns the index of a sealed segment, from a small cache.
func (s *store) index(view *segmentView, f io.ReaderAt) (*sealedIndex, error) {
	s.mu.Lock()
	index, found := s.indexes[view.first]
	s.mu.Unlock()
	if found {
		return index, nil
	}
	index, err := readIndex(f, view.size)
	if err != nil {
		return nil, err
	}
	if index.rebuilt {
		s.countDamage(view.first, uint64(view.size), 1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, segment := range s.segments {
		if segment.first == view.first && segment.times == nil {
			segment.times = index.times()
		}
	}
	for first := range s.indexes { // any: the order of a map is random
		if len(s.indexes) < maxIndexes {
			break
		}
		delete(s.indexes, first)
	}
	s.indexes[view.first] = index
	return index, nil
}

// readBlock returns the lines of a block that precede a damage. They are valid until the next call with the same reader.
func (s *store) readBlock(reader *blockReader, view *segmentView, f io.ReaderAt, b *block) ([]byte, error) {
	if int64(cap(reader.content)) < b.length {
		reader.content = make([]byte, max(b.length, blockSize))
	}
	content := reader.content[:b.length]
	inFile := max(0, min(b.length, view.written-b.offset))
	if inFile > 0 {
		n, err := f.ReadAt(content[:inFile], b.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if int64(n) < inFile { // the file was truncated
			content = content[:n]
		}
	}
	if inFile < b.length && int64(len(content)) == b.length {
		copy(content[inFile:], view.tail[b.offset+inFile-view.written:])
	}
	if !view.sealed {
		return content, nil
	}
	lines, err := reader.decompress(content)
	if err != nil {
		s.countDamage(view.first, uint64(b.offset), 1)
		end := bytes.LastIndexByte(lines, '\n')
		return lines[:end+1], nil //nolint:nilerr // the damage is counted
	}
	return lines, nil
}

// visitLines visits the lines of a block. It returns false to end the scan.
func (s *store) visitLines(q *scan, view *segmentView, b *block, lines []byte) bool {
	payloads := q.reader.payloads[:0]
	bad := forEachLine(lines, func(payload, _ []byte) { payloads = append(payloads, payload) })
	q.reader.payloads = payloads
	if bad > 0 {
		s.countDamage(view.first, uint64(b.offset), bad)
	}
	if q.isBackward {
		slices.Reverse(payloads)
	}
	for _, payload := range payloads {
		h, ok := parseHead(payload)
		if !ok || h.seq <= q.after || q.before != 0 && h.seq >= q.before {
			continue
		}
		if !q.visit(h, payload) {
			return false
		}
	}
	return true
}

// countDamage counts damaged lines or blocks once, however often they are read.
func (s *store) countDamage(first, offset uint64, n int) {
	const maxCounted = 10_000
	s.mu.Lock()
	defer s.mu.Unlock()
	place := damage{first, offset}
	if s.damaged[place] || len(s.damaged) >= maxCounted {
		return
	}
	s.damaged[place] = true
	s.metrics.corrupt.Add(float64(n))
}

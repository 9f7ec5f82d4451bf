package history

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"
)

// limits bound the files.
type limits struct {
	maxDisk     int64
	maxAge      time.Duration
	segmentSize int64
	segmentAge  time.Duration
}

// store is the files of the history. One goroutine writes; another may seal; any number may read.
//
// Lines are appended to the active segment, the last one. If the disk fails, they wait in memory, up to the size of a segment.
type store struct {
	files   fileSystem
	limits  limits
	logger  *slog.Logger
	metrics *metrics

	readers sync.Pool // of *blockReader

	active activeFile // of the last segment; owned by the writing goroutine
	outage outage     // owned by the writing goroutine

	mu        sync.Mutex // guards all below; not held across I/O
	segments  []*segment // by sequence number; the last one is the active one
	written   int64      // how much of the active segment is in its file
	unwritten []byte     // the rest
	// hasRemoved is set if a power failure could restore a removed segment. No other one is removed before it is synced:
	// otherwise the older could come back without the newer.
	hasRemoved bool
	indexes    map[uint64]*sealedIndex // some of those that were read, by first sequence number
	damaged    map[damage]bool         // what was counted already
	problem    string                  // why the disk cannot be used; empty if it can
}

// activeFile is the file that lines are appended to.
type activeFile struct {
	file      file  // nil until the first write
	synced    int64 // how much of it survives a power failure
	unsynced  int64 // the number of records that would not
	isNew     bool  // a power failure may remove it from its directory
	startedAt time.Time
}

// outage is the state of a disk that fails.
type outage struct {
	backoff time.Duration // 0 if it does not
	retryAt time.Time
}

// damage is a place in a segment.
type damage struct{ first, offset uint64 }

const (
	minBackoff = time.Second
	maxBackoff = time.Minute
	// maxIndexes bounds the cached indexes, each of up to 100 KiB.
	maxIndexes = 8
)

// lastLocked returns the active segment. There is always one after begin.
func (s *store) lastLocked() *segment { return s.segments[len(s.segments)-1] }

// begin starts a new active segment, in memory until the next flush. lines is its header.
func (s *store) begin(first uint64, lines []byte, now time.Time) {
	if s.active.file != nil {
		_ = s.active.file.Close() // its content was synced, or the error was counted
	}
	s.active = activeFile{startedAt: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	active := &segment{first: first, modTime: now}
	active.index.add(lineKeys{}, len(lines))
	active.size = int64(len(lines))
	if n := len(s.segments); n > 0 && s.segments[n-1].first == first { // it has no records; its file is written again
		s.segments = s.segments[:n-1]
	}
	s.segments = append(s.segments, active)
	s.written, s.unwritten = 0, append([]byte(nil), lines...)
}

// dropUnwritten gives up the lines of the active segment that could not be written, and returns the number of records.
func (s *store) dropUnwritten() (dropped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unwritten) == 0 || len(s.segments) == 0 {
		return 0
	}
	forEachLine(s.unwritten, func(payload, _ []byte) { dropped += recordCount(payload) })
	s.unwritten = nil
	s.truncateLocked()
	return dropped
}

// truncateLocked ends the active segment after what is in its file.
func (s *store) truncateLocked() {
	active := s.lastLocked()
	if s.active.file == nil { // it was never created
		s.segments = s.segments[:len(s.segments)-1]
		return
	}
	var index blockIndex
	active.lastSeq = 0
	for _, b := range active.index.snapshot() {
		if b.offset >= s.written {
			break
		}
		b.length = min(b.length, s.written-b.offset) // its keys and times may be of dropped lines too, which is harmless
		index.blocks = append(index.blocks, b)
		index.open.offset = b.offset + b.length
		active.lastSeq = b.lastSeq // or less
	}
	active.index, active.size = index, s.written
}

// recordCount returns the number of records that a dropped line stands for. One that says how many were dropped stands for
// those.
func recordCount(payload []byte) int64 {
	if isHeader(payload) {
		return 0
	}
	if h, ok := parseHead(payload); ok && h.kind == KindAgent {
		if record, err := decodeRecord(payload); err == nil && record.Agent != nil && record.Agent.Event == EventDropped {
			return record.Agent.Count
		}
	}
	return 1
}

// append adds lines to the active segment, in memory until the next flush.
func (s *store) append(batch *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	active := s.lastLocked()
	start := 0
	for _, line := range batch.index {
		active.index.add(lineKeys{seq: line.seq, time: line.time, keys: batch.keys[line.keysFrom:line.keysTo]}, line.end-start)
		start = line.end
		active.lastSeq = line.seq
	}
	active.size += int64(len(batch.lines))
	active.logBytes += batch.logBytes
	active.modTime = batch.now
	s.unwritten = append(s.unwritten, batch.lines...)
}

// flush writes what is in memory with one system call. After an error, it does nothing until it is time for another attempt.
func (s *store) flush(now time.Time) {
	if !now.Before(s.outage.retryAt) {
		s.flushNow(now)
	}
}

func (s *store) flushNow(now time.Time) {
	err := s.write()
	if errors.Is(err, syscall.ENOSPC) && s.freeSpace() {
		err = s.write()
	}
	if err != nil {
		s.fail("Failed to write history, keeping it in memory", err, now)
		return
	}
	if s.outage.backoff > 0 {
		s.logger.Info("History is written again")
		s.outage = outage{}
		s.setProblem("")
	}
}

// fail counts and logs an error of the disk, and delays the next attempt.
func (s *store) fail(message string, err error, now time.Time) {
	s.metrics.writeErrors.Inc()
	if s.outage.backoff == 0 { // once per outage
		//nolint:sloglint // one of two constants
		s.logger.Error(message, "err", err)
	}
	s.outage.backoff = min(max(2*s.outage.backoff, minBackoff), maxBackoff)
	s.outage.retryAt = now.Add(s.outage.backoff)
	s.setProblem(err.Error())
}

func (s *store) setProblem(problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = problem
}

func (s *store) write() error {
	s.mu.Lock()
	lines, offset, name := s.unwritten, s.written, s.lastLocked().name()
	s.mu.Unlock()
	if len(lines) == 0 {
		return nil
	}
	if s.active.file == nil {
		opened, err := s.files.Open(name, true)
		if err != nil {
			return err
		}
		if err := opened.Truncate(0); err != nil { // an earlier attempt may have left something
			return errors.Join(err, opened.Close())
		}
		s.active.file, s.active.isNew = opened, true
	}
	// A write that failed in the middle is repeated at the same place.
	if _, err := s.active.file.WriteAt(lines, offset); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active.unsynced += int64(bytes.Count(lines, []byte{'\n'}))
	s.written = offset + int64(len(lines))
	s.unwritten = s.unwritten[:0]
	if cap(s.unwritten) > 4*blockSize {
		s.unwritten = nil
	}
	return nil
}

// isDirty reports whether a power failure could undo something.
func (s *store) isDirty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written > s.active.synced || len(s.unwritten) > 0 || s.active.isNew
}

// sync makes everything that was flushed survive a power failure. After an error the kernel may have dropped what it could not
// write and report success at the next attempt: so the segment ends, and sealing it writes all of it again. The caller begins
// a new one if it returns false.
func (s *store) sync(now time.Time) bool {
	return now.Before(s.outage.retryAt) || s.syncNow(now)
}

func (s *store) syncNow(now time.Time) bool {
	if s.active.file == nil {
		return true
	}
	s.mu.Lock()
	written := s.written
	s.mu.Unlock()
	var err error
	if s.active.synced < written {
		err = s.active.file.Sync()
	}
	if err == nil && s.active.isNew {
		err = s.files.Sync()
	}
	s.metrics.syncs.Inc()
	if err != nil {
		s.fail("Failed to sync history", err, now)
		return false
	}
	s.active.synced, s.active.isNew, s.active.unsynced = written, false, 0
	return true
}

// shouldRotate reports whether the active segment is full or old.
func (s *store) shouldRotate(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	active := s.lastLocked()
	return active.size >= s.limits.segmentSize || now.Sub(s.active.startedAt) >= s.limits.segmentAge && active.lastSeq != 0
}

// diskBytes returns the size of all segments.
func (s *store) diskBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.diskBytesLocked()
}

func (s *store) diskBytesLocked() (total int64) {
	for _, segment := range s.segments {
		total += segment.size
	}
	return total
}

func (s *store) segmentCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.segments)
}

// logBytes returns the size of the log records. Those of a sealed segment are at most its size.
func (s *store) logBytes() (total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, segment := range s.segments {
		if segment.sealed {
			total += min(segment.logBytes, segment.size)
		} else {
			total += segment.logBytes
		}
	}
	return total
}

// retain removes the oldest segments until the disk has room for another segment, and those that are too old. The active one
// stays.
func (s *store) retain(now time.Time) {
	s.removeWhile(func(oldest *segment, total int64) bool {
		return total+s.limits.segmentSize > s.limits.maxDisk || now.Sub(oldest.modTime) > s.limits.maxAge
	})
}

// freeSpace removes the oldest segments down to half of the bound, and reports whether it removed any.
func (s *store) freeSpace() bool {
	return s.removeWhile(func(_ *segment, total int64) bool { return total > s.limits.maxDisk/2 })
}

func (s *store) removeWhile(shouldRemove func(oldest *segment, total int64) bool) (removed bool) {
	for {
		s.mu.Lock()
		if len(s.segments) < 2 || s.segments[0].isRenamed || !shouldRemove(s.segments[0], s.diskBytesLocked()) {
			s.mu.Unlock()
			return removed
		}
		oldest := s.segments[0]
		s.segments = slices.Clone(s.segments[1:])
		delete(s.indexes, oldest.first)
		s.mu.Unlock()
		if err := s.removeFiles(oldest); err != nil {
			s.logger.Error("Failed to remove old history", "segment", segmentName(oldest.first), "err", err)
			s.metrics.writeErrors.Inc()
			s.mu.Lock() // the next attempt removes it: without it, a later one would leave a hole
			s.segments = append([]*segment{oldest}, s.segments...)
			s.mu.Unlock()
			return removed
		}
		removed = true
	}
}

// removeFiles removes the files of a segment. A plain one may have been sealed already, and a plain file may be left of a
// sealed one.
func (s *store) removeFiles(removed *segment) error {
	if s.hasRemoved {
		if err := s.files.Sync(); err != nil {
			return err
		}
		s.hasRemoved = false
	}
	name := segmentName(removed.first)
	for _, suffix := range []string{plainSuffix, sealedSuffix} {
		if err := s.files.Remove(name + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.hasRemoved = true
	return nil
}

// sealNext compresses the oldest plain segment except the active one. It returns false if there is none.
func (s *store) sealNext() (bool, error) {
	s.mu.Lock()
	var next *segment
	for _, segment := range s.segments[:len(s.segments)-1] {
		if !segment.sealed && !segment.foreign {
			next = segment
			break
		}
	}
	if next == nil {
		s.mu.Unlock()
		return false, nil
	}
	blocks, plainName, logBytes := next.index.snapshot(), next.name(), next.logBytes
	s.mu.Unlock()

	sealedName := segmentName(next.first) + sealedSuffix
	size, index, err := s.sealFile(plainName, sealedName, blocks, logBytes)
	if err == nil {
		err = s.replace(next, sealedName, size, index)
	}
	if err != nil {
		s.metrics.writeErrors.Inc()
		_ = s.files.Remove(sealedName + tempSuffix) // the next attempt or start removes it
		return false, fmt.Errorf("seal history segment %s: %w", plainName, err)
	}
	return true, nil
}

// sealFile writes the sealed segment to a temporary file.
func (s *store) sealFile(plainName, sealedName string, blocks []block, logBytes int64) (int64, *sealedIndex, error) {
	plain, err := s.files.Open(plainName, false)
	if err != nil {
		return 0, nil, err
	}
	defer plain.Close()
	return seal(s.files, plain, blocks, sealedName+tempSuffix, logBytes)
}

// replace puts the sealed file in the place of the plain one.
func (s *store) replace(plain *segment, sealedName string, size int64, index *sealedIndex) error {
	s.mu.Lock()
	if !slices.Contains(s.segments, plain) { // retention removed it meanwhile
		s.mu.Unlock()
		return s.files.Remove(sealedName + tempSuffix)
	}
	plain.isRenamed = true
	plainName := plain.name()
	s.mu.Unlock()
	err := s.files.Rename(sealedName+tempSuffix, sealedName)
	if err == nil {
		err = s.files.Sync()
	}
	s.mu.Lock()
	if err == nil {
		plain.sealed, plain.size, plain.index, plain.times = true, size, blockIndex{}, index.times()
	}
	plain.isRenamed = false
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.files.Remove(plainName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.logger.Error("Failed to remove sealed history segment", "file", plainName, "err", err) // retention removes it
		s.metrics.writeErrors.Inc()
	}
	return nil
}

// times returns the range of times of the blocks.
func (x *sealedIndex) times() *[2]int64 {
	var times *[2]int64
	for _, b := range x.blocks {
		switch {
		case b.firstSeq == 0: // only a header
		case times == nil:
			times = &[2]int64{b.minTime, b.maxTime}
		default:
			times[0], times[1] = min(times[0], b.minTime), max(times[1], b.maxTime)
		}
	}
	return times
}

// close syncs and closes the files.
func (s *store) close(now time.Time) error {
	s.flushNow(now)
	s.sync(now)
	var err error
	if s.active.file != nil {
		err = s.active.file.Close()
	}
	return errors.Join(err, s.files.Close())
}

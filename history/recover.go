package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
)

// recovered is what an earlier process left.
type recovered struct {
	lastSeq uint64
	pods    map[string]headerPod // by UID
	node    headerPod            // Seq is 0 if there is no record of the node
	bootID  string               // of the last run
	isClean bool                 // the last record says that the agent stopped properly, or there is none
	torn    int64                // bytes at the end of the last segment that were not completely written
	corrupt int64                // damaged lines and files
	// unsynced is the number of records that could not be synced now.
	unsynced int64
	// canContinue is set if the last segment is open as the active one.
	canContinue bool
}

// newerFormatGap is how far the sequence goes on after a segment of a newer format, whose records cannot be counted.
const newerFormatGap = 1 << 20

// openStore opens the segments that exist. Damaged ones are no error: what can be read is kept.
func openStore(files fileSystem, l limits, logger *slog.Logger, m *metrics) (*store, recovered, error) {
	s := &store{files: files, limits: l, logger: logger, metrics: m, indexes: map[uint64]*sealedIndex{}, damaged: map[damage]bool{}}
	r := recovered{pods: map[string]headerPod{}, isClean: true}
	if err := s.list(&r); err != nil {
		return nil, recovered{}, err
	}
	if len(s.segments) > 0 {
		r.isClean = false
		s.replay(&r)
		s.resume(&r)
		s.syncOthers(&r)
	}
	m.corrupt.Add(float64(r.corrupt))
	return s, r, nil
}

// list fills the segments and removes what a crash left.
func (s *store) list(r *recovered) error {
	infos, err := s.files.List()
	if err != nil {
		return err
	}
	sealed := map[uint64]bool{}
	var corrupt []string
	for _, info := range infos {
		if strings.HasSuffix(info.name, tempSuffix) {
			_ = s.files.Remove(info.name)
		}
		if strings.HasSuffix(info.name, corruptSuffix) {
			corrupt = append(corrupt, info.name)
		}
		if first, isSealed, ok := parseName(info.name); ok && isSealed {
			sealed[first] = s.addSealed(first, info)
		}
	}
	for _, info := range infos {
		first, isSealed, ok := parseName(info.name)
		if !ok || isSealed {
			continue
		}
		if isComplete, found := sealed[first]; isComplete { // the crash was between sealing and removing
			_ = s.files.Remove(info.name)
			continue
		} else if found {
			s.segments = slices.DeleteFunc(s.segments, func(other *segment) bool { return other.first == first })
			_ = s.files.Remove(segmentName(first) + sealedSuffix)
		}
		s.addPlain(first, info, r)
	}
	for _, name := range corrupt[:max(0, len(corrupt)-1)] {
		_ = s.files.Remove(name)
	}
	slices.SortFunc(s.segments, func(a, b *segment) int {
		switch {
		case a.first < b.first:
			return -1
		case a.first > b.first:
			return 1
		default:
			return 0
		}
	})
	return nil
}

// addSealed adds a sealed segment and reports whether it has its trailer.
func (s *store) addSealed(first uint64, info fileInfo) (isComplete bool) {
	added := &segment{first: first, sealed: true, size: info.size, modTime: info.modTime}
	s.segments = append(s.segments, added)
	f, err := s.files.Open(info.name, false)
	if err != nil {
		return false
	}
	defer f.Close()
	t, err := readTrailer(f, info.size)
	added.logBytes, added.foreign = t.logBytes, t.format > formatVersion
	return err == nil
}

// addPlain reads a plain segment and indexes it.
func (s *store) addPlain(first uint64, info fileInfo, r *recovered) {
	content, err := s.readFile(info.name, info.size)
	if err != nil { // left alone: its sequence numbers are used
		s.logger.Error("Failed to read history segment", "file", info.name, "err", err)
		s.segments = append(s.segments, &segment{first: first, foreign: true, size: info.size, modTime: info.modTime})
		return
	}
	plain := scanPlain(content)
	if plain.good == 0 {
		s.setAside(info.name, len(content) > 0, r)
		return
	}
	r.corrupt += plain.bad
	s.segments = append(s.segments, &segment{
		first: first, foreign: plain.header.Format > formatVersion, size: plain.good, modTime: info.modTime,
		index: plain.index, lastSeq: plain.lastSeq, logBytes: plain.logBytes,
	})
}

// setAside renames a file without a valid line, which is not ours, and removes an empty one.
func (s *store) setAside(name string, hasContent bool, r *recovered) {
	if !hasContent {
		_ = s.files.Remove(name)
		return
	}
	r.corrupt++
	if err := s.files.Rename(name, name+corruptSuffix); err != nil {
		s.logger.Error("Failed to set damaged history segment aside", "file", name, "err", err)
	}
}

func (s *store) readFile(name string, size int64) ([]byte, error) {
	f, err := s.files.Open(name, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, size)
}

// plainScan is the result of scanning a plain segment.
type plainScan struct {
	header   header // zero if it is damaged
	index    blockIndex
	good     int64 // the end of the last valid line
	bad      int64 // damaged lines before it
	lastSeq  uint64
	logBytes int64
}

func scanPlain(content []byte) plainScan {
	var scan plainScan
	pods := podNames{}
	var offset, bad, badBytes int64
	for rest := content; len(rest) > 0; {
		line, after, found := bytes.Cut(rest, []byte{'\n'})
		rest = after
		length := int64(len(line))
		if found {
			length++
		}
		offset += length
		payload, ok := parseLine(line)
		if !ok || !found {
			bad, badBytes = bad+1, badBytes+length
			continue
		}
		if badBytes > 0 {
			scan.index.add(lineKeys{}, int(badBytes))
			scan.bad += bad
			bad, badBytes = 0, 0
		}
		if isHeader(payload) && scan.header.Kind == "" {
			_ = json.Unmarshal(payload, &scan.header) // the checksum was right
		}
		keys := pods.scan(payload)
		scan.index.add(keys, int(length))
		if keys.seq != 0 {
			scan.lastSeq = keys.seq
		}
		if h, ok := parseHead(payload); ok && h.kind == KindLog {
			scan.logBytes += length
		}
		scan.good = offset
	}
	return scan
}

// replay reads the newest segments to find the last record of each pod. One is enough, unless its header is damaged or it has
// no records.
func (s *store) replay(r *recovered) {
	const maxSegments = 3
	var contents [][]byte
	for i := len(s.segments) - 1; i >= 0 && len(contents) < maxSegments; i-- {
		newest := s.segments[i]
		if newest.foreign {
			r.lastSeq = max(r.lastSeq, newest.first+newerFormatGap)
			r.isClean = false
			continue
		}
		content := s.readSegment(newest)
		contents = append(contents, content)
		line, records, _ := bytes.Cut(content, []byte{'\n'})
		if payload, ok := parseLine(line); ok && isHeader(payload) && len(records) > 0 {
			break
		}
	}
	slices.Reverse(contents)
	for _, content := range contents {
		r.replay(content)
	}
}

// readSegment returns the lines of a segment that can be read.
func (s *store) readSegment(read *segment) []byte {
	if !read.sealed {
		content, err := s.readFile(read.name(), read.size)
		if err != nil {
			s.logger.Error("Failed to read history segment", "file", read.name(), "err", err)
		}
		return content
	}
	f, err := s.files.Open(read.name(), false)
	if err != nil {
		return nil
	}
	defer f.Close()
	index, err := readIndex(f, read.size)
	if err != nil {
		return nil
	}
	var content []byte
	for _, b := range index.blocks {
		member := make([]byte, b.length)
		if _, err := f.ReadAt(member, b.offset); err == nil {
			lines, _ := decompress(member)
			content = append(content, lines...)
		}
	}
	return content
}

// replay adds the records of a segment.
func (r *recovered) replay(content []byte) {
	last := map[string][]byte{}
	deleting := map[string]bool{}
	var node []byte
	forEachLine(content, func(payload, _ []byte) {
		if isHeader(payload) {
			var h header
			if json.Unmarshal(payload, &h) == nil {
				r.replayHeader(h)
				clear(last)
			}
			return
		}
		h, ok := parseHead(payload)
		if !ok {
			return
		}
		r.lastSeq, r.isClean = max(r.lastSeq, h.seq), false
		switch h.kind {
		case KindPod:
			last[string(h.uid)] = payload
			switch {
			case isRemoval(payload): // it may come back
				delete(deleting, string(h.uid))
				delete(r.pods, string(h.uid))
			case bytes.Contains(payload, []byte(`"field":"deletion"`)):
				deleting[string(h.uid)] = true
			}
		case KindNode:
			node = payload
		case KindAgent:
			r.isClean = bytes.Contains(payload, []byte(`"event":"stopped"`))
			if record, err := decodeRecord(payload); err == nil && record.Agent != nil && record.Agent.BootID != "" {
				r.bootID = record.Agent.BootID
			}
		}
	})
	for uid, payload := range last {
		if isRemoval(payload) {
			delete(r.pods, uid)
			continue
		}
		if record, err := decodeRecord(payload); err == nil {
			r.pods[uid] = headerPod{
				PodRef: record.PodRef, Seq: record.Seq, After: record.After, Deleting: deleting[uid] || r.pods[uid].Deleting,
			}
		}
	}
	if record, err := decodeRecord(node); node != nil && err == nil {
		r.node = headerPod{Seq: record.Seq, After: record.After}
	}
}

func isRemoval(payload []byte) bool { return bytes.Contains(payload, []byte(`"field":"removed"`)) }

func (r *recovered) replayHeader(h header) {
	r.lastSeq = max(r.lastSeq, h.First-min(h.First, 1))
	clear(r.pods)
	for _, pod := range h.Pods {
		r.pods[pod.UID] = pod
	}
	if h.Node != nil {
		r.node = *h.Node
	}
	r.bootID = cmp.Or(h.BootID, r.bootID)
}

// resume makes the last segment the active one, if it is plain, not full, and its torn tail can be cut off.
func (s *store) resume(r *recovered) {
	last := s.segments[len(s.segments)-1]
	if last.sealed || last.foreign {
		return
	}
	infos, err := s.files.List()
	if err != nil {
		return
	}
	for _, info := range infos {
		if info.name == last.name() {
			r.torn = info.size - last.size
		}
	}
	if last.size >= s.limits.segmentSize {
		return
	}
	f, err := s.files.Open(last.name(), true)
	if err != nil {
		return
	}
	if r.torn > 0 {
		err = f.Truncate(last.size)
	}
	if err != nil {
		_ = f.Close()
		return
	}
	s.active, s.written = activeFile{file: f, isNew: true, startedAt: last.modTime}, last.size
	r.canContinue = true
}

// syncOthers syncs the plain segments that are not continued. The earlier process may have been killed before it did, and the
// header of the next segment refers to their records.
func (s *store) syncOthers(r *recovered) {
	sync := func(other *segment) error {
		f, err := s.files.Open(other.name(), true)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	}
	var errs []error
	for _, other := range s.segments {
		if other.sealed || other.foreign || s.active.file != nil && other == s.segments[len(s.segments)-1] {
			continue
		}
		if err := sync(other); err != nil {
			errs = append(errs, err)
			r.unsynced += max(1, other.records())
		}
	}
	if err := s.files.Sync(); err != nil {
		errs = append(errs, err)
		r.unsynced = max(1, r.unsynced)
	}
	if err := errors.Join(errs...); err != nil {
		s.metrics.writeErrors.Inc()
		s.logger.Error("Failed to sync history", "err", err)
	}
}

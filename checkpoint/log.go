package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
)

// Log stores a value as a checkpoint followed by the changes since, so that a change costs one write of its own size and one
// fsync, however large the value is. T is both: a value, and a change of it. Like its Dir, it is safe for concurrent use.
//
// After an Append that returned nil, Load returns that change, whatever crashed since. A change whose Append was interrupted
// or failed is written completely or not at all; Load may return it.
type Log[T any] struct {
	dir     *Dir
	name    string
	version int
	state   logState // guarded by Dir.sem
}

// logState describes the file as this process has read or written it.
type logState struct {
	size    int64 // 0: the next Append writes the whole value
	base    int64 // the size without changes
	changes int   // number of changes
}

// minLogGrowth is the size that changes may always reach before they are merged into the value.
const minLogGrowth = 64 << 10

// NewLog returns a Log in the file of that name. The version, at least 1, identifies T's JSON format. A checkpoint that a Store has
// written is a log without changes. One of an earlier version can be loaded, too: the first Append replaces it.
func NewLog[T any](dir *Dir, name string, version int) (*Log[T], error) {
	if err := dir.checkSave(name, version, nil); err != nil {
		return nil, fmt.Errorf("checkpoint log %q: %w", name, err)
	}
	return &Log[T]{dir: dir, name: name, version: version}, nil
}

// Load returns the value and then its changes, oldest first. It returns fs.ErrNotExist if there is no file, and quarantines a
// file that is damaged anywhere but in an interrupted last write.
func (l *Log[T]) Load() ([]T, error) {
	defer l.dir.acquire()()
	l.state = logState{}
	data, err := l.dir.readLocked(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var payloads [][]byte
	var state logState
	var version int
	if err == nil {
		payloads, version, state, err = decodeLog(l.name, data)
	}
	if err == nil && version > l.version {
		err = fmt.Errorf("%w: %d, this program reads %d", ErrVersion, version, l.version)
	}
	values := make([]T, len(payloads))
	for i, payload := range payloads {
		if err == nil {
			if err = json.Unmarshal(payload, &values[i]); err != nil {
				err = fmt.Errorf("%w: decode payload as %T: %w", ErrCorrupt, values[i], err)
			}
		}
	}
	if isInvalidContent(err) {
		return nil, l.dir.quarantineLocked(l.name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("load checkpoint %s: %w", l.dir.filePath(l.name), err)
	}
	if version == l.version {
		l.state = state
	}
	return values, nil
}

// Append adds a change. It replaces the file by snapshot, which must include the change, if the changes have outgrown the
// value, if the file is not as the last call has left it, and if that call failed.
func (l *Log[T]) Append(change T, snapshot func() T) error {
	payload, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("save checkpoint %q: %w", l.name, err)
	}
	defer l.dir.acquire()()
	record := encodeRecord(l.state.changes+1, payload)
	if l.canAppendLocked(record) {
		err = l.appendLocked(record)
	} else {
		err = l.replaceLocked(snapshot())
	}
	if err != nil {
		l.state = logState{} // what is in the file is not known
		return fmt.Errorf("save checkpoint %s: %w", l.dir.filePath(l.name), err)
	}
	return nil
}

func (l *Log[T]) canAppendLocked(record []byte) bool {
	size := l.state.size + int64(len(record))
	if l.state.size == 0 || size-l.state.base > max(l.state.base, minLogGrowth) || size > int64(l.dir.maxSize) {
		return false
	}
	info, err := l.dir.files.Lstat(l.name)
	return err == nil && info.Mode().IsRegular() && info.Size() == l.state.size
}

func (l *Log[T]) appendLocked(record []byte) error {
	file, err := l.dir.files.OpenFile(l.name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(record)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	l.state.size += int64(len(record))
	l.state.changes++
	return l.dir.syncLocked()
}

func (l *Log[T]) replaceLocked(value T) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := l.dir.checkSave(l.name, l.version, payload); err != nil {
		return err
	}
	header := encodeHeader(l.name, l.version, payload)
	if err := l.dir.saveLocked(l.name, header, payload); err != nil {
		return err
	}
	size := int64(len(header) + len(payload))
	l.state = logState{size: size, base: size}
	return nil
}

// recordHeader is the line before each change. The number lets a reader notice a change that is missing.
type recordHeader struct {
	Change int    `json:"change"`
	Length int    `json:"length"`
	Sum    string `json:"crc32c"`
}

// recordMagic starts a change. JSON contains no newlines, so that nothing else does.
const recordMagic = "\n{\"change\":"

// encodeRecord returns a change as it is written to the file: on lines of its own.
func encodeRecord(number int, payload []byte) []byte {
	h := recordHeader{Change: number, Length: len(payload)}
	table := crc32.MakeTable(crc32.Castagnoli)
	h.Sum = fmt.Sprintf("%08x", crc32.Update(crc32.Checksum(h.line(), table), table, payload))
	return bytes.Join([][]byte{h.line(), payload}, nil)
}

// line starts a line of its own: neither the value nor a change ends with a newline.
func (h recordHeader) line() []byte {
	line, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("checkpoint: marshal header of strings and numbers: %v", err))
	}
	return bytes.Join([][]byte{{'\n'}, line, {'\n'}}, nil)
}

// decodeLog splits a file into the value and its changes. It drops a torn last change; the state's size is 0 then.
func decodeLog(name string, data []byte) (payloads [][]byte, version int, state logState, err error) {
	end := baseSize(data)
	payload, version, err := decode(name, data[:end])
	if err != nil {
		return nil, 0, state, err
	}
	payloads = append(payloads, payload)
	state = logState{size: int64(len(data)), base: int64(end)}
	for offset := end; offset < len(data); state.changes++ {
		payload, size, ok := decodeRecord(data[offset:], state.changes+1)
		if !ok {
			if !isTorn(data, offset) {
				return nil, 0, logState{}, fmt.Errorf("%w: change %d is damaged", ErrCorrupt, state.changes+1)
			}
			return payloads, version, logState{}, nil
		}
		payloads = append(payloads, payload)
		offset += size
	}
	return payloads, version, state, nil
}

// baseSize returns the size of the header and the value. If the header cannot be read, it returns the size of everything, so
// that decode reports what is wrong.
func baseSize(data []byte) int {
	end := bytes.IndexByte(data[:min(len(data), maxHeader)], '\n') + 1
	var h header
	if end == 0 || json.Unmarshal(data[:end], &h) != nil || h.Length < 0 || h.Length > len(data)-end {
		return len(data)
	}
	return end + h.Length
}

// decodeRecord returns the change at the start of data and its size.
func decodeRecord(data []byte, number int) (payload []byte, size int, ok bool) {
	if len(data) == 0 || data[0] != '\n' {
		return nil, 0, false
	}
	length := bytes.IndexByte(data[1:min(len(data), maxHeader)], '\n')
	if length < 0 {
		return nil, 0, false
	}
	start := length + 2
	var h recordHeader
	if json.Unmarshal(data[1:start], &h) != nil || h.Length < 0 || h.Length > len(data)-start {
		return nil, 0, false
	}
	payload = data[start : start+h.Length]
	return payload, start + h.Length, bytes.Equal(encodeRecord(number, payload), data[:start+h.Length])
}

// sectorSize is the least that a disk writes at once.
const sectorSize = 512

// isTorn reports whether the data from offset on can be a single write that a crash has interrupted: no other change follows,
// and it is shorter than its header says or has a sector that was never written. Anything else is damage: the write was
// completed, and perhaps acknowledged.
func isTorn(data []byte, offset int) bool {
	tail := data[offset:]
	if bytes.Contains(tail[1:], []byte(recordMagic)) {
		return false
	}
	end := bytes.IndexByte(tail[1:], '\n') + 2
	if end == 1 {
		return len(tail) < maxHeader || hasEmptySector(data, offset) // not even the header is complete
	}
	var h recordHeader
	if json.Unmarshal(tail[1:end], &h) == nil && h.Length > len(tail)-end {
		return true
	}
	return hasEmptySector(data, offset)
}

func hasEmptySector(data []byte, offset int) bool {
	for start := offset; start < len(data); {
		end := min(len(data), (start/sectorSize+1)*sectorSize)
		if len(bytes.Trim(data[start:end], "\x00")) == 0 {
			return true
		}
		start = end
	}
	return false
}

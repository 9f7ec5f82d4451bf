package history

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// OpenOn opens a history on a disk of a test.
func OpenOn(config Config, disk *Disk) (*Log, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return open(config, disk)
}

// Start, Step, Stop and SealAll do in the caller's goroutine what Run does.
func (l *Log) Start(now time.Time)      { l.writer.start(now) }
func (l *Log) Step(now time.Time)       { l.writer.step(now) }
func (l *Log) Stop(now time.Time) error { return l.writer.stop(now) }

// Bytes returns the size of all files.
func (l *Log) Bytes() int64 { return l.store.diskBytes() }

// SealAll seals all segments that are full.
func (l *Log) SealAll() error {
	for {
		if sealed, err := l.store.sealNext(); err != nil || !sealed {
			return err
		}
	}
}

// All returns all records, oldest first.
func (l *Log) All() ([]Record, error) {
	var records []Record
	err := l.store.read(context.Background(), &scan{visit: func(_ head, payload []byte) bool {
		record, err := decodeRecord(payload)
		if err == nil {
			records = append(records, record)
		}
		return true
	}})
	return records, err
}

// Blocks returns the ranges of sequence numbers that are compressed together, and those of single lines in plain segments.
func (l *Log) Blocks() (ranges [][2]uint64) {
	for _, view := range l.store.views() {
		blocks := view.blocks
		if view.sealed {
			f, _ := l.store.files.Open(view.name, false)
			index, _ := readIndex(f, view.size)
			for _, b := range index.blocks {
				ranges = append(ranges, [2]uint64{b.firstSeq, b.lastSeq})
			}
			continue
		}
		for _, b := range blocks {
			for seq := b.firstSeq; seq != 0 && seq <= b.lastSeq; seq++ {
				ranges = append(ranges, [2]uint64{seq, seq})
			}
		}
	}
	return ranges
}

// Encode and Decode encode and decode the JSON of a record.
func Encode(record *Record) []byte                  { return appendJSON(nil, record) }
func Decode(payload []byte) (Record, error)         { return decodeRecord(payload) }
func AppendLine(line []byte, record *Record) []byte { return appendLine(line, record) }

// HeadSeq returns the sequence number as the fast parser reads it.
func HeadSeq(payload []byte) uint64 {
	h, _ := parseHead(payload)
	return h.seq
}

// LastLines is lastLines.
func LastLines(text string, lines, bytes int) string { return lastLines(text, lines, bytes) }

// Disk is a disk that can fail and lose what was not synced.
type Disk struct {
	// Fail returns the error of an operation: list, open, read, write, truncate, sync, rename, remove, sync dir. A write that fails
	// has written half of its data. Nil: nothing fails.
	Fail func(op string) error
	// Syncs counts the syncs of files and directories.
	Syncs int

	mu      sync.Mutex
	entries map[string]*diskFile
	durable map[string]*diskFile // the entries that survive a power failure
}

type diskFile struct {
	disk         *Disk
	data, synced []byte
	modTime      time.Time
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return &Disk{entries: map[string]*diskFile{}, durable: map[string]*diskFile{}} }

// PowerFailure removes what was not synced. choose(n) returns a number below n: how much of it survives all the same.
func (d *Disk) PowerFailure(choose func(n int) int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := map[string]bool{}
	for name := range d.entries {
		names[name] = true
	}
	for name := range d.durable {
		names[name] = true
	}
	survivors := map[string]*diskFile{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		survivor := d.durable[name]
		if d.entries[name] != survivor && choose(2) == 0 {
			survivor = d.entries[name]
		}
		if survivor == nil {
			continue
		}
		lost := max(0, len(survivor.data)-len(survivor.synced))
		content := bytes.Clone(survivor.synced)
		if len(survivor.synced) <= len(survivor.data) && bytes.HasPrefix(survivor.data, survivor.synced) {
			kept := choose(lost + 1)
			content = append(content, survivor.data[len(content):len(content)+kept]...)
			if choose(4) == 0 {
				content = append(content, make([]byte, choose(5000))...) // blocks that were allocated and never written
			}
		}
		survivors[name] = &diskFile{disk: d, data: content, synced: bytes.Clone(content), modTime: survivor.modTime}
	}
	d.entries, d.durable = survivors, maps.Clone(survivors)
}

// Clone returns a copy of the disk.
func (d *Disk) Clone() *Disk {
	clone := NewDisk()
	for name, f := range d.entries {
		clone.entries[name] = &diskFile{disk: clone, data: bytes.Clone(f.data), synced: bytes.Clone(f.data), modTime: f.modTime}
	}
	clone.durable = maps.Clone(clone.entries)
	return clone
}

// Size returns the size of all files.
func (d *Disk) Size() (total int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.entries {
		total += len(f.data)
	}
	return total
}

// Names returns the names of the files that end with the suffix.
func (d *Disk) Names(suffix string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for name := range d.entries {
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Content returns the content of a file, which may be modified.
func (d *Disk) Content(name string) []byte { return d.entries[name].data }

// SetContent replaces the content of a file.
func (d *Disk) SetContent(name string, content []byte) {
	d.entries[name] = &diskFile{disk: d, data: content, synced: content, modTime: time.Now()}
	d.durable[name] = d.entries[name]
}

func (d *Disk) check(op string) error {
	if d.Fail == nil {
		return nil
	}
	return d.Fail(op)
}

// List implements fileSystem.
func (d *Disk) List() ([]fileInfo, error) {
	if err := d.check("list"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var infos []fileInfo
	for _, name := range slices.Sorted(maps.Keys(d.entries)) {
		infos = append(infos, fileInfo{name: name, size: int64(len(d.entries[name].data)), modTime: d.entries[name].modTime})
	}
	return infos, nil
}

// Open implements fileSystem.
func (d *Disk) Open(name string, write bool) (file, error) {
	if err := d.check("open"); err != nil && write {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f, found := d.entries[name]
	if !found && !write {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if !found {
		f = &diskFile{disk: d, modTime: time.Now()}
		d.entries[name] = f
	}
	return f, nil
}

// Rename implements fileSystem.
func (d *Disk) Rename(from, to string) error {
	if err := d.check("rename"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[to] = d.entries[from]
	delete(d.entries, from)
	return nil
}

// Remove implements fileSystem.
func (d *Disk) Remove(name string) error {
	if err := d.check("remove"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, found := d.entries[name]; !found {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(d.entries, name)
	return nil
}

// Sync implements fileSystem.
func (d *Disk) Sync() error {
	if err := d.check("sync dir"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Syncs++
	d.durable = maps.Clone(d.entries)
	return nil
}

// Close implements fileSystem.
func (*Disk) Close() error { return nil }

// ReadAt implements file.
func (f *diskFile) ReadAt(buffer []byte, offset int64) (int, error) {
	if err := f.disk.check("read"); err != nil {
		return 0, err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if offset >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(buffer, f.data[offset:])
	if n < len(buffer) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements file.
func (f *diskFile) WriteAt(data []byte, offset int64) (int, error) {
	err := f.disk.check("write")
	if err != nil {
		data = data[:len(data)/2]
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if missing := int(offset) + len(data) - len(f.data); missing > 0 {
		f.data = append(f.data, make([]byte, missing)...)
	}
	f.modTime = time.Now()
	return copy(f.data[offset:], data), err
}

// Truncate implements file.
func (f *diskFile) Truncate(size int64) error {
	if err := f.disk.check("truncate"); err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.data = f.data[:size]
	return nil
}

// Sync implements file.
func (f *diskFile) Sync() error {
	if err := f.disk.check("sync"); err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.Syncs++
	f.synced = bytes.Clone(f.data)
	return nil
}

// Close implements file.
func (*diskFile) Close() error { return nil }

// Checked returns a line with the payload and its checksum.
func Checked(payload []byte) []byte {
	return appendChecked(nil, func(line []byte) []byte { return append(line, payload...) })
}

package checkpoint

import "io/fs"

// Step is one use of the disk, as Trace sees it before it happens.
type Step struct {
	Op   string // lstat, open, create, read, write, sync, close, rename, remove, sync folder
	Name string
}

// OpenTraced is Open on a disk that calls trace before each step and fails the step with what it returns. A write that
// fails has written half.
func OpenTraced(path string, options Options, trace func(Step) error) (*Dir, error) {
	return open(path, options, func(f folder) disk { return tracedDisk{disk: f, trace: trace} })
}

// Encode is a whole file as Save writes it.
func Encode(name string, version int, payload []byte) []byte {
	return append(encode(name, version, payload), payload...)
}

// Decode is what Load makes of a whole file.
func Decode(name string, data []byte) (payload []byte, version int, err error) {
	return decode(name, data)
}

type tracedDisk struct {
	disk  disk
	trace func(Step) error
}

func (d tracedDisk) Lstat(name string) (fs.FileInfo, error) {
	if err := d.trace(Step{"lstat", name}); err != nil {
		return nil, err
	}
	return d.disk.Lstat(name)
}

func (d tracedDisk) OpenFile(name string, flag int, mode fs.FileMode) (file, error) {
	op := "open"
	if flag != 0 {
		op = "create"
	}
	if err := d.trace(Step{op, name}); err != nil {
		return nil, err
	}
	opened, err := d.disk.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return tracedFile{file: opened, name: name, trace: d.trace}, nil
}

func (d tracedDisk) Rename(from, to string) error {
	if err := d.trace(Step{"rename", from}); err != nil {
		return err
	}
	return d.disk.Rename(from, to)
}

func (d tracedDisk) Remove(name string) error {
	if err := d.trace(Step{"remove", name}); err != nil {
		return err
	}
	return d.disk.Remove(name)
}

func (d tracedDisk) Sync() error {
	if err := d.trace(Step{"sync folder", "."}); err != nil {
		return err
	}
	return d.disk.Sync()
}

type tracedFile struct {
	file
	name  string
	trace func(Step) error
}

func (f tracedFile) Read(into []byte) (int, error) {
	if err := f.trace(Step{"read", f.name}); err != nil {
		return 0, err
	}
	return f.file.Read(into)
}

func (f tracedFile) Write(data []byte) (int, error) {
	if err := f.trace(Step{"write", f.name}); err != nil {
		written, _ := f.file.Write(data[:len(data)/2])
		return written, err
	}
	return f.file.Write(data)
}

func (f tracedFile) Sync() error {
	if err := f.trace(Step{"sync", f.name}); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f tracedFile) Close() error {
	err := f.trace(Step{"close", f.name})
	if closing := f.file.Close(); err == nil {
		err = closing
	}
	return err
}

package checkpoint

import (
	"io/fs"
	"os"
)

// Step is a file operation.
type Step struct {
	Op   string // lstat, open, create, append, read, write, sync, close, rename, remove, sync dir
	Name string
}

// OpenTraced opens a directory that calls trace before each step. An error of trace fails the step; a failed write has written
// half of the data.
func OpenTraced(path string, options Options, trace func(Step) error) (*Dir, error) {
	return open(path, options, func(root directory) fileSystem { return tracedFileSystem{fileSystem: root, trace: trace} })
}

// Encode returns the content of a file as Save writes it.
func Encode(name string, version int, payload []byte) []byte {
	return append(encodeHeader(name, version, payload), payload...)
}

// Decode decodes the content of a file like Load.
func Decode(name string, data []byte) (payload []byte, version int, err error) {
	return decode(name, data)
}

type tracedFileSystem struct {
	fileSystem fileSystem
	trace      func(Step) error
}

func (s tracedFileSystem) Lstat(name string) (fs.FileInfo, error) {
	if err := s.trace(Step{"lstat", name}); err != nil {
		return nil, err
	}
	return s.fileSystem.Lstat(name)
}

func (s tracedFileSystem) OpenFile(name string, flag int, mode fs.FileMode) (file, error) {
	op := "open"
	switch {
	case flag&os.O_APPEND != 0:
		op = "append"
	case flag != 0:
		op = "create"
	}
	if err := s.trace(Step{op, name}); err != nil {
		return nil, err
	}
	opened, err := s.fileSystem.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return tracedFile{file: opened, name: name, trace: s.trace}, nil
}

func (s tracedFileSystem) Rename(from, to string) error {
	if err := s.trace(Step{"rename", from}); err != nil {
		return err
	}
	return s.fileSystem.Rename(from, to)
}

func (s tracedFileSystem) Remove(name string) error {
	if err := s.trace(Step{"remove", name}); err != nil {
		return err
	}
	return s.fileSystem.Remove(name)
}

func (s tracedFileSystem) Sync() error {
	if err := s.trace(Step{"sync dir", "."}); err != nil {
		return err
	}
	return s.fileSystem.Sync()
}

type tracedFile struct {
	file
	name  string
	trace func(Step) error
}

func (f tracedFile) Read(buffer []byte) (int, error) {
	if err := f.trace(Step{"read", f.name}); err != nil {
		return 0, err
	}
	return f.file.Read(buffer)
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
	if closeErr := f.file.Close(); err == nil {
		err = closeErr
	}
	return err
}

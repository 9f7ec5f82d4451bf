package containerlog

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/containerlog/entry"
	"github.com/heraldnode/herald/internal/nolinks"
)

const (
	compressedSuffix = ".gz"
	temporarySuffix  = ".tmp"
)

// segment is a file of a log: a rotated one, or the one that the runtime writes to.
type segment struct {
	file *os.File
	name string
	// position is where reading begins. It is not the beginning of what was asked for, see starts.
	position int64
	starts   entry.Starts
	// size is where reading ends, or negative for the end of the file.
	size int64
}

func (s *segment) isCompressed() bool { return strings.HasSuffix(s.name, compressedSuffix) }

// rotated returns the names of the rotated files of the log, oldest first. A file that is compressed right now is there under one of
// its names.
func (l *location) rotated() ([]string, error) {
	dir, err := nolinks.OpenAt(l.dir, ".", os.O_RDONLY|unix.O_DIRECTORY) // l.dir itself can be read once only
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, name := range names {
		if strings.HasPrefix(name, l.name+".") && !strings.HasSuffix(name, temporarySuffix) {
			files = append(files, name)
		}
	}
	slices.SortFunc(files, func(a, b string) int {
		return cmp.Compare(strings.TrimSuffix(a, compressedSuffix), strings.TrimSuffix(b, compressedSuffix))
	})
	return slices.CompactFunc(files, func(a, b string) bool {
		return strings.TrimSuffix(a, compressedSuffix) == strings.TrimSuffix(b, compressedSuffix)
	}), nil
}

// openRotated opens a rotated file, under its other name if it was compressed meanwhile.
func (l *location) openRotated(name string) (*segment, error) {
	for _, name := range []string{name, name + compressedSuffix} {
		file, err := l.open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &segment{file: file, name: name, size: -1}, nil
	}
	return nil, fs.ErrNotExist
}

// reader returns a reader of the segment from its position on.
func (s *segment) reader() (io.Reader, error) {
	if !s.isCompressed() {
		end := s.size
		if end < 0 {
			end = 1<<63 - 1
		}
		return io.NewSectionReader(s.file, s.position, end-s.position), nil
	}
	decompressed, err := gzip.NewReader(io.NewSectionReader(s.file, 0, 1<<63-1))
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, decompressed, s.position); err != nil {
		return nil, err
	}
	return decompressed, nil
}

// headSize is the size of an entry's beginning that has its time.
const headSize = 64

// head returns the beginning of the file.
func (s *segment) head() []byte {
	whole := segment{file: s.file, name: s.name, size: -1}
	reader, err := whole.reader()
	if err != nil {
		return nil
	}
	head := make([]byte, headSize)
	n, _ := io.ReadFull(reader, head)
	return head[:n]
}

// headTime returns the time of the first entry, or zero.
func headTime(head []byte) time.Time {
	first, err := entry.Parse(head)
	if err != nil {
		return time.Time{}
	}
	return first.Time.At()
}

// maxDecompressed is the size up to which the last lines are looked for in a compressed file.
const maxDecompressed = 32 << 20

// withContent calls use with the content of the segment.
func (l *Logs) withContent(ctx context.Context, s *segment, use func(content io.ReaderAt, size int64) error) error {
	if !s.isCompressed() {
		size := s.size
		if size < 0 {
			info, err := s.file.Stat()
			if err != nil {
				return err
			}
			size = info.Size()
		}
		return use(s.file, size)
	}
	select {
	case l.decompressing <- struct{}{}:
		defer func() { <-l.decompressing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	reader, err := s.reader()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(reader, maxDecompressed+1))
	if err == nil && len(content) > maxDecompressed {
		err = errors.New("rotated log is too large")
	}
	if err != nil {
		return err
	}
	return use(strings.NewReader(string(content)), int64(len(content)))
}

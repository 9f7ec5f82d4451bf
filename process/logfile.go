package process

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// longestLine is where containerd cuts a line of the log into parts.
const longestLine = 16 << 10

// logFile is a container's log in the CRI's format. It may be written to from any goroutine.
//
// It is reopened by level: when another file is found at its path, that one is written to. A path without file keeps the
// old one, so that between a rotation's rename and its ReopenContainerLog nothing is made that the CRI forbids.
type logFile struct {
	path string

	mu   sync.Mutex // guards all below, and keeps lines whole
	file *os.File
	// torn: only a part of the last line found room.
	torn bool
}

// openLog makes the folders above the log too. Without a path everything is dropped, as the CRI says.
func openLog(path string) (*logFile, error) {
	if path == "" {
		return &logFile{path: os.DevNull}, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := createLog(path)
	return &logFile{path: path, file: file}, err
}

func createLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
}

// copy writes what is read, until the end. A log that cannot be written loses lines, and never stops the container.
func (l *logFile) copy(stream runtimeapi.LogStreamType, from io.Reader) {
	lines := bufio.NewReaderSize(from, longestLine)
	for {
		line, err := lines.ReadSlice('\n')
		tag := runtimeapi.LogTagPartial
		if err == nil {
			tag, line = runtimeapi.LogTagFull, line[:len(line)-1]
		}
		if err == nil || len(line) > 0 {
			l.write(stream, tag, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *logFile) write(stream runtimeapi.LogStreamType, tag runtimeapi.LogTag, line []byte) {
	entry := make([]byte, 0, len(line)+64)
	entry = time.Now().AppendFormat(entry, time.RFC3339Nano)
	entry = append(entry, " "+string(stream)+" "+string(tag)+" "...)
	entry = append(append(entry, line...), '\n')

	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopenLocked()
	if l.file == nil {
		return
	}
	if l.torn {
		entry = append([]byte{'\n'}, entry...)
	}
	if written, _ := l.file.Write(entry); written > 0 { // see copy
		l.torn = entry[written-1] != '\n'
	}
}

func (l *logFile) reopenLocked() {
	if l.file == nil {
		return
	}
	at, err := os.Stat(l.path)
	if err != nil {
		return
	}
	if open, err := l.file.Stat(); err == nil && os.SameFile(at, open) {
		return
	}
	if file, err := createLog(l.path); err == nil {
		_ = l.file.Close()
		l.file, l.torn = file, false
	}
}

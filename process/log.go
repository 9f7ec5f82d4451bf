package process

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxLogLine is where containerd splits a line into parts.
const maxLogLine = 16 << 10

// logWriter writes a container's log in the CRI format. It is safe for concurrent use.
//
// It reopens the log whenever it finds another file at the path. If there is no file, it keeps the old one: between the
// rename of a rotation and ReopenContainerLog, the CRI does not allow a new file.
type logWriter struct {
	path string

	mu      sync.Mutex // guards all below, and keeps lines whole
	file    *os.File
	partial bool // the last entry was written only in part
}

// newLogWriter also creates the directories above the log. With an empty path all output is dropped, as the CRI says.
func newLogWriter(path string) (*logWriter, error) {
	if path == "" {
		return &logWriter{path: os.DevNull}, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := openLogFile(path)
	return &logWriter{path: path, file: file}, err
}

// openLogFile does not follow a link in the place of the log, and a pipe there does not block it.
func openLogFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o640)
}

// copy logs the stream until its end. If the log cannot be written, lines are lost, but the container is never blocked.
func (l *logWriter) copy(stream runtimeapi.LogStreamType, from io.Reader) {
	lines := bufio.NewReaderSize(from, maxLogLine)
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

func (l *logWriter) write(stream runtimeapi.LogStreamType, tag runtimeapi.LogTag, line []byte) {
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
	if l.partial {
		entry = append([]byte{'\n'}, entry...)
	}
	if written, _ := l.file.Write(entry); written > 0 { // see copy
		l.partial = entry[written-1] != '\n'
	}
}

func (l *logWriter) reopenLocked() {
	if l.file == nil {
		return
	}
	current, err := os.Stat(l.path)
	if err != nil {
		return
	}
	if open, err := l.file.Stat(); err == nil && os.SameFile(current, open) {
		return
	}
	if file, err := openLogFile(l.path); err == nil {
		_ = l.file.Close()
		l.file, l.partial = file, false
	}
}

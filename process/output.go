package process

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// drainTimeout limits the time to wait for remaining output. A pipe is still open by then only if it was passed to a process
// outside the container.
const drainTimeout = 10 * time.Second

// outputFiles are the pipes or the terminal that a command's output is read from. Once the command has exited, each read has its own
// deadline: a slow reader loses nothing, and a process outside the container cannot keep the output open.
type outputFiles struct {
	files  []*os.File
	exited atomic.Bool
}

// add returns a reader of the file. Call it before processExited.
func (o *outputFiles) add(file *os.File) io.Reader {
	o.files = append(o.files, file)
	return outputReader{file, &o.exited}
}

// processExited is called when the command and all its descendants have exited.
func (o *outputFiles) processExited() {
	o.exited.Store(true)
	for _, file := range o.files {
		_ = file.SetReadDeadline(time.Now().Add(drainTimeout)) // a file without deadlines is at its end soon
	}
}

type outputReader struct {
	file   *os.File
	exited *atomic.Bool
}

// Read implements io.Reader.
func (r outputReader) Read(data []byte) (int, error) {
	if r.exited.Load() {
		_ = r.file.SetReadDeadline(time.Now().Add(drainTimeout))
	}
	n, err := r.file.Read(data)
	if errors.Is(err, syscall.EIO) { // no process has the terminal open any more
		err = io.EOF
	}
	return n, err
}

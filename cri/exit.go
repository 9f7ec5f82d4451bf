package cri

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
)

// longestMessage is how much of a termination message file is shown.
const longestMessage = 4096

// exit is how the container ended, with what it left to say.
func (r *Runtime) exit(status *runtimeapi.ContainerStatus) *observed.Exit {
	ended := &observed.Exit{Code: int(status.ExitCode), Reason: status.Reason, Message: status.Message}
	if status.FinishedAt > 0 {
		ended.FinishedAt = time.Unix(0, status.FinishedAt)
	}
	if left := r.lastWords(status); left != "" {
		if ended.Message != "" {
			ended.Message += ": "
		}
		ended.Message += left
	}
	return ended
}

// lastWords are what the container wrote into its termination message file, or the end of its log when it wrote nothing,
// failed, and its policy allows that.
func (r *Runtime) lastWords(status *runtimeapi.ContainerStatus) string {
	notes := status.Annotations
	message := ""
	if inside := notes[noteMessagePath]; inside != "" {
		for _, mount := range status.Mounts {
			if mount.ContainerPath == absolute(inside) {
				message = readMessage(mount.HostPath)
			}
		}
	}
	fallback := notes[noteMessagePolicy] == string(v1.TerminationMessageFallbackToLogsOnError)
	if message != "" || !fallback || status.ExitCode == 0 || status.Reason == "ContainerCannotRun" {
		return message
	}
	end, err := r.logTail(status.LogPath)
	if err != nil {
		return "Error on reading termination message from logs: " + err.Error()
	}
	return end
}

// readMessage reads the end of the file: what is said last says most. The container owns its content, so nothing is
// trusted but its size.
func readMessage(file string) string {
	opened, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var content []byte
	if err == nil {
		defer opened.Close()
		content, err = readEnd(opened, longestMessage)
	}
	if err != nil {
		return "Error on reading termination log " + file + ": " + err.Error()
	}
	return string(content)
}

// readEnd reads at most size bytes from the end of a regular file, which was opened so that a pipe blocks nobody.
func readEnd(file *os.File, size int) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New(file.Name() + " is not a regular file")
	}
	if _, err := file.Seek(max(0, info.Size()-int64(size)), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, int64(size)))
}

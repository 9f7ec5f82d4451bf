package cri

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/internal/nolinks"
	"github.com/heraldnode/herald/observed"
)

// Limits of a termination message, as the kubelet applies them.
const (
	maxMessageSize     = 4096
	maxLogMessageLines = 80
	maxLogMessageSize  = 2048
	// logEntryOverhead is the size of the prefix of a log entry, maxLogEntry the maximum size of an entry.
	logEntryOverhead = len("2006-01-02T15:04:05.000000000+00:00 stdout F \n")
	maxLogEntry      = 16 << 10
)

// observedExit returns the exit of a container with its termination message, after the runtime's own message.
func (r *Runtime) observedExit(status *runtimeapi.ContainerStatus) *observed.Exit {
	exit := &observed.Exit{Code: int(status.ExitCode), Reason: status.Reason, Message: status.Message}
	if status.FinishedAt > 0 {
		exit.FinishedAt = time.Unix(0, status.FinishedAt)
	}
	if message := r.terminationMessage(status); message != "" {
		if exit.Message != "" {
			exit.Message += ": "
		}
		exit.Message += message
	}
	return exit
}

// terminationMessage returns the content of the container's termination message file. If it is empty, the container failed
// and its policy allows it, it returns the end of the log.
func (r *Runtime) terminationMessage(status *runtimeapi.ContainerStatus) string {
	annotations := status.Annotations
	message := r.fileMessage(status)
	fallback := annotations[criconfig.AnnotationTerminationMessagePolicy] == string(v1.TerminationMessageFallbackToLogsOnError)
	if message != "" || !fallback || status.ExitCode == 0 || status.Reason == "ContainerCannotRun" {
		return message
	}
	tail, err := r.readLogTail(status.LogPath, maxLogMessageLines, maxLogMessageSize)
	if err != nil {
		return "Error on reading termination message from logs: " + err.Error()
	}
	return tail
}

// fileMessage returns the content of the termination message file that createMessageFile created for the container. If the
// spec mounts something else at the path, nothing is read, unlike in the kubelet: it could be any file of the host, which the
// agent reads as root.
func (r *Runtime) fileMessage(status *runtimeapi.ContainerStatus) string {
	messagePath := status.Annotations[criconfig.AnnotationTerminationMessagePath]
	uid, _, ok := criconfig.Owner(status.Labels)
	if messagePath == "" || !ok {
		return ""
	}
	dir := r.messagesDir(uid, status.Labels[criconfig.LabelContainerName])
	for _, mount := range status.Mounts {
		if mount.ContainerPath == criconfig.AbsolutePath(messagePath) && filepath.Dir(mount.HostPath) == dir {
			return readMessageFile(mount.HostPath)
		}
	}
	return ""
}

// readMessageFile returns the end of a termination message file. The container controls the file: links are not followed,
// a pipe does not block, and the size is limited.
func readMessageFile(path string) string {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var content []byte
	if err == nil {
		defer file.Close()
		content, err = readEnd(file, maxMessageSize)
	}
	if err != nil {
		return "Error on reading termination log " + path + ": " + err.Error()
	}
	return string(content)
}

var errNotRegular = errors.New("not a regular file")

// readEnd reads at most size bytes from the end of a regular file. The caller opens it with O_NONBLOCK, so that a pipe does
// not block.
func readEnd(file *os.File, size int) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", file.Name(), errNotRegular)
	}
	if _, err := file.Seek(max(0, info.Size()-int64(size)), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, int64(size)))
}

// LogTail returns the last lines of the log of one instance of a container, as the container wrote them: at most this many lines
// and bytes. attempt is the restart count of the instance. Links are not followed.
func (r *Runtime) LogTail(pod *v1.Pod, container string, attempt, lines, bytes int) (string, error) {
	tail, err := r.readLogTail(r.LogPath(pod, container, attempt), lines, bytes)
	if err != nil {
		return "", fmt.Errorf("cri: read log of container %s of pod %s/%s: %w", container, pod.Namespace, pod.Name, err)
	}
	return tail, nil
}

// readLogTail returns the end of a container's log, as the container wrote it.
func (r *Runtime) readLogTail(path string, lines, bytes int) (string, error) {
	root, name, err := r.openLogRoot(path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	file, err := nolinks.Open(root, name, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := readEnd(file, bytes+lines*logEntryOverhead+maxLogEntry) // the first entry may be truncated
	if err != nil {
		return "", err
	}
	return logMessage(string(content), lines, bytes), nil
}

// logMessage returns the container's last lines from the end of a log in CRI format, limited in lines and bytes.
func logMessage(log string, maxLines, maxBytes int) string {
	var lines []string
	complete := true // the previous entry ended its line
	for entry := range strings.Lines(log) {
		text, endsLine, ok := parseLogEntry(entry)
		if !ok {
			continue // the first entry may be truncated
		}
		if complete {
			lines = append(lines, text)
		} else {
			lines[len(lines)-1] += text
		}
		complete = endsLine
	}
	text := strings.Join(lines[max(0, len(lines)-maxLines):], "")
	return text[max(0, len(text)-maxBytes):]
}

// parseLogEntry parses "<time> <stream> <F or P> <text>". P marks a partial line that the next entry continues.
func parseLogEntry(entry string) (text string, endsLine, ok bool) {
	fields := strings.SplitN(entry, " ", 4)
	if len(fields) != 4 || (fields[1] != "stdout" && fields[1] != "stderr") {
		return "", false, false
	}
	endsLine = !strings.HasPrefix(fields[2], "P")
	text = fields[3]
	if !endsLine {
		text = strings.TrimSuffix(text, "\n")
	}
	return text, endsLine, true
}

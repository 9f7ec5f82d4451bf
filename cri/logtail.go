package cri

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// How much of a log is shown as a termination message.
const (
	tailLines = 80
	tailBytes = 2048
	// longestTail holds that with what a runtime writes before each line, and an entry of 16 KiB that is cut off before it.
	longestTail = tailBytes + 80*len("2006-01-02T15:04:05.000000000+00:00 stdout F \n") + 16<<10
)

// logTail is the end of a container's log, as the container wrote it.
func (r *Runtime) logTail(path string) (string, error) {
	root, name, err := r.config.openLogs(path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	opened, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer opened.Close()
	content, err := readEnd(opened, longestTail)
	if err != nil {
		return "", err
	}
	return tail(string(content)), nil
}

// tail takes the container's own last lines out of the end of a log in the CRI's format, and of those the last bytes.
func tail(log string) string {
	var lines []string
	whole := true // the last entry ended its line
	for entry := range strings.Lines(log) {
		text, ends, ok := parseEntry(entry)
		if !ok {
			continue // cut off at the beginning
		}
		if whole {
			lines = append(lines, text)
		} else {
			lines[len(lines)-1] += text
		}
		whole = ends
	}
	text := strings.Join(lines[max(0, len(lines)-tailLines):], "")
	return text[max(0, len(text)-tailBytes):]
}

// parseEntry reads "<time> <stream> <F or P> <text>": P is a part of a line that goes on.
func parseEntry(entry string) (text string, ends, ok bool) {
	fields := strings.SplitN(entry, " ", 4)
	if len(fields) != 4 || (fields[1] != "stdout" && fields[1] != "stderr") {
		return "", false, false
	}
	ends = !strings.HasPrefix(fields[2], "P")
	text = fields[3]
	if !ends {
		text = strings.TrimSuffix(text, "\n")
	}
	return text, ends, true
}

package controlplane

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	tailBytes = 16 << 10
	tailLines = 30
)

// tail is the last lines of a file, or why there are none.
func tail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, tailBytes))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if surplus := len(lines) - tailLines; surplus > 0 {
		lines = append([]string{fmt.Sprintf("(last %d lines)", tailLines)}, lines[surplus:]...)
	}
	return strings.Join(lines, "\n")
}

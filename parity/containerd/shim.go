package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KillShim kills the shim of one sandbox, which is told by its command line: containerd then finds that its containers have
// ended, and not how.
func (c *Containerd) KillShim(sandbox string) error {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range commands {
		line, _ := os.ReadFile(file) // it may have ended
		if !isShim(string(line), sandbox, c.folder) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		return unix.Kill(pid, unix.SIGKILL)
	}
	return fmt.Errorf("containerd: no shim of sandbox %s", sandbox)
}

func isShim(command, sandbox, folder string) bool {
	return strings.Contains(command, "shim") && strings.Contains(command, sandbox) && strings.Contains(command, folder)
}

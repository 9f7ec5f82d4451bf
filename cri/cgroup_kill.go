package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killTimeout is how long the kernel may take to end what was killed.
const killTimeout = 2 * time.Second

// killLost ends every process that is still in the pod's cgroup. The runtime holds nothing of the pod any more: whoever is
// left belongs to a container that the runtime has lost, as happens when it dies between making one and noting it (F22).
// Nobody else would ever end it, and the cgroup could not be removed.
func killLost(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	for {
		pids, err := processesIn(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("killing process %d, which is left in cgroup %s: %w", pid, dir, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v in cgroup %s were killed and do not end: %w", pids, dir, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// processesIn are those in a cgroup and all below it; 0, which is a process of a namespace that this one cannot see, is
// left out.
func processesIn(dir string) (pids []int, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, word := range strings.Fields(string(content)) {
			if pid, _ := strconv.Atoi(word); pid > 0 {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

package containerd

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

//go:embed sweep.sh
var sweepScript string

// leash is a shell that waits on a pipe for the end of this process, or for its release, and then removes what belongs
// to a containerd's folder. The kernel closes the pipe however this process ends.
type leash struct {
	folder string
	shell  *exec.Cmd
	pipe   io.Closer
}

func startLeash(folder string) (*leash, error) {
	shell := exec.CommandContext(context.Background(), "/bin/sh", "-c", sweepScript, "herald-leash", folder)
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Whoever kills the test's whole process group must not kill what cleans up after it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	return &leash{folder: folder, shell: shell, pipe: pipe}, nil
}

// release lets the leash do its work now and reports what withstood.
func (l *leash) release() error {
	closed := l.pipe.Close()
	if err := l.shell.Wait(); err != nil {
		log, _ := os.ReadFile(filepath.Join(l.folder, "sweep.log"))
		return fmt.Errorf("containerd: removing %s: %w\n%s", l.folder, err, log)
	}
	return closed
}

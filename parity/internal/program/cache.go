package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// progressInterval is the time between two lines of progress.
const progressInterval = 10 * time.Second

// LockCacheDir creates the directory of this name in Herald's part of the user's cache and returns it. Other processes cannot lock
// it until unlock is called.
func LockCacheDir(ctx context.Context, name string, progress io.Writer) (dir string, unlock func(), err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, fmt.Errorf("find user cache directory: %w", err)
	}
	dir = filepath.Join(cache, "herald", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	unlock, err = lock(ctx, filepath.Join(dir, "lock"), progress)
	return dir, unlock, err
}

// lock waits for an exclusive lock on the file. The kernel releases the lock when the process ends.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waiting {
			fmt.Fprintf(progress, "waiting for another process that builds the same programs (lock: %s)\n", path)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		}
	}
}

// GoBuildConfig says what to build.
type GoBuildConfig struct {
	// Dir is a directory of the module that has the packages or requires them.
	Dir string
	// Output is a file, or an existing directory, in which programs are named after their packages.
	Output string
	// LDFlags are the arguments of the linker.
	LDFlags string
	// Env is added to the environment.
	Env      []string
	Packages []string
}

// GoBuild builds packages, reports progress every 10 s, and returns the number of packages that were compiled: none, if Output is
// up to date.
func GoBuild(ctx context.Context, config GoBuildConfig, progress io.Writer) (compiled int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append([]string{"build", "-v", "-o", config.Output, "-ldflags", config.LDFlags}, config.Packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = config.Dir
	cmd.Env = append(os.Environ(), config.Env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("go build: %w", err)
	}
	start := time.Now()
	compiled, messages := followBuild(stderr, func(packages int) {
		fmt.Fprintf(progress, "still building: %v, %d packages compiled\n", time.Since(start).Round(time.Second), packages)
	})
	if err := cmd.Wait(); err != nil {
		return compiled, fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), config.Dir, err, strings.Join(messages, "\n"))
	}
	return compiled, nil
}

// followBuild reads the output of `go build -v` until its end: one line without spaces per compiled package, and messages. It
// reports the number of packages at every interval.
func followBuild(output io.Reader, report func(packages int)) (packages int, messages []string) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case line, open := <-lines:
			switch {
			case !open:
				return packages, messages
			case strings.Contains(line, " "):
				messages = append(messages, line)
			default:
				packages++
			}
		case <-ticker.C:
			report(packages)
		}
	}
}

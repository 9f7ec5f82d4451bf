package cri

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/internal/nolinks"
)

// Rotated logs next to a log <n>.log:
//
//	<n>.log.<time>        the most recent one
//	<n>.log.<time>.gz     older ones
//	<n>.log.<time>.tmp    one that is being compressed
const (
	compressedSuffix = ".gz"
	temporarySuffix  = ".tmp"
)

// RotateLogs starts a new log for each running container whose log has reached ContainerLogMaxSize, and compresses and removes
// older ones. Call it every 10 seconds. Concurrent calls run one after the other. A log that cannot be rotated does not stop
// the rotation of others; the error joins all failures. Logs of exited containers no longer grow and are left alone.
func (r *Runtime) RotateLogs(ctx context.Context) error {
	if r.config.ContainerLogMaxSize < 0 {
		return nil
	}
	select {
	case r.rotation <- struct{}{}:
		defer func() { <-r.rotation }()
	case <-ctx.Done():
		return fmt.Errorf("cri: rotate logs: %w", ctx.Err())
	}
	containers, err := r.listContainers(ctx, "")
	if err != nil {
		return fmt.Errorf("cri: rotate logs: %w", err)
	}
	var errs []error
	for _, container := range containers {
		_, _, ok := criconfig.Owner(container.Labels)
		if !ok || container.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if err := r.rotateLogOf(ctx, container.Id); err != nil {
			errs = append(errs, fmt.Errorf("cri: rotate log of container %s: %w", container.Id, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (r *Runtime) rotateLogOf(ctx context.Context, id string) error {
	response, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if isNotFound(err) {
		return nil
	}
	log := response.GetStatus().GetLogPath()
	if err != nil || log == "" {
		return err
	}
	root, name, err := r.openLogRoot(log)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		// An earlier rotation was interrupted: the container still writes to the renamed log.
		return r.reopenLog(ctx, id, root, name)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return r.reopenLog(ctx, id, root, name) // planted: the container writes to a log without a name
	}
	if info.Size() < r.config.ContainerLogMaxSize {
		return nil
	}
	// Leave room for the new log and the one that is rotated now.
	if err := cleanRotatedLogs(ctx, root, name, r.config.ContainerLogMaxFiles-2); err != nil {
		return err
	}
	return r.rotateLog(ctx, id, root, name)
}

// reopenLog makes the runtime open the log again, and once more if something else was planted there meanwhile.
func (r *Runtime) reopenLog(ctx context.Context, id string, root *os.Root, log string) error {
	for range 2 {
		if err := r.removePlantedLog(root, log); err != nil {
			return err
		}
		_, err := r.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
		if isNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if info, err := root.Lstat(log); err == nil && isSingleFile(info) {
			return nil
		}
	}
	return fmt.Errorf("log %s was replaced while it was reopened", log)
}

// rotateLog renames the log and makes the runtime open a new one. The renamed log is compressed on the next rotation: the
// runtime may still write a line, and readers that follow it can read to its end.
func (r *Runtime) rotateLog(ctx context.Context, id string, root *os.Root, log string) error {
	// UTC: names sort by age across changes of daylight saving time.
	rotated := log + "." + time.Now().UTC().Format("20060102-150405")
	for _, name := range []string{rotated, rotated + compressedSuffix} {
		if _, err := root.Lstat(name); err == nil {
			return nil // second rotation within a second: left to the next call
		}
	}
	if err := root.Rename(log, rotated); err != nil {
		return err
	}
	err := r.reopenLog(ctx, id, root, log)
	if err == nil {
		return nil
	}
	// Unlike a rename, a link never replaces a log that the runtime opened although its response was lost.
	if linkErr := root.Link(rotated, log); linkErr != nil {
		if errors.Is(linkErr, fs.ErrExist) {
			return nil
		}
		return errors.Join(err, linkErr)
	}
	return errors.Join(err, root.Remove(rotated))
}

// rotatedLogs returns the rotated and temporary files of a log, oldest first.
func rotatedLogs(root *os.Root, log string) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), filepath.Dir(log))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var files []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), filepath.Base(log)+".") {
			files = append(files, filepath.Join(filepath.Dir(log), entry.Name()))
		}
	}
	return files, err
}

// cleanRotatedLogs keeps the newest rotated logs and compresses them.
func cleanRotatedLogs(ctx context.Context, root *os.Root, log string, keep int) error {
	files, err := rotatedLogs(root, log)
	if err != nil {
		return err
	}
	kept, removed := splitRotatedLogs(files, keep)
	for _, file := range removed {
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, file := range kept {
		if strings.HasSuffix(file, compressedSuffix) {
			continue
		}
		err := compressLog(ctx, root, file)
		if errors.Is(err, errNotRegular) || errors.Is(err, unix.ELOOP) { // planted; must not stop the rotation
			err = root.RemoveAll(file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// splitRotatedLogs decides which files stay. An interrupted compression leaves a temporary file, or the original next to its
// compressed copy; both are removed.
func splitRotatedLogs(files []string, keep int) (kept, removed []string) {
	for _, file := range files {
		if strings.HasSuffix(file, temporarySuffix) || slices.Contains(files, file+compressedSuffix) {
			removed = append(removed, file)
		} else {
			kept = append(kept, file)
		}
	}
	surplus := max(0, len(kept)-keep)
	return kept[surplus:], append(removed, kept[:surplus]...)
}

// compressLog replaces the file by a compressed copy. At any moment one of the two is complete.
func compressLog(ctx context.Context, root *os.Root, name string) error {
	source, err := nolinks.Open(root, name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", name, errNotRegular)
	}
	temporary := name + temporarySuffix
	target, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	writer := gzip.NewWriter(target)
	_, err = io.Copy(writer, cancellableReader{source, ctx.Err})
	if err == nil {
		err = writer.Close()
	}
	if err == nil {
		err = target.Sync() // the original is removed below
	}
	err = errors.Join(err, target.Close())
	if err == nil {
		err = root.Rename(temporary, name+compressedSuffix)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return root.Remove(name)
}

// cancellableReader reads until err returns an error.
type cancellableReader struct {
	reader io.Reader
	err    func() error
}

func (r cancellableReader) Read(buffer []byte) (int, error) {
	if err := r.err(); err != nil {
		return 0, err
	}
	return r.reader.Read(buffer)
}

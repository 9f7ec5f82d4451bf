package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RotateLogs begins a new log for each running container whose log has grown to ContainerLogMaxSize, and compresses and
// removes older ones. Call it every 10 seconds. A second call waits for the first. A log that cannot be rotated keeps no
// other from being rotated; the error names all of them. Logs of containers that have ended stay as they are: they grow
// no more.
func (r *Runtime) RotateLogs(ctx context.Context) error {
	if r.config.ContainerLogMaxSize < 0 {
		return nil
	}
	select {
	case r.rotating <- struct{}{}:
		defer func() { <-r.rotating }()
	case <-ctx.Done():
		return fmt.Errorf("cri: rotating logs: %w", ctx.Err())
	}
	containers, err := r.containersOf(ctx, "")
	if err != nil {
		return fmt.Errorf("cri: rotating logs: %w", err)
	}
	var failures []error
	for _, c := range containers {
		_, _, ours := owner(c.Labels)
		if !ours || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if err := r.rotateLogOf(ctx, c.Id); err != nil {
			failures = append(failures, fmt.Errorf("cri: rotating the log of container %s: %w", c.Id, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}

func (r *Runtime) rotateLogOf(ctx context.Context, id string) error {
	answer, err := r.pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if isGone(err) {
		return nil
	}
	log := answer.GetStatus().GetLogPath()
	if err != nil || log == "" {
		return err
	}
	root, name, err := r.config.openLogs(log)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		// A rotation was cut off: the container writes into what is an old log by its name.
		return r.reopenLog(ctx, id)
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() < r.config.ContainerLogMaxSize {
		return err
	}
	if err := tidyRotated(ctx, root, name, r.config.ContainerLogMaxFiles-2); err != nil { // the two newest are to come
		return err
	}
	return r.rotate(ctx, id, root, name)
}

func (r *Runtime) reopenLog(ctx context.Context, id string) error {
	_, err := r.pods.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	if isGone(err) {
		return nil
	}
	return err
}

// rotate gives the log an old one's name, and has the runtime begin a new one. It is not compressed before the next time:
// the runtime may still write a line, and who reads along can read to the end.
func (r *Runtime) rotate(ctx context.Context, id string, root *os.Root, log string) error {
	// UTC, for names that sort by age whatever the clocks do in spring and autumn.
	old := log + "." + time.Now().UTC().Format("20060102-150405")
	for _, taken := range []string{old, old + compressedEnd} {
		if _, err := root.Lstat(taken); err == nil {
			return nil // twice in one second: the next round will do
		}
	}
	if err := root.Rename(log, old); err != nil {
		return err
	}
	err := r.reopenLog(ctx, id)
	if err == nil {
		return nil
	}
	// Unlike a rename this never takes the place of a log that the runtime has begun without saying so.
	if linkErr := root.Link(old, log); linkErr != nil {
		if errors.Is(linkErr, fs.ErrExist) {
			return nil
		}
		return errors.Join(err, linkErr)
	}
	return errors.Join(err, root.Remove(old))
}

package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// CollectGarbage removes what ended containers and sandboxes leave behind, and the logs of pods that are gone. Call it
// every minute. isWanted reports whether anything of the pod may still be needed. It is called after the runtime was listed.
// What cannot be removed keeps nothing else from being removed; the error names all of it.
func (r *Runtime) CollectGarbage(ctx context.Context, isWanted func(podid.UID) bool) error {
	if isWanted == nil {
		return errors.New("cri: collect garbage: isWanted is required")
	}
	pods, err := r.ListPods(ctx)
	if err != nil {
		return fmt.Errorf("cri: collecting garbage: %w", err)
	}
	now := time.Now()
	err = errors.Join(
		r.removeGarbage(ctx, findGarbage(pods, isWanted, now)),
		r.removeOldLogs(pods, isWanted, now),
		r.removeDanglingLinks(pods, now))
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("cri: collecting garbage: %w", err)
	}
	return nil
}

func (r *Runtime) removeGarbage(ctx context.Context, found garbage) error {
	var failures []error
	stuck := map[string]bool{} // sandboxes that still have a container
	for _, c := range found.containers {
		if err := r.removeDead(ctx, c); err != nil {
			failures = append(failures, err)
			stuck[c.SandboxID] = true
		}
	}
	for _, s := range found.sandboxes {
		if !stuck[s.ID] {
			failures = append(failures, r.removeSandbox(ctx, s.ID))
		}
	}
	return errors.Join(failures...)
}

// removeDead removes a container with all that is on disk of it. One in a state that the runtime has lost may run.
func (r *Runtime) removeDead(ctx context.Context, c deadContainer) error {
	if c.State == observed.Unknown {
		if err := r.StopContainer(ctx, nil, plan.Stop{ID: c.ID}); err != nil {
			return err
		}
	}
	if err := r.removeContainer(ctx, c.ID.ID); err != nil {
		return err
	}
	return errors.Join(r.unlinkLogs([]string{c.ID.ID}), r.removeInstanceFiles(c))
}

// removeInstanceFiles removes the instance's log, with what was rotated of it, and its termination message. Should a
// restart count have been lost and given twice, another instance has the same files, and they go with the pod.
func (r *Runtime) removeInstanceFiles(c deadContainer) error {
	for _, other := range c.pod.Containers {
		if other.Name == c.Name && other.RestartCount == c.RestartCount && other.ID != c.ID {
			return nil
		}
	}
	logs := c.pod.Name.Namespace + "_" + c.pod.Name.Name + "_" + string(c.pod.UID)
	log := filepath.Join(logs, containerLog(c.Name, c.RestartCount))
	message := filepath.Join(string(c.pod.UID), messagesName, c.Name, strconv.Itoa(c.RestartCount))
	if !filepath.IsLocal(log) || !filepath.IsLocal(message) { // labels may hold anything
		return fmt.Errorf("container %s: its labels name no files: %q, %q", c.ID, log, message)
	}
	err := os.Remove(filepath.Join(r.config.Root, message))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, r.removeLog(filepath.Join(r.config.LogDir, log)))
}

// removeLog removes a log with its older parts.
func (r *Runtime) removeLog(log string) error {
	root, name, err := r.config.openLogs(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	files, err := rotatedLogs(root, name)
	failures := []error{err}
	for _, file := range append(files, name) {
		if err := root.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/podid"
)

// RemovePod removes all that the runtime holds of a pod whose containers have ended: containers, sandboxes, logs, hosts
// file, termination messages, cgroup. Nothing of a pod that still runs is removed.
func (r *Runtime) RemovePod(ctx context.Context, uid podid.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), `/*?[\`) { // it becomes part of paths and patterns
		return fmt.Errorf("cri: removing pod %q: that is no UID", uid)
	}
	err := r.removeFromRuntime(ctx, uid)
	if err == nil {
		err = errors.Join(r.removeFiles(uid), r.removeCgroup(ctx, uid))
	}
	if err != nil {
		return fmt.Errorf("cri: removing pod %s: %w", uid, err)
	}
	return nil
}

func (r *Runtime) removeFromRuntime(ctx context.Context, uid podid.UID) error {
	containers, err := r.containersOf(ctx, uid)
	if err != nil {
		return err
	}
	var ids []string
	for _, container := range containers {
		if container.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return fmt.Errorf("container %s still runs", container.GetMetadata().GetName())
		}
		ids = append(ids, container.Id)
	}
	for _, id := range ids {
		if err := r.removeContainer(ctx, id); err != nil {
			return err
		}
	}
	sandboxes, err := r.sandboxesOf(ctx, uid)
	if err != nil {
		return err
	}
	for _, sandbox := range sandboxes {
		if err := r.removeSandbox(ctx, sandbox.Id); err != nil {
			return err
		}
	}
	return r.unlinkLogs(ids)
}

// removeContainer removes one that does not run. One that is not there is removed.
func (r *Runtime) removeContainer(ctx context.Context, id string) error {
	_, err := r.pods.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err != nil && !isGone(err) {
		return fmt.Errorf("cri: removing container %s: %w", id, err)
	}
	return nil
}

// removeSandbox removes one in which nothing runs. One that is not there is removed.
func (r *Runtime) removeSandbox(ctx context.Context, id string) error {
	if err := r.StopSandbox(ctx, id); err != nil { // the network of a dead one is still held
		return err
	}
	_, err := r.pods.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && !isGone(err) {
		return fmt.Errorf("cri: removing sandbox %s: %w", id, err)
	}
	return nil
}

// removeFiles removes what is this room's. The pod's folder itself goes when nothing else is in it.
func (r *Runtime) removeFiles(uid podid.UID) error {
	logs, err := filepath.Glob(filepath.Join(r.config.LogDir, "*_"+string(uid)))
	failed := []error{err}
	for _, dir := range logs {
		failed = append(failed, os.RemoveAll(dir))
	}
	dir := r.config.podDir(uid)
	failed = append(failed,
		releaseAllBinds(filepath.Join(dir, subPathsName)),
		os.RemoveAll(filepath.Join(dir, messagesName)),
		os.RemoveAll(filepath.Join(dir, hostsName)))
	if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
		if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

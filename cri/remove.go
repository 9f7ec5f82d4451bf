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

// RemovePod removes everything of a pod whose containers have exited: containers, sandboxes, logs, hosts file, termination
// messages and cgroup. It removes nothing and returns an error if a container runs. If only records of the runtime are left,
// the error reports true by OnlyRecordsLeft.
func (r *Runtime) RemovePod(ctx context.Context, uid podid.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), `/*?[\`) { // it becomes part of paths and patterns
		return fmt.Errorf("cri: remove pod %q: invalid UID", uid)
	}
	r.pulls.times.forget(uid)
	containers, err := r.stoppedContainers(ctx, uid)
	if err != nil {
		return fmt.Errorf("cri: remove pod %s: %w", uid, err)
	}
	recordsErr := r.removeRecords(ctx, uid, containers)
	if err = r.removeCgroup(ctx, uid); recordsErr == nil {
		err = errors.Join(r.removePodFiles(uid), err)
	}
	switch {
	case err != nil || ctx.Err() != nil:
		return fmt.Errorf("cri: remove pod %s: %w", uid, errors.Join(recordsErr, err))
	case recordsErr != nil:
		return &recordsLeftError{fmt.Errorf("cri: remove pod %s: %w", uid, recordsErr)}
	}
	return nil
}

// recordsLeftError is the error of RemovePod if only stopped containers and sandboxes could not be removed.
type recordsLeftError struct{ error }

func (e *recordsLeftError) Unwrap() error { return e.error }

// OnlyRecordsLeft reports that the pod holds nothing but records in the runtime.
func (e *recordsLeftError) OnlyRecordsLeft() bool { return true }

// stoppedContainers returns the pod's containers, or an error if one runs.
func (r *Runtime) stoppedContainers(ctx context.Context, uid podid.UID) ([]*runtimeapi.Container, error) {
	containers, err := r.listContainers(ctx, uid)
	if err != nil {
		return nil, err
	}
	for _, container := range containers {
		if container.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return nil, fmt.Errorf("container %s is running", container.GetMetadata().GetName())
		}
	}
	return containers, nil
}

// removeRecords removes the stopped containers and the sandboxes. A container that cannot be removed keeps its sandbox and
// delays no other.
func (r *Runtime) removeRecords(ctx context.Context, uid podid.UID, containers []*runtimeapi.Container) error {
	var ids []string
	var errs []error
	inUse := map[string]bool{} // sandboxes whose containers could not be removed
	for _, container := range containers {
		if err := r.removeContainer(ctx, uid, container.Id); err != nil {
			errs = append(errs, err)
			inUse[container.PodSandboxId] = true
			continue
		}
		ids = append(ids, container.Id)
	}
	sandboxes, err := r.listSandboxes(ctx, uid)
	errs = append(errs, err)
	for _, sandbox := range sandboxes {
		if !inUse[sandbox.Id] {
			errs = append(errs, r.removeSandbox(ctx, sandbox.Id))
		}
	}
	return errors.Join(append(errs, r.unlinkLogs(ids))...)
}

// removeContainer removes a container that does not run. It returns nil if the container does not exist.
func (r *Runtime) removeContainer(ctx context.Context, uid podid.UID, id string) error {
	request := &runtimeapi.RemoveContainerRequest{ContainerId: id}
	_, err := r.runtime.RemoveContainer(ctx, request)
	if isFailedPrecondition(err) {
		if deleteErr := r.deleteTask(ctx, uid, id); deleteErr != nil {
			return fmt.Errorf("cri: remove container %s: %w", id, errors.Join(err, deleteErr))
		}
		_, err = r.runtime.RemoveContainer(ctx, request)
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("cri: remove container %s: %w", id, err)
	}
	return nil
}

// removeSandbox removes a sandbox without running containers. It returns nil if the sandbox does not exist.
func (r *Runtime) removeSandbox(ctx context.Context, id string) error {
	if err := r.StopSandbox(ctx, id); err != nil { // a dead sandbox still holds its network
		return err
	}
	_, err := r.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("cri: remove sandbox %s: %w", id, err)
	}
	return nil
}

// removePodFiles removes the logs and the files of this package. It removes the pod's directory itself only if it is empty.
func (r *Runtime) removePodFiles(uid podid.UID) error {
	logDirs, err := filepath.Glob(filepath.Join(r.config.LogDir, "*_"+string(uid)))
	errs := []error{err}
	for _, dir := range logDirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	dir := r.podDir(uid)
	errs = append(errs,
		unmountSubPaths(filepath.Join(dir, subPathsDirName)),
		os.RemoveAll(filepath.Join(dir, messagesDirName)),
		os.RemoveAll(filepath.Join(dir, hostsFileName)))
	if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
		if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes the pod's cgroup, the parent of those that the runtime has removed with the containers.
func (r *Runtime) removeCgroup(ctx context.Context, uid podid.UID) error {
	if r.config.Cgroups == nil {
		return nil
	}
	return r.config.Cgroups.RemovePod(ctx, uid)
}

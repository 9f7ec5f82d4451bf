package cri

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/podid"
)

// A container that exited may have left processes and a task in containerd. When the client of StartContainer dies, containerd
// cancels the start and reports the container as exited. If that happens while it asks for the PID of the new task, or if its
// cleanup fails, the task remains (containerd/containerd#11037). The CRI then neither stops the processes, because the container
// is not running, nor removes the container, because its task exists.

// killExited kills what is left of exited containers of the pod, so that an instance never runs beside its successor.
func (r *Runtime) killExited(ctx context.Context, uid podid.UID, containers []*runtimeapi.Container) error {
	var ids []string
	for _, container := range containers {
		if container.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			ids = append(ids, container.Id)
		}
	}
	if r.config.Cgroups == nil || len(ids) == 0 {
		return nil
	}
	return r.config.Cgroups.KillContainers(ctx, uid, ids)
}

// killExitedInSandbox is killExited for the containers of a sandbox.
func (r *Runtime) killExitedInSandbox(ctx context.Context, sandboxID string) error {
	if r.config.Cgroups == nil {
		return nil
	}
	response, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandboxID},
	})
	if err != nil {
		return fmt.Errorf("cri: list containers of sandbox %s: %w", sandboxID, err)
	}
	byPod := map[podid.UID][]*runtimeapi.Container{}
	for _, container := range response.Containers {
		if uid, _, ok := criconfig.Owner(container.Labels); ok && container.PodSandboxId == sandboxID {
			byPod[uid] = append(byPod[uid], container)
		}
	}
	for uid, containers := range byPod {
		if err := r.killExited(ctx, uid, containers); err != nil {
			return fmt.Errorf("cri: stop sandbox %s: %w", sandboxID, err)
		}
	}
	return nil
}

const (
	containerdName      = "containerd"
	containerdNamespace = "k8s.io" // of everything that was created through the CRI
	deleteTaskMethod    = "/containerd.services.tasks.v1.Tasks/Delete"
	deleteTaskAttempts  = 10 // the shim notices the exit of a process that was killed a moment later
)

// deleteTask kills what is left of an exited container and deletes its task through containerd's own API, which is on the same
// socket as the CRI. Without it, the container could only be removed after a restart of containerd. Containerd refuses to delete
// a task that runs.
func (r *Runtime) deleteTask(ctx context.Context, uid podid.UID, id string) error {
	status, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return err
	}
	if state := status.GetStatus().GetState(); state != runtimeapi.ContainerState_CONTAINER_EXITED {
		return fmt.Errorf("container is in state %v", state)
	}
	if err := r.killExited(ctx, uid, []*runtimeapi.Container{{Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED}}); err != nil {
		return err
	}
	name, err := r.name(ctx)
	if err != nil || name != containerdName {
		return err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", containerdNamespace)
	for attempt := 1; ; attempt++ {
		// DeleteTaskRequest has the ID as field 1, as StringValue has its value. The response is not needed.
		err := r.connections[0].Invoke(ctx, deleteTaskMethod, wrapperspb.String(id), &emptypb.Empty{})
		switch {
		case err == nil || isNotFound(err):
			return nil
		case attempt == deleteTaskAttempts || isUnimplemented(err) || ctx.Err() != nil:
			return fmt.Errorf("delete task: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

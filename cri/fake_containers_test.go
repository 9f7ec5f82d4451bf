package cri_test

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (f *fake) CreateContainer(_ context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	config := request.Config
	for _, c := range f.containers {
		if c.sandbox == request.PodSandboxId && c.Metadata.Name == config.Metadata.Name && c.Metadata.Attempt == config.Metadata.Attempt {
			return nil, status.Errorf(codes.Unknown, "failed to reserve container name: it is reserved for %q", c.Id)
		}
	}
	id, now := f.newLocked("container")
	f.containers[id] = &fakeContainer{sandbox: request.PodSandboxId, ContainerStatus: &runtimeapi.ContainerStatus{
		Id: id, Metadata: config.Metadata, CreatedAt: now, Labels: config.Labels, Annotations: config.Annotations,
		Image: config.Image, ImageRef: "web@sha256:web", Mounts: config.Mounts, StopSignal: config.StopSignal,
		LogPath: request.SandboxConfig.LogDirectory + "/" + config.LogPath,
	}}
	if f.forgetsSignals {
		f.containers[id].StopSignal = runtimeapi.Signal_RUNTIME_DEFAULT
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (f *fake) StartContainer(_ context.Context, request *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[request.ContainerId]
	if c.State != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is %v", c.Id, c.State)
	}
	c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	return &runtimeapi.StartContainerResponse{}, nil
}

func (f *fake) StopContainer(_ context.Context, request *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[request.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	exitLocked(c, 0)
	return &runtimeapi.StopContainerResponse{}, nil
}

func (f *fake) exit(id string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	exitLocked(f.containers[id], code)
}

func exitLocked(c *fakeContainer, code int32) {
	if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
		c.State, c.ExitCode, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
		c.Reason = "Completed"
		if code != 0 {
			c.Reason = "Error"
		}
	}
}

func (f *fake) RemoveContainer(_ context.Context, request *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, request.ContainerId)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (f *fake) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &runtimeapi.ListContainersResponse{}
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		if c := f.containers[id]; selects(request.GetFilter().GetLabelSelector(), c.Labels) {
			answer.Containers = append(answer.Containers, &runtimeapi.Container{
				Id: c.Id, PodSandboxId: c.sandbox, Metadata: c.Metadata, Image: c.Image, ImageRef: c.ImageRef, State: c.State,
				CreatedAt: c.CreatedAt, Labels: c.Labels, Annotations: c.Annotations,
			})
		}
	}
	return answer, nil
}

func (f *fake) ContainerStatus(_ context.Context, request *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.containers[request.ContainerId]; c != nil {
		return &runtimeapi.ContainerStatusResponse{Status: c.ContainerStatus}, nil
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (f *fake) ExecSync(_ context.Context, request *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.containers[request.ContainerId] == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(f.output + "out"), Stderr: []byte("err"), ExitCode: f.exitCode}, nil
}

func (f *fake) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	f.mu.Lock()
	events := f.events
	f.mu.Unlock()
	if events == nil {
		return status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
	}
	for _, event := range events {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// fakeImages is the part of the fake that has images.
type fakeImages struct {
	runtimeapi.UnimplementedImageServiceServer
	*fake
}

func (f fakeImages) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: f.images[request.Image.Image]}, nil
}

func (f fakeImages) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[request.Image.Image] = &runtimeapi.Image{Id: "sha256:pulled", Size: 2048}
	return &runtimeapi.PullImageResponse{ImageRef: "sha256:pulled"}, nil
}

package cri_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fake is a container runtime in memory. Its containers do nothing; tests make them exit. It records requests and injects
// faults.
type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	mu         sync.Mutex // guards all below
	created    int
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*fakeContainer
	images     map[string]*runtimeapi.Image
	passwords  map[string]string // of private images
	layer      uint64            // size of each writable layer
	podStats   []*runtimeapi.PodSandboxStats
	// containerStats replaces those of the containers.
	containerStats []*runtimeapi.ContainerStats
	faults         map[string][]fault
	requests       []any
	events         []*runtimeapi.ContainerEventResponse
	status         *runtimeapi.StatusResponse
	network        *runtimeapi.PodSandboxNetworkStatus // of new sandboxes
	imageFs        *runtimeapi.ImageFsInfoResponse
	exitCode       int32  // of commands
	output         string // of commands, followed by "out" and "err"

	ignoresSignals bool

	name         string // of the runtime
	version      string
	deletedTasks []string // "namespace/ID", through containerd's own API
}

type fakeContainer struct {
	*runtimeapi.ContainerStatus
	sandbox string
	log     *os.File // nil until it writes
}

// fault replaces the handling of a call. execute performs the call.
type fault func(ctx context.Context, execute func() (any, error)) (any, error)

func fails(code codes.Code, message string) fault {
	return func(context.Context, func() (any, error)) (any, error) { return nil, status.Error(code, message) }
}

// losesResponse performs the call, and then the connection breaks.
func losesResponse(_ context.Context, execute func() (any, error)) (any, error) {
	if _, err := execute(); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Unavailable, "connection lost")
}

func hangs(ctx context.Context, _ func() (any, error)) (any, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func delays(duration time.Duration) fault {
	return func(ctx context.Context, execute func() (any, error)) (any, error) {
		select {
		case <-time.After(duration):
			return execute()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func newFake() *fake {
	return &fake{
		name:      "fake",
		version:   "v1",
		sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*fakeContainer{},
		images: map[string]*runtimeapi.Image{"web:1": {Id: "sha256:web"}}, faults: map[string][]fault{},
		status:  &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}},
		network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.7", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::7"}}},
	}
}

// inject applies the faults to the next calls of the method, one each.
func (f *fake) inject(method string, faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[method] = append(f.faults[method], faults...)
}

func (f *fake) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	f.mu.Lock()
	f.requests = append(f.requests, request)
	var inject fault
	if queue := f.faults[method]; len(queue) > 0 {
		inject, f.faults[method] = queue[0], queue[1:]
	}
	f.mu.Unlock()
	if inject != nil {
		return inject(ctx, func() (any, error) { return handle(ctx, request) })
	}
	return handle(ctx, request)
}

// requests returns the recorded requests of a type, in order.
func requests[T any](f *fake) []T {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []T
	for _, request := range f.requests {
		if typed, ok := request.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// newLocked returns a new ID and a strictly increasing time.
func (f *fake) newLocked(kind string) (string, int64) {
	f.created++
	return fmt.Sprintf("%s-%d", kind, f.created), time.Now().UnixNano() + int64(f.created)
}

func (f *fake) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: f.name, RuntimeVersion: f.version, RuntimeApiVersion: "v1"}, nil
}

func (f *fake) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return f.status, nil
}

func (f *fake) RunPodSandbox(_ context.Context, request *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	config := request.Config
	for _, sandbox := range f.sandboxes {
		if sandbox.Metadata.Uid == config.Metadata.Uid && sandbox.Metadata.Attempt == config.Metadata.Attempt {
			return nil, status.Errorf(codes.Unknown, "failed to reserve sandbox name: it is reserved for %q", sandbox.Id)
		}
	}
	id, now := f.newLocked("sandbox")
	f.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.Metadata, CreatedAt: now, Labels: config.Labels, Annotations: config.Annotations,
		State:   runtimeapi.PodSandboxState_SANDBOX_READY,
		Network: f.network,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (f *fake) StopPodSandbox(_ context.Context, request *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sandbox := f.sandboxes[request.PodSandboxId]
	if sandbox == nil {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	sandbox.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	for _, c := range f.containers {
		if c.sandbox == sandbox.Id {
			exitLocked(c, 137)
		}
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (f *fake) RemovePodSandbox(_ context.Context, request *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sandboxes, request.PodSandboxId)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (f *fake) PodSandboxStatus(_ context.Context, request *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sandbox := f.sandboxes[request.PodSandboxId]; sandbox != nil {
		return &runtimeapi.PodSandboxStatusResponse{Status: sandbox}, nil
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (f *fake) ListPodSandbox(_ context.Context, request *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &runtimeapi.ListPodSandboxResponse{}
	for _, id := range slices.Sorted(maps.Keys(f.sandboxes)) {
		if s := f.sandboxes[id]; matchesLabels(request.GetFilter().GetLabelSelector(), s.Labels) {
			response.Items = append(response.Items, &runtimeapi.PodSandbox{
				Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
			})
		}
	}
	return response, nil
}

func matchesLabels(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

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
	if f.ignoresSignals {
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
	response := &runtimeapi.ListContainersResponse{}
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		if c := f.containers[id]; matchesLabels(request.GetFilter().GetLabelSelector(), c.Labels) {
			response.Containers = append(response.Containers, &runtimeapi.Container{
				Id: c.Id, PodSandboxId: c.sandbox, Metadata: c.Metadata, Image: c.Image, ImageRef: c.Image.GetImage(), State: c.State, // as containerd
				CreatedAt: c.CreatedAt, Labels: c.Labels, Annotations: c.Annotations,
			})
		}
	}
	return response, nil
}

func (f *fake) ContainerStatus(_ context.Context, request *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.containers[request.ContainerId]; c != nil {
		return &runtimeapi.ContainerStatusResponse{Status: c.ContainerStatus}, nil
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (f *fake) UpdateContainerResources(
	_ context.Context, request *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	container, found := f.containers[request.ContainerId]
	if !found {
		return nil, status.Errorf(codes.NotFound, "no container %s", request.ContainerId)
	}
	container.Resources = &runtimeapi.ContainerResources{Linux: request.Linux}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (f *fake) ListContainerStats(
	_ context.Context, request *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.containerStats != nil {
		return &runtimeapi.ListContainerStatsResponse{Stats: f.containerStats}, nil
	}
	response := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range f.containers {
		if matchesLabels(request.GetFilter().GetLabelSelector(), c.Labels) {
			response.Stats = append(response.Stats, &runtimeapi.ContainerStats{
				Attributes:    &runtimeapi.ContainerAttributes{Id: c.Id, Metadata: c.Metadata, Labels: c.Labels},
				WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: f.layer}},
			})
		}
	}
	return response, nil
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

// writeLog appends to the log file that the runtime has open, even if it was renamed.
func (f *fake) writeLog(id, text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	container := f.containers[id]
	if container.log == nil {
		if err := container.reopenLog(); err != nil {
			return err
		}
	}
	_, err := container.log.WriteString(text)
	return err
}

func (c *fakeContainer) reopenLog() error {
	if c.log != nil {
		if err := c.log.Close(); err != nil {
			return err
		}
	}
	err := os.MkdirAll(filepath.Dir(c.LogPath), 0o700)
	if err == nil {
		c.log, err = os.OpenFile(c.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	}
	return err
}

func (f *fake) ReopenContainerLog(
	_ context.Context, request *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[request.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Error(codes.Unknown, "container is not running")
	}
	return &runtimeapi.ReopenContainerLogResponse{}, c.reopenLog()
}

// serveTasks is the part of containerd's own API that package cri uses. Other runtimes do not have it.
func (f *fake) serveTasks(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	f.mu.Lock()
	defer f.mu.Unlock()
	if method != "/containerd.services.tasks.v1.Tasks/Delete" || f.name != "containerd" {
		return status.Error(codes.Unimplemented, "unknown method "+method)
	}
	var request wrapperspb.StringValue // has the ID in the same field as DeleteTaskRequest
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	f.deletedTasks = append(f.deletedTasks, strings.Join(md["containerd-namespace"], ",")+"/"+request.Value)
	return stream.SendMsg(&emptypb.Empty{})
}

// fakeImages is the image service of the fake.
type fakeImages struct {
	runtimeapi.UnimplementedImageServiceServer
	*fake
}

func (f fakeImages) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: f.images[request.Image.Image]}, nil
}

func (f fakeImages) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ListImagesResponse{Images: slices.Collect(maps.Values(f.images))}, nil
}

func (f fakeImages) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := f.passwords[request.Image.Image]; request.GetAuth().GetPassword() != want && want != "" {
		return nil, status.Error(codes.Unknown, "denied")
	}
	f.images[request.Image.Image] = &runtimeapi.Image{Id: "sha256:pulled", Size: 2048}
	return &runtimeapi.PullImageResponse{ImageRef: "sha256:pulled"}, nil
}

func (f fakeImages) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.imageFs, nil
}

func (f fakeImages) RemoveImage(_ context.Context, request *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.images, func(_ string, image *runtimeapi.Image) bool { return image.Id == request.Image.Image })
	return &runtimeapi.RemoveImageResponse{}, nil
}

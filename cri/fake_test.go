package cri_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fake is a container runtime in memory. Its containers do nothing: a test lets them exit. What was asked is kept, and
// each call can be made to go wrong.
type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	mu         sync.Mutex // guards all below
	made       int
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*fakeContainer
	images     map[string]*runtimeapi.Image
	faults     map[string][]fault
	asked      []any
	events     []*runtimeapi.ContainerEventResponse
	features   *runtimeapi.StatusResponse
	exitCode   int32  // of commands
	output     string // of commands, before what they always say

	forgetsSignals bool
}

type fakeContainer struct {
	*runtimeapi.ContainerStatus
	sandbox string
	log     *os.File // nil until it writes
}

// fault is what becomes of a call; execute does what was asked.
type fault func(ctx context.Context, execute func() (any, error)) (any, error)

func refuses(code codes.Code, message string) fault {
	return func(context.Context, func() (any, error)) (any, error) { return nil, status.Error(code, message) }
}

// losesTheAnswer does what was asked, and then the connection breaks.
func losesTheAnswer(_ context.Context, execute func() (any, error)) (any, error) {
	if _, err := execute(); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Unavailable, "the connection broke")
}

func hangs(ctx context.Context, _ func() (any, error)) (any, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func newFake() *fake {
	return &fake{
		sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*fakeContainer{},
		images: map[string]*runtimeapi.Image{"web:1": {Id: "sha256:web"}}, faults: map[string][]fault{},
		features: &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}},
	}
}

// next lets the coming calls of that name go wrong, one fault for each.
func (f *fake) next(call string, faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[call] = append(f.faults[call], faults...)
}

func (f *fake) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	call := path.Base(info.FullMethod)
	f.mu.Lock()
	f.asked = append(f.asked, request)
	var wrong fault
	if queue := f.faults[call]; len(queue) > 0 {
		wrong, f.faults[call] = queue[0], queue[1:]
	}
	f.mu.Unlock()
	if wrong != nil {
		return wrong(ctx, func() (any, error) { return handle(ctx, request) })
	}
	return handle(ctx, request)
}

// requests are all of that type, in order.
func requests[T any](f *fake) []T {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []T
	for _, request := range f.asked {
		if one, ok := request.(T); ok {
			found = append(found, one)
		}
	}
	return found
}

// newLocked is a new ID, and a time that only rises.
func (f *fake) newLocked(kind string) (string, int64) {
	f.made++
	return fmt.Sprintf("%s-%d", kind, f.made), time.Now().UnixNano() + int64(f.made)
}

func (f *fake) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "v1", RuntimeApiVersion: "v1"}, nil
}

func (f *fake) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return f.features, nil
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
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.7", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::7"}}},
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
	answer := &runtimeapi.ListPodSandboxResponse{}
	for _, id := range slices.Sorted(maps.Keys(f.sandboxes)) {
		if s := f.sandboxes[id]; selects(request.GetFilter().GetLabelSelector(), s.Labels) {
			answer.Items = append(answer.Items, &runtimeapi.PodSandbox{
				Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
			})
		}
	}
	return answer, nil
}

func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

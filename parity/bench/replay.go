package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/parity/containerd"
)

// podCalls is what an agent passes to the runtime to start a pod with one container. The files of its mounts must exist while the calls
// are repeated.
type podCalls struct {
	client    runtimeapi.RuntimeServiceClient
	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
}

// recordCalls returns the calls that started the pod of that name. containerd keeps the configurations and shows them on request.
func recordCalls(ctx context.Context, client runtimeapi.RuntimeServiceClient, podName string) (podCalls, error) {
	calls := podCalls{client: client, sandbox: &runtimeapi.PodSandboxConfig{}, container: &runtimeapi.ContainerConfig{}}
	containers, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": podName},
	}})
	if err != nil {
		return calls, err
	}
	if len(containers.Containers) != 1 {
		return calls, fmt.Errorf("pod %s has %d containers, want 1", podName, len(containers.Containers))
	}
	found := containers.Containers[0]
	sandbox, sandboxErr := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: found.PodSandboxId, Verbose: true})
	container, containerErr := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: found.Id, Verbose: true})
	if err := errors.Join(sandboxErr, containerErr); err != nil {
		return calls, err
	}
	return calls, errors.Join(decodeConfig(sandbox.Info, calls.sandbox), decodeConfig(container.Info, calls.container))
}

func decodeConfig(info map[string]string, config any) error {
	shown := struct {
		Config any `json:"config"`
	}{config}
	if err := json.Unmarshal([]byte(info["info"]), &shown); err != nil {
		return fmt.Errorf("decode what containerd shows of a pod: %w", err)
	}
	return nil
}

// named returns the calls for another pod.
func (c podCalls) named(name string) podCalls {
	c.sandbox = proto.CloneOf(c.sandbox)
	c.sandbox.Metadata.Name, c.sandbox.Metadata.Uid = name, name
	c.sandbox.LogDirectory = filepath.Join(filepath.Dir(c.sandbox.LogDirectory), name)
	c.sandbox.Linux.CgroupParent = path.Join(path.Dir(c.sandbox.Linux.CgroupParent), name)
	return c
}

// start makes the calls.
func (c podCalls) start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(c.sandbox.LogDirectory, filepath.Dir(c.container.LogPath)), 0o700); err != nil {
		return err
	}
	sandbox, err := c.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: c.sandbox})
	if err != nil {
		return err
	}
	container, err := c.client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, SandboxConfig: c.sandbox, Config: c.container,
	})
	if err != nil {
		return err
	}
	_, err = c.client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container.ContainerId})
	return err
}

// startPods makes the calls for that many pods at once and returns how long they took in seconds.
func (c podCalls) startPods(ctx context.Context, prefix string, count int) (seconds float64, err error) {
	startTime := time.Now()
	errs := make([]error, count)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = c.named(fmt.Sprintf("bare-%s-%d", prefix, i)).start(ctx) })
	}
	group.Wait()
	return time.Since(startTime).Seconds(), errors.Join(errs...)
}

// withRuntimeClient calls do with a client of the runtime.
func withRuntimeClient(runtime *containerd.Containerd, do func(runtimeapi.RuntimeServiceClient) error) error {
	connection, err := grpc.NewClient(runtime.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	return do(runtimeapi.NewRuntimeServiceClient(connection))
}

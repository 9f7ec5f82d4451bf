package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
)

// measureRuntime returns how long containerd takes to start as many pods as an agent runs, without an agent, in seconds: the
// lower bound for agents.
func (e *Environment) measureRuntime(ctx context.Context) (seconds float64, err error) {
	e.logf("%d pods by bare calls of containerd", e.Profile.AgentPods)
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	runtime, err := containerd.Start(ctx, containerd.Config{})
	if err != nil {
		return 0, err
	}
	cgroup := "/" + filepath.Base(runtime.Dir())
	defer func() { err = errors.Join(err, runtime.Close(), agents.RemoveCgroups(cgroup)) }()
	connection, err := grpc.NewClient(runtime.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	time.Sleep(agentWarmUp)
	client, startTime := runtimeapi.NewRuntimeServiceClient(connection), time.Now()
	errs := make([]error, e.Profile.AgentPods)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			name := fmt.Sprintf("pod-%d", i)
			errs[i] = startBarePod(ctx, client, &runtimeapi.PodSandboxConfig{
				Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
				LogDirectory: filepath.Join(runtime.Dir(), "logs", name),
				Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroup + "/" + name},
			})
		})
	}
	group.Wait()
	seconds = time.Since(startTime).Seconds()
	e.logf("  started after %s", formatSeconds(seconds))
	return seconds, errors.Join(errs...)
}

// startBarePod starts a pod with the container of servingPod.
func startBarePod(ctx context.Context, client runtimeapi.RuntimeServiceClient, config *runtimeapi.PodSandboxConfig) error {
	if err := os.MkdirAll(config.LogDirectory, 0o700); err != nil {
		return err
	}
	sandbox, err := client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return err
	}
	container, err := client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: containerd.TestpodImage},
			Args: []string{"serve"}, LogPath: "main.log",
		},
	})
	if err != nil {
		return err
	}
	_, err = client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container.ContainerId})
	return err
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
)

// measureRuntime returns how long containerd takes to start as many pods as an agent runs, without an agent, in seconds: the
// lower bound for agents.
func (e *Environment) measureRuntime(ctx context.Context) (seconds float64, err error) {
	e.logf("%d pods by bare calls of containerd", e.Profile.AgentPods)
	err = withRuntime(ctx, func(ctx context.Context, r bareRuntime) error {
		seconds, err = r.startPods(ctx, "pod", e.Profile.AgentPods)
		return err
	})
	e.logf("  started after %s", formatSeconds(seconds))
	return seconds, err
}

// bareRuntime is a containerd without an agent.
type bareRuntime struct {
	client      runtimeapi.RuntimeServiceClient
	dir, cgroup string
}

// withRuntime starts a containerd, measures, and removes everything again.
func withRuntime(ctx context.Context, measure func(context.Context, bareRuntime) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	runtime, err := containerd.Start(ctx, containerd.Config{})
	if err != nil {
		return err
	}
	cgroup := "/" + filepath.Base(runtime.Dir())
	defer func() { err = errors.Join(err, runtime.Close(), agents.RemoveCgroups(cgroup)) }()
	time.Sleep(agentWarmUp)
	return withRuntimeClient(runtime, func(client runtimeapi.RuntimeServiceClient) error {
		return measure(ctx, bareRuntime{client: client, dir: runtime.Dir(), cgroup: cgroup})
	})
}

// startPods starts that many pods at once and returns how long it took in seconds.
func (r bareRuntime) startPods(ctx context.Context, prefix string, count int) (seconds float64, err error) {
	startTime := time.Now()
	errs := make([]error, count)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			name := fmt.Sprintf("%s-%d", prefix, i)
			errs[i] = startBarePod(ctx, r.client, &runtimeapi.PodSandboxConfig{
				Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
				LogDirectory: filepath.Join(r.dir, "logs", name),
				Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: r.cgroup + "/" + name},
			})
		})
	}
	group.Wait()
	return time.Since(startTime).Seconds(), errors.Join(errs...)
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

package containerd_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/containerd"
)

// client is a CRI client, as a kubelet has one. Errors fail the test.
type client struct {
	tb      testing.TB
	runtime cri.RuntimeServiceClient
}

// pod is a running pod sandbox.
type pod struct {
	id      string
	address netip.Addr
	logs    string
	config  *cri.PodSandboxConfig
}

func newClient(tb testing.TB, instance *containerd.Containerd) *client {
	tb.Helper()
	connection, err := grpc.NewClient(instance.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { connection.Close() })
	return &client{tb: tb, runtime: cri.NewRuntimeServiceClient(connection)}
}

func (c *client) runPod(name string) pod {
	c.tb.Helper()
	started := pod{logs: c.tb.TempDir()}
	started.config = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-uid"},
		Hostname:     name,
		LogDirectory: started.logs,
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: defaultNamespaces()},
		},
	}
	run, err := c.runtime.RunPodSandbox(c.tb.Context(), &cri.RunPodSandboxRequest{Config: started.config})
	if err != nil {
		c.tb.Fatal(err)
	}
	started.id = run.PodSandboxId
	status, err := c.runtime.PodSandboxStatus(c.tb.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: started.id})
	if err != nil {
		c.tb.Fatal(err)
	}
	if started.address, err = netip.ParseAddr(status.Status.GetNetwork().GetIp()); err != nil {
		c.tb.Fatalf("address of pod %s: %v", name, err)
	}
	return started
}

func (c *client) removePod(p pod) {
	c.tb.Helper()
	if _, err := c.runtime.StopPodSandbox(c.tb.Context(), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		c.tb.Fatal(err)
	}
	if _, err := c.runtime.RemovePodSandbox(c.tb.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		c.tb.Fatal(err)
	}
}

// defaultNamespaces returns the kubelet's default: each container has its own process namespace and shares the others.
func defaultNamespaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
}

// runContainer starts testpod with args and returns the container's id.
func (c *client) runContainer(p pod, name string, args ...string) string {
	c.tb.Helper()
	created, err := c.runtime.CreateContainer(c.tb.Context(), &cri.CreateContainerRequest{
		PodSandboxId:  p.id,
		SandboxConfig: p.config,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name},
			Image:    &cri.ImageSpec{Image: containerd.TestpodImage},
			Args:     args,
			Envs:     []*cri.KeyValue{{Key: "INSIDE", Value: []byte(name)}},
			LogPath:  name + ".log",
			Linux: &cri.LinuxContainerConfig{
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: defaultNamespaces()},
			},
		},
	})
	if err != nil {
		c.tb.Fatal(err)
	}
	start := &cri.StartContainerRequest{ContainerId: created.ContainerId}
	if _, err := c.runtime.StartContainer(c.tb.Context(), start); err != nil {
		c.tb.Fatal(err)
	}
	return created.ContainerId
}

func (c *client) stopContainer(id string, grace int64) {
	c.tb.Helper()
	request := &cri.StopContainerRequest{ContainerId: id, Timeout: grace}
	if _, err := c.runtime.StopContainer(c.tb.Context(), request); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *client) containerStatus(id string) *cri.ContainerStatus {
	c.tb.Helper()
	response, err := c.runtime.ContainerStatus(c.tb.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		c.tb.Fatal(err)
	}
	return response.Status
}

func (c *client) awaitExit(id string) *cri.ContainerStatus {
	c.tb.Helper()
	var status *cri.ContainerStatus
	heraldtest.Eventually(c.tb, func() error {
		if status = c.containerStatus(id); status.State != cri.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("container %s is %v", id, status.State)
		}
		return nil
	})
	return status
}

// awaitOutput waits until the log of a container has a complete line, and returns it.
func (c *client) awaitOutput(p pod, container string) string {
	c.tb.Helper()
	var log []byte
	heraldtest.Eventually(c.tb, func() (err error) {
		log, err = os.ReadFile(filepath.Join(p.logs, container+".log"))
		if err == nil && !bytes.HasSuffix(log, []byte("\n")) {
			err = fmt.Errorf("container %s: got log %q", container, log)
		}
		return err
	})
	return string(log)
}

// exec runs testpod with args inside a container.
func (c *client) exec(id string, args ...string) (int32, string) {
	c.tb.Helper()
	request := &cri.ExecSyncRequest{ContainerId: id, Cmd: append([]string{"/testpod"}, args...), Timeout: 20}
	response, err := c.runtime.ExecSync(c.tb.Context(), request)
	if err != nil {
		c.tb.Fatal(err)
	}
	return response.ExitCode, string(response.Stdout) + string(response.Stderr)
}

// checkStatus returns an error unless the response to an HTTP request has this status code.
func checkStatus(ctx context.Context, method, url string, want int) error {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	httpClient := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != want {
		return fmt.Errorf("%s %s: got %s, want %d", method, url, response.Status, want)
	}
	return nil
}

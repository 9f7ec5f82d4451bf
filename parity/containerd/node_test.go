package containerd_test

import (
	"bytes"
	"context"
	"errors"
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

	"github.com/heraldnode/herald/parity/containerd"
)

// node asks a containerd over the CRI, as a kubelet would; what fails fails the test.
type node struct {
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

func newNode(tb testing.TB, c *containerd.Containerd) *node {
	tb.Helper()
	connection, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { connection.Close() })
	return &node{tb: tb, runtime: cri.NewRuntimeServiceClient(connection)}
}

func (n *node) runPod(name string) pod {
	n.tb.Helper()
	started := pod{logs: n.tb.TempDir()}
	started.config = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-uid"},
		Hostname:     name,
		LogDirectory: started.logs,
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: ownProcesses()},
		},
	}
	run, err := n.runtime.RunPodSandbox(n.tb.Context(), &cri.RunPodSandboxRequest{Config: started.config})
	if err != nil {
		n.tb.Fatal(err)
	}
	started.id = run.PodSandboxId
	status, err := n.runtime.PodSandboxStatus(n.tb.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: started.id})
	if err != nil {
		n.tb.Fatal(err)
	}
	if started.address, err = netip.ParseAddr(status.Status.GetNetwork().GetIp()); err != nil {
		n.tb.Fatalf("the address of pod %s: %v", name, err)
	}
	return started
}

func (n *node) removePod(p pod) {
	n.tb.Helper()
	if _, err := n.runtime.StopPodSandbox(n.tb.Context(), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		n.tb.Fatal(err)
	}
	if _, err := n.runtime.RemovePodSandbox(n.tb.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		n.tb.Fatal(err)
	}
}

// ownProcesses is the kubelet's default: each container has a process namespace of its own, the rest is the pod's.
func ownProcesses() *cri.NamespaceOption {
	return &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
}

// runContainer starts testpod with args and returns the container's id.
func (n *node) runContainer(p pod, name string, args ...string) string {
	n.tb.Helper()
	created, err := n.runtime.CreateContainer(n.tb.Context(), &cri.CreateContainerRequest{
		PodSandboxId:  p.id,
		SandboxConfig: p.config,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name},
			Image:    &cri.ImageSpec{Image: containerd.TestpodImage},
			Args:     args,
			Envs:     []*cri.KeyValue{{Key: "INSIDE", Value: []byte(name)}},
			LogPath:  name + ".log",
			Linux: &cri.LinuxContainerConfig{
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: ownProcesses()},
			},
		},
	})
	if err != nil {
		n.tb.Fatal(err)
	}
	start := &cri.StartContainerRequest{ContainerId: created.ContainerId}
	if _, err := n.runtime.StartContainer(n.tb.Context(), start); err != nil {
		n.tb.Fatal(err)
	}
	return created.ContainerId
}

func (n *node) stopContainer(id string, grace int64) {
	n.tb.Helper()
	request := &cri.StopContainerRequest{ContainerId: id, Timeout: grace}
	if _, err := n.runtime.StopContainer(n.tb.Context(), request); err != nil {
		n.tb.Fatal(err)
	}
}

func (n *node) containerStatus(id string) *cri.ContainerStatus {
	n.tb.Helper()
	response, err := n.runtime.ContainerStatus(n.tb.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		n.tb.Fatal(err)
	}
	return response.Status
}

func (n *node) awaitExit(id string) *cri.ContainerStatus {
	n.tb.Helper()
	var status *cri.ContainerStatus
	eventually(n.tb, func() error {
		if status = n.containerStatus(id); status.State != cri.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("container %s is %v", id, status.State)
		}
		return nil
	})
	return status
}

// awaitOutput returns the log of a container once it has a whole line.
func (n *node) awaitOutput(p pod, container string) string {
	n.tb.Helper()
	var log []byte
	eventually(n.tb, func() (err error) {
		log, err = os.ReadFile(filepath.Join(p.logs, container+".log"))
		if err == nil && !bytes.HasSuffix(log, []byte("\n")) {
			err = fmt.Errorf("container %s has logged %q", container, log)
		}
		return err
	})
	return string(log)
}

// exec runs testpod with args inside a container.
func (n *node) exec(id string, args ...string) (int32, string) {
	n.tb.Helper()
	request := &cri.ExecSyncRequest{ContainerId: id, Cmd: append([]string{"/testpod"}, args...), Timeout: 20}
	response, err := n.runtime.ExecSync(n.tb.Context(), request)
	if err != nil {
		n.tb.Fatal(err)
	}
	return response.ExitCode, string(response.Stdout) + string(response.Stderr)
}

// wantStatus tells whether an HTTP request is answered with a status code.
func wantStatus(ctx context.Context, method, url string, want int) error {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != want {
		return fmt.Errorf("%s %s: %s, want %d", method, url, response.Status, want)
	}
	return nil
}

// eventually fails the test if try never succeeds.
func eventually(tb testing.TB, try func() error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			tb.Fatal(errors.Join(ctx.Err(), err))
		}
	}
}

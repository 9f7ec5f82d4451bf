package cri

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// InspectPod is one pod in full detail. What disappears meanwhile is left out (PLEG-18); a pod that is not there gives one
// without sandboxes and containers.
func (r *Runtime) InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	pod := &observed.Pod{UID: uid, At: time.Now()}
	runtime, err := r.runtimeName(ctx)
	if err != nil {
		return nil, err
	}
	sandboxes, err := r.sandboxesOf(ctx, uid)
	if err != nil {
		return nil, err
	}
	containers, err := r.containersOf(ctx, uid)
	if err != nil {
		return nil, err
	}
	for _, found := range collect(runtime, sandboxes, containers) {
		pod.Name = found.Name
		for _, sandbox := range found.Sandboxes {
			if err := r.inspectSandbox(ctx, pod, sandbox); err != nil {
				return nil, err
			}
		}
		for _, container := range found.Containers {
			if err := r.inspectContainer(ctx, pod, container); err != nil {
				return nil, err
			}
		}
	}
	pod.Sort()
	if newest, found := pod.NewestSandbox(); found && newest.Ready && newest.Network != nil {
		pod.IPs = newest.Network.IPs
	}
	return pod, nil
}

func (r *Runtime) inspectSandbox(ctx context.Context, pod *observed.Pod, sandbox observed.Sandbox) error {
	answer, err := r.pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.ID})
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cri: inspecting sandbox %s of pod %s: %w", sandbox.ID, pod.Name, err)
	}
	status := answer.GetStatus()
	if status == nil {
		return fmt.Errorf("cri: inspecting sandbox %s of pod %s: the runtime gave no status", sandbox.ID, pod.Name)
	}
	sandbox.Ready = status.State == runtimeapi.PodSandboxState_SANDBOX_READY
	sandbox.CreatedAt = time.Unix(0, status.CreatedAt)
	sandbox.HostNetwork = status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if status.Network != nil && !sandbox.HostNetwork {
		sandbox.Network = &observed.Network{IPs: sandboxIPs(status)}
	}
	pod.Sandboxes = append(pod.Sandboxes, sandbox)
	return nil
}

// sandboxIPs are the addresses that the runtime tells, as far as they are addresses.
func sandboxIPs(status *runtimeapi.PodSandboxStatus) []netip.Addr {
	written := []string{status.GetNetwork().GetIp()}
	for _, more := range status.GetNetwork().GetAdditionalIps() {
		written = append(written, more.GetIp())
	}
	var ips []netip.Addr
	for _, one := range written {
		if ip, err := netip.ParseAddr(one); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

func (r *Runtime) inspectContainer(ctx context.Context, pod *observed.Pod, listed observed.Container) error {
	answer, err := r.pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: listed.ID.ID})
	if isGone(err) {
		return nil
	}
	if err == nil && answer.GetStatus() == nil {
		err = errors.New("the runtime gave no status")
	}
	if err != nil {
		return fmt.Errorf("cri: inspecting container %s of pod %s: %w", listed.Name, pod.Name, err)
	}
	pod.Containers = append(pod.Containers, r.inspected(listed, answer.Status))
	return nil
}

// inspected is what a list told, with what a status tells beyond it.
func (r *Runtime) inspected(c observed.Container, status *runtimeapi.ContainerStatus) observed.Container {
	c.State = state(status.State)
	c.CreatedAt = time.Unix(0, status.CreatedAt)
	c.Image = observed.Image{Name: imageName(status.Image), Ref: status.ImageRef}
	c.Resources = resources(status.GetResources().GetLinux())
	c.User = user(status.GetUser().GetLinux())
	if c.State != observed.Created && status.StartedAt > 0 {
		c.StartedAt = time.Unix(0, status.StartedAt)
	}
	if c.State == observed.Exited {
		c.Exit = r.exit(status)
	}
	return c
}

// imageName is the name that the spec asked for. Runtimes that do not remember it tell one of the image's names.
func imageName(image *runtimeapi.ImageSpec) string {
	if asked := image.GetUserSpecifiedImage(); asked != "" {
		return asked
	}
	return image.GetImage()
}

func resources(limits *runtimeapi.LinuxContainerResources) *observed.Resources {
	if limits == nil {
		return nil
	}
	var told observed.Resources
	if limits.CpuPeriod > 0 && limits.CpuQuota > 0 {
		told.MilliCPULimit = new(limits.CpuQuota * 1000 / limits.CpuPeriod)
	}
	if limits.CpuShares > 0 {
		told.MilliCPURequest = new(milliCPU(limits.CpuShares))
	}
	if limits.MemoryLimitInBytes > 0 {
		told.MemoryLimitBytes = new(limits.MemoryLimitInBytes)
	}
	if told == (observed.Resources{}) {
		return nil
	}
	return &told
}

// milliCPU undoes cpuShares, rounding up what it rounded down.
func milliCPU(shares int64) int64 {
	return (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
}

func user(told *runtimeapi.LinuxContainerUser) *observed.User {
	if told == nil {
		return nil
	}
	return &observed.User{UID: told.Uid, GID: told.Gid, SupplementalGroups: told.SupplementalGroups}
}

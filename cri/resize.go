package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// ResizePod changes the pod's cgroup and its running containers step by step (RSZ-16). It calls actuated after each container
// that the runtime accepted, and for the pod under resize.PodLevel at the end. A limit of memory that is below its use changes
// nothing (RSZ-19). The first error ends it: a later call goes on from there.
func (r *Runtime) ResizePod(
	ctx context.Context, pod *v1.Pod, sandboxID string, change resize.Change, actuated func(string, resize.Quantities) error,
) error {
	var current, desired cgroup.Resources
	if r.config.Cgroups != nil {
		var err error
		if current, desired, err = r.config.Cgroups.ReadPod(ctx, pod); err != nil {
			return err
		}
	}
	steps := resize.Steps(current, desired, change.Containers)
	if resize.NeedsUsage(steps, current) {
		if err := resize.CheckMemory(steps, current, r.memoryUsage(ctx, podid.UID(pod.UID), change.Containers)); err != nil {
			return err
		}
	}
	p := &podResize{Runtime: r, pod: pod, sandboxID: sandboxID, current: current}
	for _, step := range steps {
		if step.Container == nil {
			if err := p.updatePod(ctx, step); err != nil {
				return err
			}
			continue
		}
		if err := p.updateContainer(ctx, step); err != nil {
			return err
		}
		if err := actuated(step.Container.Spec.Name, step.After); err != nil {
			return err
		}
	}
	return actuated(resize.PodLevel, resize.Of(pod)[resize.PodLevel])
}

// podResize is one call of ResizePod.
type podResize struct {
	*Runtime
	pod       *v1.Pod
	sandboxID string
	current   cgroup.Resources // of the pod's cgroup before this call
}

// updatePod tells the runtime what the sandbox gets, and then changes the pod's cgroup (RSZ-18). If that fails, the runtime is told
// the values of before.
func (p *podResize) updatePod(ctx context.Context, step resize.Step) error {
	resources, overhead := p.generator.SandboxUpdate(p.pod)
	if err := p.updateSandbox(ctx, resources, overhead); err != nil {
		return fmt.Errorf("update the %s of the sandbox: %w", step.Resource, err)
	}
	err := p.config.Cgroups.UpdatePod(ctx, p.pod, step.Pod)
	if err == nil {
		return nil
	}
	before := &runtimeapi.LinuxContainerResources{
		CpuShares: max(0, ptr.Deref(p.current.CPUShares, 0)), CpuQuota: max(0, ptr.Deref(p.current.CPUQuota, 0)),
		CpuPeriod: cgroup.QuotaPeriod, MemoryLimitInBytes: max(0, ptr.Deref(p.current.Memory, 0)),
	}
	return errors.Join(err, p.updateSandbox(ctx, before, overhead))
}

func (p *podResize) updateContainer(ctx context.Context, step resize.Step) error {
	_, err := p.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: step.Container.ID.ID,
		Linux:       p.generator.UpdatedResources(p.pod, step.Container.Spec, step.After.Requirements()),
	})
	if err != nil {
		return fmt.Errorf("update the %s of container %q: %w", step.Resource, step.Container.Spec.Name, err)
	}
	return nil
}

// updateSandbox tells the runtime the resources of the sandbox. Runtimes whose sandboxes are virtual machines need it; one that does
// not implement the call has nothing to change.
func (p *podResize) updateSandbox(ctx context.Context, resources, overhead *runtimeapi.LinuxContainerResources) error {
	err := p.callOptional(func(c *calls) *bool { return &c.sandboxUpdates }, func() error {
		_, err := p.runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: p.sandboxID, Resources: resources, Overhead: overhead,
		})
		// containerd 2.2 answers with another code.
		if grpcstatus.Code(err) == codes.Unknown && strings.Contains(err.Error(), "not implemented") {
			err = grpcstatus.Error(codes.Unimplemented, err.Error())
		}
		return err
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// memoryUsage returns the memory that the pod and these containers of it use: from their cgroups, otherwise as the runtime
// measures it.
func (r *Runtime) memoryUsage(ctx context.Context, uid podid.UID, containers []resize.Container) resize.Usage {
	result := resize.Usage{Containers: map[string]int64{}}
	if driver, err := r.CgroupDriver(ctx); err == nil && r.config.CgroupParent != "" {
		group := r.podGroup(driver, &load.PodSample{UID: uid})
		result.Pod = bytesOf(group.Read().Memory)
		for _, name := range group.Children() {
			for _, container := range containers {
				if bytes := bytesOf(group.Child(name).Read().Memory); cgroup.IsContainer(name, container.ID.ID) && bytes != nil {
					result.Containers[container.Spec.Name] = *bytes
				}
			}
		}
	}
	for _, container := range containers {
		if _, found := result.Containers[container.Spec.Name]; found {
			continue
		}
		response, err := r.runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: container.ID.ID})
		if usage := response.GetStats().GetMemory().GetUsageBytes(); err == nil && usage != nil {
			result.Containers[container.Spec.Name] = int64(usage.Value)
		}
	}
	return result
}

func bytesOf(value load.Value) *int64 {
	number, known := value.Get()
	if !known {
		return nil
	}
	return new(int64(number))
}

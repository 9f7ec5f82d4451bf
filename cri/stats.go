package cri

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/load"
)

// ListPodStats returns what the pods that run use. It asks the runtime for pods, or else for containers, and reads what the runtime
// does not measure from the files of the cgroups (RES-16, RES-21). A pod without a cgroup of its own has the sum of its containers.
//
// A source that fails is replaced by the next one; the error then says why, and the samples are complete nevertheless.
func (r *Runtime) ListPodStats(ctx context.Context) ([]load.PodSample, error) {
	var errs []error
	for _, list := range []func(context.Context) ([]load.PodSample, error){r.listSandboxStats, r.listContainerStats, r.listRunningPods} {
		samples, err := list(ctx)
		if err == nil {
			r.fillFromCgroups(ctx, samples)
			return samples, errors.Join(errs...)
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(errs...)
}

func (r *Runtime) listSandboxStats(ctx context.Context) ([]load.PodSample, error) {
	var response *runtimeapi.ListPodSandboxStatsResponse
	err := r.callOptional(func(c *calls) *bool { return &c.podStats }, func() (err error) {
		if err := r.checkPodStats(ctx); err != nil {
			return err
		}
		response, err = r.runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cri: list pod sandbox stats: %w", err)
	}
	return podSamples(response.GetStats()), nil
}

// checkPodStats fails with the code Unimplemented if the call for the stats of pods can crash the runtime. It asks the runtime for its
// version once per connection.
func (r *Runtime) checkPodStats(ctx context.Context) error {
	r.mu.Lock()
	isSafe, connection := r.unsupported.podStatsSafe, r.unsupported.connection
	r.mu.Unlock()
	if isSafe {
		return nil
	}
	name, release, err := r.Version(ctx)
	if err != nil {
		return err
	}
	if podStatsCrash(name, release) {
		return status.Errorf(codes.Unimplemented, "%s %s can crash at this call", name, release)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsupported.podStatsSafe = r.unsupported.connection == connection
	return nil
}

// podStatsCrash reports whether ListPodSandboxStats can crash a runtime of this name and version: containerd from 1.6.0 to 1.6.21
// changes its table of sandboxes while others read it (containerd#8130). Its ListContainerStats is safe.
func podStatsCrash(name, release string) bool {
	parsed, err := version.ParseGeneric(release)
	return err == nil && name == "containerd" &&
		parsed.AtLeast(version.MajorMinor(1, 6)) && parsed.LessThan(version.MustParseGeneric("1.6.22"))
}

func (r *Runtime) listContainerStats(ctx context.Context) ([]load.PodSample, error) {
	var response *runtimeapi.ListContainerStatsResponse
	err := r.callOptional(func(c *calls) *bool { return &c.containerStats }, func() (err error) {
		response, err = r.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cri: list container stats: %w", err)
	}
	return groupContainers(response.GetStats()), nil
}

// callOptional makes a call that runtimes may not implement. One that the runtime does not implement fails with
// errors.ErrUnsupported, and is not made again on the same connection.
func (r *Runtime) callOptional(unsupported func(*calls) *bool, call func() error) error {
	r.mu.Lock()
	isUnsupported, connection := *unsupported(&r.unsupported), r.unsupported.connection
	r.mu.Unlock()
	if isUnsupported {
		return errors.ErrUnsupported
	}
	err := call()
	if !isUnimplemented(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unsupported.connection == connection {
		*unsupported(&r.unsupported) = true
	}
	return errors.ErrUnsupported
}

// listRunningPods lists the pods that run without numbers.
func (r *Runtime) listRunningPods(ctx context.Context) ([]load.PodSample, error) {
	response, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, fmt.Errorf("cri: list containers: %w", err)
	}
	var pods podList
	for _, container := range response.GetContainers() {
		if pod := pods.pod(container.GetLabels()); pod != nil {
			pod.Containers = append(pod.Containers, load.ContainerSample{Name: container.GetMetadata().GetName(), ID: container.GetId()})
		}
	}
	return pods.samples, nil
}

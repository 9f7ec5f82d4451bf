package cri

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/podid"
)

// mountVolumes gives the container's mounts their host paths. release is to be called when the container runs, or will
// not; it is never nil.
func (r *Runtime) mountVolumes(ctx context.Context, pod *v1.Pod, container *v1.Container, values map[string]string) (
	mounts []*runtimeapi.Mount, release func() error, err error,
) {
	var bound []string
	release = func() error {
		var failed []error
		for _, place := range bound {
			failed = append(failed, releaseBind(place))
		}
		return errors.Join(failed...)
	}
	recursive := false
	if wantsRecursive(container) {
		if recursive, err = r.canMountRecursive(ctx, pod); err != nil {
			return nil, release, err
		}
	}
	translated, err := volumeMounts(pod, container, values, recursive)
	if err != nil {
		return nil, release, err
	}
	places := filepath.Join(r.config.podDir(podid.UID(pod.UID)), subPathsName, container.Name)
	for i, one := range translated {
		host, err := r.config.Provisioner.Path(pod, one.volume)
		if err != nil {
			return nil, release, fmt.Errorf("volume %s: %w", one.volume, err)
		}
		if one.deeper != "" {
			place := filepath.Join(places, strconv.Itoa(i))
			if err := bindBelow(host, one.deeper, place); err != nil {
				return nil, release, fmt.Errorf("volumeMounts[%d] of container %s: %w", i, container.Name, err)
			}
			bound = append(bound, place)
			host = place
		}
		one.mount.HostPath = host
		mounts = append(mounts, one.mount)
	}
	return mounts, release, nil
}

// canMountRecursive asks what the pod's handler can do. Runtimes before 2.0 of containerd say nothing, which means no.
func (r *Runtime) canMountRecursive(ctx context.Context, pod *v1.Pod) (bool, error) {
	status, err := r.pods.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return false, fmt.Errorf("asking the runtime what it can do: %w", err)
	}
	handler := r.config.handler(pod)
	for _, known := range status.GetRuntimeHandlers() {
		if known.GetName() == handler {
			return known.GetFeatures().GetRecursiveReadOnlyMounts(), nil
		}
	}
	return false, nil
}

// handler is the runtime's name for the pod's runtime class; "" is its default.
func (c *Config) handler(pod *v1.Pod) string {
	if pod.Spec.RuntimeClassName == nil {
		return ""
	}
	return c.RuntimeHandlers[*pod.Spec.RuntimeClassName]
}

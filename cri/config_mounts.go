package cri

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// volumeMount is one mount of a container as the runtime is to make it, its host path aside: deeper says where below the
// volume it begins, or "".
type volumeMount struct {
	volume string
	deeper string
	mount  *runtimeapi.Mount
}

// volumeMounts are the container's mounts, in order. recursive tells whether the runtime can make a mount read-only with
// all that is mounted below it.
func volumeMounts(pod *v1.Pod, container *v1.Container, values map[string]string, recursive bool) ([]volumeMount, error) {
	var mounts []volumeMount
	for i := range container.VolumeMounts {
		asked := &container.VolumeMounts[i]
		mount, err := translateMount(pod, asked, values, recursive)
		if err != nil {
			return nil, fmt.Errorf("volumeMounts[%d] of container %s: %w", i, container.Name, err)
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

func translateMount(pod *v1.Pod, asked *v1.VolumeMount, values map[string]string, recursive bool) (volumeMount, error) {
	volume, found := findVolume(pod, asked.Name)
	if !found {
		return volumeMount{}, fmt.Errorf("name: spec.volumes has no %q", asked.Name)
	}
	deeper, err := subPath(asked, values)
	if err != nil {
		return volumeMount{}, err
	}
	mount := &runtimeapi.Mount{
		ContainerPath:  absolute(asked.MountPath),
		Readonly:       asked.ReadOnly || isReadOnly(volume),
		SelinuxRelabel: volume.HostPath == nil,
	}
	if mount.Propagation, err = propagation(asked.MountPropagation); err != nil {
		return volumeMount{}, err
	}
	if mode := asked.RecursiveReadOnly; mode != nil && *mode != v1.RecursiveReadOnlyDisabled {
		if *mode == v1.RecursiveReadOnlyEnabled && !recursive {
			return volumeMount{}, fmt.Errorf("recursiveReadOnly: Enabled, but the runtime cannot do it; IfPossible lets it go")
		}
		mount.RecursiveReadOnly = recursive && asked.ReadOnly
	}
	return volumeMount{volume: asked.Name, deeper: deeper, mount: mount}, nil
}

func findVolume(pod *v1.Pod, name string) (*v1.Volume, bool) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i], true
		}
	}
	return nil, false
}

// isReadOnly: what is copied from the API is never written back, so a container cannot change it.
func isReadOnly(volume *v1.Volume) bool {
	return volume.ConfigMap != nil || volume.Secret != nil || volume.DownwardAPI != nil || volume.Projected != nil
}

func subPath(asked *v1.VolumeMount, values map[string]string) (string, error) {
	if asked.SubPathExpr == "" {
		return asked.SubPath, nil
	}
	expanded, unknown := expand(asked.SubPathExpr, values)
	if len(unknown) > 0 {
		return "", fmt.Errorf("subPathExpr: %q needs variables that the container does not have: %v", asked.SubPathExpr, unknown)
	}
	if expanded == "" {
		return "", fmt.Errorf("subPathExpr: %q is empty after expansion", asked.SubPathExpr)
	}
	return expanded, nil
}

func propagation(mode *v1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case v1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	default:
		return 0, fmt.Errorf("mountPropagation: %q is not known", *mode)
	}
}

// wantsRecursive tells whether any mount asks for what only the runtime's status can promise.
func wantsRecursive(container *v1.Container) bool {
	for i := range container.VolumeMounts {
		if mode := container.VolumeMounts[i].RecursiveReadOnly; mode != nil && *mode != v1.RecursiveReadOnlyDisabled {
			return true
		}
	}
	return false
}

// mountsAt tells whether the spec itself puts something there.
func mountsAt(container *v1.Container, place string) bool {
	for i := range container.VolumeMounts {
		if absolute(container.VolumeMounts[i].MountPath) == place {
			return true
		}
	}
	return false
}

func absolute(inside string) string { return path.Join("/", inside) }

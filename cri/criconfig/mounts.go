package criconfig

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// VolumeMount is one volume mount of a container. The caller sets Mount.HostPath to SubPath below the volume.
type VolumeMount struct {
	Volume  string
	SubPath string // "" for the whole volume
	Mount   *runtimeapi.Mount
}

// VolumeMounts returns the container's volume mounts in the order of its spec. values are its variables, for subPathExpr.
// recursiveReadOnly reports whether the runtime supports recursive read-only mounts.
func VolumeMounts(pod *v1.Pod, container *v1.Container, values map[string]string, recursiveReadOnly bool) ([]VolumeMount, error) {
	var mounts []VolumeMount
	for i := range container.VolumeMounts {
		mount, err := volumeMount(pod, &container.VolumeMounts[i], values, recursiveReadOnly)
		if err != nil {
			return nil, fmt.Errorf("volumeMounts[%d] of container %s: %w", i, container.Name, err)
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

func volumeMount(pod *v1.Pod, spec *v1.VolumeMount, values map[string]string, recursiveReadOnly bool) (VolumeMount, error) {
	volume, found := findVolume(pod, spec.Name)
	if !found {
		return VolumeMount{}, fmt.Errorf("name: volume %q not found in spec.volumes", spec.Name)
	}
	subPath, err := subPathOf(spec, values)
	if err != nil {
		return VolumeMount{}, err
	}
	mount := &runtimeapi.Mount{
		ContainerPath:  AbsolutePath(spec.MountPath),
		Readonly:       spec.ReadOnly || isReadOnly(volume),
		SelinuxRelabel: volume.HostPath == nil,
	}
	if mount.Propagation, err = propagation(spec.MountPropagation); err != nil {
		return VolumeMount{}, err
	}
	if mode := spec.RecursiveReadOnly; mode != nil && *mode != v1.RecursiveReadOnlyDisabled {
		if *mode == v1.RecursiveReadOnlyEnabled && !recursiveReadOnly {
			return VolumeMount{}, fmt.Errorf("recursiveReadOnly: Enabled is not supported by the runtime; use IfPossible")
		}
		mount.RecursiveReadOnly = recursiveReadOnly && spec.ReadOnly
	}
	return VolumeMount{Volume: spec.Name, SubPath: subPath, Mount: mount}, nil
}

func findVolume(pod *v1.Pod, name string) (*v1.Volume, bool) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i], true
		}
	}
	return nil, false
}

// isReadOnly reports whether containers must not write to the volume: content copied from the API is never written back.
func isReadOnly(volume *v1.Volume) bool {
	return volume.ConfigMap != nil || volume.Secret != nil || volume.DownwardAPI != nil || volume.Projected != nil
}

func subPathOf(spec *v1.VolumeMount, values map[string]string) (string, error) {
	if spec.SubPathExpr == "" {
		return spec.SubPath, nil
	}
	expanded, undefined := expand(spec.SubPathExpr, values)
	if len(undefined) > 0 {
		return "", fmt.Errorf("subPathExpr: %q refers to undefined variables: %v", spec.SubPathExpr, undefined)
	}
	if expanded == "" {
		return "", fmt.Errorf("subPathExpr: %q expands to an empty path", spec.SubPathExpr)
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
		return 0, fmt.Errorf("mountPropagation: unknown mode %q", *mode)
	}
}

// NeedsRecursiveReadOnly reports whether a mount of the container depends on the runtime's support for recursive read-only
// mounts.
func NeedsRecursiveReadOnly(container *v1.Container) bool {
	for i := range container.VolumeMounts {
		if mode := container.VolumeMounts[i].RecursiveReadOnly; mode != nil && *mode != v1.RecursiveReadOnlyDisabled {
			return true
		}
	}
	return false
}

// HasMountAt reports whether the container's spec mounts a volume at the path.
func HasMountAt(container *v1.Container, mountPath string) bool {
	for i := range container.VolumeMounts {
		if AbsolutePath(container.VolumeMounts[i].MountPath) == mountPath {
			return true
		}
	}
	return false
}

// AbsolutePath returns the clean absolute form of a path in a container.
func AbsolutePath(containerPath string) string { return path.Join("/", containerPath) }

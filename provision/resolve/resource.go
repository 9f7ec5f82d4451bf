package resolve

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// ContainerResource is a request or a limit of the container that ref names, or else of the one given, in units of the
// divisor, rounded up. A container without a limit may use what the pod may, and else what the node has to give.
func ContainerResource(
	pod *v1.Pod, container *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList,
) (string, error) {
	if ref.ContainerName != "" && (container == nil || container.Name != ref.ContainerName) {
		container = containerNamed(pod, ref.ContainerName)
	}
	switch {
	case container == nil && ref.ContainerName == "":
		return "", errors.New("resourceFieldRef.containerName: required")
	case container == nil:
		return "", fmt.Errorf("resourceFieldRef.containerName: the pod has no container %q", ref.ContainerName)
	}
	which, name, _ := strings.Cut(ref.Resource, ".")
	known := slices.Contains(defaultedLimits, v1.ResourceName(name)) || strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	if !known || which != "limits" && which != "requests" {
		return "", fmt.Errorf("resourceFieldRef.resource: %q is not known here", ref.Resource)
	}
	amount := container.Resources.Requests[v1.ResourceName(name)]
	if which == "limits" {
		amount = limitOf(pod, container, v1.ResourceName(name), allocatable)
	}
	return divided(amount, ref.Divisor, name == string(v1.ResourceCPU))
}

// defaultedLimits are limits that something else sets where the container does not. Huge pages have no such default.
var defaultedLimits = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}

func limitOf(pod *v1.Pod, container *v1.Container, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	limit := container.Resources.Limits[name]
	if !limit.IsZero() || !slices.Contains(defaultedLimits, name) {
		return limit
	}
	if pod.Spec.Resources != nil {
		if limit, set := pod.Spec.Resources.Limits[name]; set && !limit.IsZero() {
			return limit
		}
	}
	return allocatable[name]
}

// divided counts CPUs in thousandths and everything else in ones, as both are given out.
func divided(amount, divisor resource.Quantity, isCPU bool) (string, error) {
	if divisor.Sign() < 0 {
		return "", fmt.Errorf("resourceFieldRef.divisor: %s is below zero", divisor.String())
	}
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, unit := amount.Value(), divisor.Value()
	if isCPU {
		value, unit = amount.MilliValue(), divisor.MilliValue()
	}
	units := value / unit
	if value%unit > 0 {
		units++
	}
	return strconv.FormatInt(units, 10), nil
}

func containerNamed(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// EmptyDirMemorySize is how many bytes a volume in memory may hold: its sizeLimit, but no more than the pod's containers may use
// together, or the node has to give. 0 is the kernel's own limit.
func EmptyDirMemorySize(pod *v1.Pod, volume *v1.EmptyDirVolumeSource, allocatable v1.ResourceList) int64 {
	size := allocatable.Memory().Value()
	limits := []int64{podMemoryLimit(pod)}
	if volume.SizeLimit != nil {
		limits = append(limits, volume.SizeLimit.Value())
	}
	for _, limit := range limits {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	return size
}

// podMemoryLimit is 0 if a container may use as much as it likes.
func podMemoryLimit(pod *v1.Pod) int64 {
	if whole := pod.Spec.Resources; whole == nil || whole.Limits.Memory().IsZero() {
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if container.Resources.Limits.Memory().IsZero() {
				return 0
			}
		}
	}
	limits := helpers.PodLimits(pod, helpers.PodResourcesOptions{ExcludeOverhead: true})
	return limits.Memory().Value()
}

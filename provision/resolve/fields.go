package resolve

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// MetadataField returns a field of the pod's metadata as a downwardAPI volume shows it: name, namespace, uid, one label or
// annotation, or all of them, one per line.
func MetadataField(pod *v1.Pod, ref *v1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("fieldRef.apiVersion: %q is not v1", ref.APIVersion)
	}
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	}
	switch path, key, _ := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['"); {
	case path+"['"+key+"']" != ref.FieldPath || key == "":
	case path == "metadata.labels":
		return pod.Labels[key], nil
	case path == "metadata.annotations":
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("fieldRef.fieldPath: %q is not supported", ref.FieldPath)
}

func formatMap(values map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, key+"="+strconv.Quote(values[key]))
	}
	return strings.Join(lines, "\n")
}

// Addresses are the addresses that a container can refer to.
type Addresses struct {
	// Host are the node's, the primary one first.
	Host []netip.Addr
	// Pod are the pod's, in any order.
	Pod []netip.Addr
}

// PodField returns a field of the pod as a variable shows it: metadata, node, service account and addresses.
func PodField(pod *v1.Pod, ref *v1.ObjectFieldSelector, addresses Addresses) (string, error) {
	switch ref.FieldPath {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		if len(addresses.Host) == 0 {
			return "", fmt.Errorf("fieldRef.fieldPath: %s: the node's address is not known yet", ref.FieldPath)
		}
		return formatAddresses(addresses.Host, ref.FieldPath == "status.hostIPs"), nil
	case "status.podIP", "status.podIPs":
		return formatAddresses(addresses.orderedPodIPs(), ref.FieldPath == "status.podIPs"), nil
	}
	return MetadataField(pod, ref)
}

func formatAddresses(addresses []netip.Addr, all bool) string {
	if !all {
		addresses = addresses[:min(1, len(addresses))]
	}
	texts := make([]string, 0, len(addresses))
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	return strings.Join(texts, ",")
}

// orderedPodIPs returns the pod's addresses, beginning with the family of the node's primary address.
func (a Addresses) orderedPodIPs() []netip.Addr {
	prefersIPv6 := len(a.Host) > 0 && a.Host[0].Unmap().Is6()
	first := slices.DeleteFunc(slices.Clone(a.Pod), func(ip netip.Addr) bool { return ip.Unmap().Is6() != prefersIPv6 })
	second := slices.DeleteFunc(slices.Clone(a.Pod), func(ip netip.Addr) bool { return ip.Unmap().Is6() == prefersIPv6 })
	return append(first, second...)
}

// ContainerResource returns a request or limit in units of the divisor, rounded up: of the container that ref names,
// or else of the given one. The limit defaults to the pod's, then to the node's allocatable resources.
func ContainerResource(
	pod *v1.Pod, container *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList,
) (string, error) {
	if ref.ContainerName != "" && (container == nil || container.Name != ref.ContainerName) {
		container = findContainer(pod, ref.ContainerName)
	}
	switch {
	case container == nil && ref.ContainerName == "":
		return "", errors.New("resourceFieldRef.containerName: required")
	case container == nil:
		return "", fmt.Errorf("resourceFieldRef.containerName: the pod has no container %q", ref.ContainerName)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	isKnown := slices.Contains(defaultedLimits, v1.ResourceName(name)) || strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	if !isKnown || kind != "limits" && kind != "requests" {
		return "", fmt.Errorf("resourceFieldRef.resource: %q is not supported", ref.Resource)
	}
	amount := container.Resources.Requests[v1.ResourceName(name)]
	if kind == "limits" {
		amount = effectiveLimit(pod, container, v1.ResourceName(name), allocatable)
	}
	return divide(amount, ref.Divisor, name == string(v1.ResourceCPU))
}

// defaultedLimits lists resources whose limit has a default. Huge pages have none.
var defaultedLimits = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}

func effectiveLimit(pod *v1.Pod, container *v1.Container, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	limit := container.Resources.Limits[name]
	if !limit.IsZero() || !slices.Contains(defaultedLimits, name) {
		return limit
	}
	if pod.Spec.Resources != nil {
		if limit, isSet := pod.Spec.Resources.Limits[name]; isSet && !limit.IsZero() {
			return limit
		}
	}
	return allocatable[name]
}

// divide rounds up. It counts CPUs in thousandths and other resources in ones.
func divide(amount, divisor resource.Quantity, isCPU bool) (string, error) {
	if divisor.Sign() < 0 {
		return "", fmt.Errorf("resourceFieldRef.divisor: %s must not be negative", divisor.String())
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

func findContainer(pod *v1.Pod, name string) *v1.Container {
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

// EmptyDirMemorySize returns the size in bytes of an emptyDir in memory: its sizeLimit, but at most the memory limit of the
// pod and the node's allocatable memory. 0 means the kernel's default.
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

// podMemoryLimit returns 0 if a container has no limit.
func podMemoryLimit(pod *v1.Pod) int64 {
	if podResources := pod.Spec.Resources; podResources == nil || podResources.Limits.Memory().IsZero() {
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if container.Resources.Limits.Memory().IsZero() {
				return 0
			}
		}
	}
	limits := helpers.PodLimits(pod, helpers.PodResourcesOptions{ExcludeOverhead: true})
	return limits.Memory().Value()
}

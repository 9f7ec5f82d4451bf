package manifest

import (
	"cmp"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/heraldnode/herald/internal/image"
)

// setDefaults sets the defaults of the API server, so that a static pod equals its mirror pod. The order matters: pod-level
// requests derive from those of the containers, and both are rounded last.
func setDefaults(pod *v1.Pod) {
	spec := &pod.Spec
	for i := range spec.Containers {
		setRequests(&spec.Containers[i].Resources)
	}
	for i := range spec.InitContainers {
		setRequests(&spec.InitContainers[i].Resources)
	}
	if spec.Resources != nil {
		setPodResources(spec)
	}
	setSpecDefaults(spec)
	for i := range spec.Volumes {
		setVolumeDefaults(&spec.Volumes[i])
	}
	for i := range spec.Containers {
		setContainerDefaults(&spec.Containers[i], spec.HostNetwork)
	}
	for i := range spec.InitContainers {
		setContainerDefaults(&spec.InitContainers[i], spec.HostNetwork)
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

func setSpecDefaults(spec *v1.PodSpec) {
	setDefault(&spec.DNSPolicy, v1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, v1.RestartPolicyAlways)
	setDefault(&spec.SchedulerName, v1.DefaultSchedulerName)
	setPointer(&spec.SecurityContext, v1.PodSecurityContext{})
	setPointer(&spec.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	setPointer(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
}

// setRequests sets each missing request to its limit.
func setRequests(resources *v1.ResourceRequirements) {
	if resources.Limits != nil && resources.Requests == nil {
		resources.Requests = v1.ResourceList{}
	}
	resources.Requests = addMissing(resources.Requests, resources.Limits, func(v1.ResourceName) bool { return true })
}

// setPodResources sets the defaults of pod-level resources. The limit of huge pages is the sum of the containers' limits. A
// request is the sum of the containers' requests, or else the pod's limit.
func setPodResources(spec *v1.PodSpec) {
	pod := spec.Resources
	if len(pod.Limits) == 0 && len(pod.Requests) == 0 {
		return
	}
	pod.Limits = addMissing(pod.Limits, containerLimits(spec), func(name v1.ResourceName) bool {
		_, requested := pod.Requests[name]
		return isHugePages(name) && !requested
	})
	if len(pod.Limits) == 0 {
		return
	}
	pod.Requests = addMissing(pod.Requests, containerRequests(spec), func(name v1.ResourceName) bool {
		return isPodLevelResource(name) && isOvercommitAllowed(name)
	})
	pod.Requests = addMissing(pod.Requests, pod.Limits, isPodLevelResource)
}

// setDefault sets a value that is zero.
func setDefault[T comparable](value *T, defaultValue T) { *value = cmp.Or(*value, defaultValue) }

// setPointer sets a pointer that is nil.
func setPointer[T any](value **T, defaultValue T) {
	if *value == nil {
		*value = &defaultValue
	}
}

func setContainerDefaults(container *v1.Container, hostNetwork bool) {
	setDefault(&container.ImagePullPolicy, defaultPullPolicy(container.Image))
	setDefault(&container.TerminationMessagePath, v1.TerminationMessagePathDefault)
	setDefault(&container.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range container.Ports {
		port := &container.Ports[i]
		setDefault(&port.Protocol, v1.ProtocolTCP)
		if hostNetwork {
			setDefault(&port.HostPort, port.ContainerPort)
		}
	}
	for i := range container.Env {
		setEnvDefaults(container.Env[i].ValueFrom)
	}
	roundUp(container.Resources.Limits)
	roundUp(container.Resources.Requests)
	for _, probe := range []*v1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		setProbeDefaults(probe)
	}
	if container.Lifecycle != nil {
		for _, handler := range []*v1.LifecycleHandler{container.Lifecycle.PostStart, container.Lifecycle.PreStop} {
			if handler != nil {
				setHTTPGetDefaults(handler.HTTPGet)
			}
		}
	}
}

func setEnvDefaults(from *v1.EnvVarSource) {
	if from == nil {
		return
	}
	setFieldRefDefaults(from.FieldRef)
	if from.FileKeyRef != nil {
		setPointer(&from.FileKeyRef.Optional, false)
	}
}

func setFieldRefDefaults(ref *v1.ObjectFieldSelector) {
	if ref != nil {
		setDefault(&ref.APIVersion, "v1")
	}
}

func setProbeDefaults(probe *v1.Probe) {
	if probe == nil {
		return
	}
	setDefault(&probe.TimeoutSeconds, 1)
	setDefault(&probe.PeriodSeconds, 10)
	setDefault(&probe.SuccessThreshold, 1)
	setDefault(&probe.FailureThreshold, 3)
	setHTTPGetDefaults(probe.HTTPGet)
	if probe.GRPC != nil {
		setPointer(&probe.GRPC.Service, "")
	}
}

func setHTTPGetDefaults(get *v1.HTTPGetAction) {
	if get != nil {
		setDefault(&get.Path, "/")
		setDefault(&get.Scheme, v1.URISchemeHTTP)
	}
}

// defaultPullPolicy returns Always for an image with the tag latest, explicitly or by default, and IfNotPresent for all
// others. Like the kubelet, it returns IfNotPresent for a name that cannot be parsed.
func defaultPullPolicy(name string) v1.PullPolicy {
	parsed, err := image.Parse(name)
	if err == nil && parsed.IsLatest() {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// volumeSources returns the JSON names of the sources of a volume. A valid volume has one.
func volumeSources(volume *v1.Volume) []string {
	var set []string
	value := reflect.ValueOf(volume.VolumeSource)
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			set = append(set, name)
		}
	}
	return set
}

// setVolumeDefaults sets the defaults of the sources that a static pod may have. Others are rejected (CFG-10).
func setVolumeDefaults(volume *v1.Volume) {
	if len(volumeSources(volume)) == 0 {
		volume.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if volume.Image != nil {
		setDefault(&volume.Image.PullPolicy, defaultPullPolicy(volume.Image.Reference))
	}
	if volume.HostPath != nil {
		setPointer(&volume.HostPath.Type, v1.HostPathUnset)
	}
	if volume.DownwardAPI != nil {
		setPointer(&volume.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		setFileDefaults(volume.DownwardAPI.Items)
	}
	if volume.Projected != nil {
		setPointer(&volume.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for _, source := range volume.Projected.Sources {
			if source.DownwardAPI != nil {
				setFileDefaults(source.DownwardAPI.Items)
			}
		}
	}
	setNetworkVolumeDefaults(&volume.VolumeSource)
}

func setFileDefaults(files []v1.DownwardAPIVolumeFile) {
	for i := range files {
		setFieldRefDefaults(files[i].FieldRef)
	}
}

func setNetworkVolumeDefaults(source *v1.VolumeSource) {
	if source.ISCSI != nil {
		setDefault(&source.ISCSI.ISCSIInterface, "default")
	}
	if source.RBD != nil {
		setDefault(&source.RBD.RBDPool, "rbd")
		setDefault(&source.RBD.RadosUser, "admin")
		setDefault(&source.RBD.Keyring, "/etc/ceph/keyring")
	}
	if source.AzureDisk != nil {
		setPointer(&source.AzureDisk.CachingMode, v1.AzureDataDiskCachingReadWrite)
		setPointer(&source.AzureDisk.FSType, "ext4")
		setPointer(&source.AzureDisk.ReadOnly, false)
		setPointer(&source.AzureDisk.Kind, v1.AzureSharedBlobDisk)
	}
	if source.ScaleIO != nil {
		setDefault(&source.ScaleIO.StorageMode, "ThinProvisioned")
		setDefault(&source.ScaleIO.FSType, "xfs")
	}
}

// isHugePages reports whether the resource is a huge page size, such as hugepages-2Mi.
func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isNative reports whether the resource is defined by Kubernetes, such as every name without a domain.
func isNative(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// isOvercommitAllowed reports whether a request may be lower than its limit.
func isOvercommitAllowed(name v1.ResourceName) bool { return isNative(name) && !isHugePages(name) }

// isPodLevelResource reports whether the resource may be requested at pod level.
func isPodLevelResource(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || isHugePages(name)
}

// containerRequests returns the peak sum of the requests of all containers.
func containerRequests(spec *v1.PodSpec) v1.ResourceList {
	return resourcehelper.AggregateContainerRequests(&v1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
}

// containerLimits returns the peak sum of the limits of all containers.
func containerLimits(spec *v1.PodSpec) v1.ResourceList {
	return resourcehelper.AggregateContainerLimits(&v1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
}

// addMissing adds the quantities of list that target lacks, for the names that match, and returns the target.
func addMissing(target, list v1.ResourceList, match func(v1.ResourceName) bool) v1.ResourceList {
	for name, quantity := range list {
		if _, exists := target[name]; exists || !match(name) {
			continue
		}
		if target == nil {
			target = v1.ResourceList{}
		}
		target[name] = quantity.DeepCopy()
	}
	return target
}

// roundUp rounds every quantity up to thousandths, the precision of the API.
func roundUp(list v1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

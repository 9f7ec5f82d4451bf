package eviction

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/heraldnode/herald/derive"
)

// Usage is what a pod uses of the node's disk, in bytes.
type Usage struct {
	// Volumes are the volumes on disk, by name.
	Volumes map[string]int64
	// Containers are logs and writable layers, by name.
	Containers map[string]int64
	// Files are the pod's other files on the node: its hosts file and termination messages.
	Files int64
}

// Total returns the sum.
func (u Usage) Total() int64 {
	total := u.Files
	for _, bytes := range u.Volumes {
		total += bytes
	}
	for _, bytes := range u.Containers {
		total += bytes
	}
	return total
}

// Violation is a limit that a pod exceeds.
type Violation struct {
	// Signal is the kubelet's label of the metric kubelet_evictions.
	Signal string
	// Message is the kubelet's message of the pod status, with a trailing blank.
	Message string
}

// The kubelet's signals.
const (
	SignalEmptyDir  = "emptydirfs.limit"
	SignalPod       = "ephemeralpodfs.limit"
	SignalContainer = "ephemeralcontainerfs.limit"
)

// Reason is the reason of the status of evicted pods, and of their event.
const Reason = "Evicted"

// LimitsContainers reports whether a container of the pod has a limit of ephemeral storage, so that everything the pod uses counts.
func LimitsContainers(pod *v1.Pod) bool {
	_, found := storageLimit(pod)
	return found
}

// LimitsVolumes reports whether an emptyDir on disk has a size limit. One in memory cannot exceed it.
func LimitsVolumes(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if isLimited(&pod.Spec.Volumes[i]) {
			return true
		}
	}
	return false
}

func isLimited(volume *v1.Volume) bool {
	source := volume.EmptyDir
	return source != nil && source.Medium == v1.StorageMediumDefault && source.SizeLimit != nil && source.SizeLimit.Sign() > 0
}

func storageLimit(pod *v1.Pod) (limit resource.Quantity, found bool) {
	limit, found = resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	return limit, found
}

// CheckLocalLimits returns the first limit that the pod exceeds, or nil: those of its volumes, of the pod, of its containers.
func CheckLocalLimits(pod *v1.Pod, usage Usage) *Violation {
	for i := range pod.Spec.Volumes { // EVI-25
		volume := &pod.Spec.Volumes[i]
		if isLimited(volume) && usage.Volumes[volume.Name] > volume.EmptyDir.SizeLimit.Value() {
			return &Violation{
				SignalEmptyDir, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", volume.Name, volume.EmptyDir.SizeLimit),
			}
		}
	}
	// The limits of some containers bind all (EVI-26).
	if limit, found := storageLimit(pod); found && usage.Total() > limit.Value() {
		return &Violation{SignalPod, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", &limit)}
	}
	for i := range pod.Spec.Containers { // EVI-27
		container := &pod.Spec.Containers[i]
		limit := container.Resources.Limits.StorageEphemeral()
		if limit.Value() != 0 && usage.Containers[container.Name] > limit.Value() {
			return &Violation{
				SignalContainer, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", container.Name, limit),
			}
		}
	}
	return nil
}

// SetStatus makes the status that of a pod that was evicted at a time (EVI-20). The kubelet sets the condition for pressure of the node
// only; with it, a Job can tell evictions for a limit from failures, too.
func SetStatus(status *v1.PodStatus, pod *v1.Pod, message string, at time.Time) {
	status.Phase, status.Reason, status.Message = v1.PodFailed, Reason, message
	derive.SetDisruptionTarget(status, pod, message, at)
}

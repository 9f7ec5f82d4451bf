package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/load"
)

// Pod is a pod that may be evicted.
type Pod struct {
	// Object has the resources that are allocated to the pod.
	Object *v1.Pod
	// Usage is nil if the pod was not measured.
	Usage *PodUsage
}

// PodUsage is what a pod uses of the node. What is not known counts as zero.
type PodUsage struct {
	// Memory is the working set in bytes, PIDs the number of processes.
	Memory, PIDs load.Value
	Containers   []ContainerUsage
	// Volumes are the local volumes together: emptyDirs on disk and configMaps.
	Volumes Space
}

// ContainerUsage is what a container uses of the node.
type ContainerUsage struct {
	Name string
	// Memory is the working set in bytes.
	Memory      load.Value
	Layer, Logs Space
}

// Space is space on a disk.
type Space struct{ Bytes, Inodes load.Value }

// Eviction is the end of a pod.
type Eviction struct {
	Pod         *v1.Pod
	GracePeriod time.Duration
	// Signal is the label of the metric kubelet_evictions.
	Signal string
	// Message is the kubelet's, with a trailing blank.
	Message string
	// Annotations are those of the event.
	Annotations map[string]string
}

// Annotations of the event of an eviction, the kubelet's (EVI-22).
const (
	annotationContainers      = "offending_containers"
	annotationContainersUsage = "offending_containers_usage"
	annotationPod             = "offending_pod"
	annotationPodUsage        = "offending_pod_usage"
	annotationResource        = "starved_resource"
)

// minGracePeriod is the grace period of hard thresholds, and the shortest of soft ones.
const minGracePeriod = time.Second

// Victim returns the pod to evict, or nil if there is none: critical pods stay (EVI-18).
func (s *Starved) Victim(pods []Pod) *Eviction {
	candidates := slices.DeleteFunc(slices.Clone(pods), func(pod Pod) bool { return derive.IsCritical(pod.Object) })
	if len(candidates) == 0 {
		return nil
	}
	victim := slices.MinFunc(candidates, s.compare)
	eviction := &Eviction{Pod: victim.Object, GracePeriod: s.gracePeriod(victim.Object), Signal: string(s.Threshold.Signal)}
	eviction.Message, eviction.Annotations = s.message(&victim)
	return eviction
}

// NeedsDisk reports whether the disks of pods must be measured to find a victim.
func (s *Starved) NeedsDisk() bool {
	return s.Resource == v1.ResourceEphemeralStorage || s.Resource == resourceInodes
}

// gracePeriod returns the time that the pod has to end (EVI-19). The kubelet gives pods no more than a second if the maximum is
// negative; its flag says that the pod decides then.
func (s *Starved) gracePeriod(pod *v1.Pod) time.Duration {
	if s.Threshold.isHard() {
		return minGracePeriod
	}
	period := s.maxPodGracePeriod
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		own := time.Duration(*seconds) * time.Second
		if period < 0 {
			period = own
		}
		period = min(period, own)
	}
	return max(period, minGracePeriod)
}

// compare orders pods by who goes first: those that were not measured, those that use more than they requested, those of low priority,
// those that use most beyond their request (EVI-15, EVI-16). For process IDs, only priority and number count (EVI-17).
func (s *Starved) compare(a, b Pod) int {
	priority := cmp.Compare(priorityOf(a.Object), priorityOf(b.Object))
	measured := trueFirst(a.Usage == nil, b.Usage == nil)
	beyondA, beyondB := s.beyondRequest(&a), s.beyondRequest(&b)
	amount := beyondB.Cmp(beyondA)
	names := cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	if s.Resource == resourcePIDs {
		return cmp.Or(priority, measured, amount, names)
	}
	if a.Usage == nil || b.Usage == nil { // the kubelet does not look at the request of a pod that it has not measured
		return cmp.Or(measured, priority, names)
	}
	return cmp.Or(trueFirst(beyondA.Sign() > 0, beyondB.Sign() > 0), priority, amount, names)
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// beyondRequest returns how much more than its request the pod uses. Inodes and process IDs cannot be requested; the kubelet subtracts
// the request of bytes from inodes (BUG-142).
func (s *Starved) beyondRequest(pod *Pod) resource.Quantity {
	beyond := *resource.NewQuantity(s.usage(pod.Usage), resource.BinarySI)
	if s.Resource == v1.ResourceMemory || s.Resource == v1.ResourceEphemeralStorage {
		beyond.Sub(podRequest(pod.Object, s.Resource))
	}
	return beyond
}

// podRequest returns what the pod requests, with its overhead unless it requests nothing.
func podRequest(pod *v1.Pod, name v1.ResourceName) resource.Quantity {
	options := resourcehelper.PodResourcesOptions{
		SkipContainerLevelResources: resourcehelper.IsPodLevelResourcesSet(pod), ExcludeOverhead: true,
	}
	request := resourcehelper.PodRequests(pod, options)[name]
	if overhead, found := pod.Spec.Overhead[name]; found && !request.IsZero() {
		request.Add(overhead)
	}
	return request
}

// usage returns what the pod uses of the resource, on the disk of the signal.
func (s *Starved) usage(pod *PodUsage) int64 {
	if pod == nil {
		return 0
	}
	switch s.Resource {
	case v1.ResourceMemory:
		return number(pod.Memory)
	case resourcePIDs:
		return number(pod.PIDs)
	}
	counted := s.layout.parts(s.Threshold.Signal)
	of := func(space Space) int64 {
		if s.Resource == resourceInodes {
			return number(space.Inodes)
		}
		return number(space.Bytes)
	}
	var total int64
	if counted.volumes {
		total += of(pod.Volumes)
	}
	for _, container := range pod.Containers {
		if counted.layers {
			total += of(container.Layer)
		}
		if counted.logs {
			total += of(container.Logs)
		}
	}
	return total
}

func number(value load.Value) int64 {
	known, _ := value.Get()
	return int64(known)
}

// message returns why the pod was chosen (EVI-21), and the annotations of the event.
func (s *Starved) message(pod *Pod) (string, map[string]string) {
	quantity := s.Threshold.Value.of(s.Observation.Capacity)
	text := fmt.Sprintf("The node was low on resource: %v. Threshold quantity: %v, available: %v. ",
		s.Resource, &quantity, s.Observation.available(s.Threshold.Signal))
	annotations := map[string]string{}
	if pod.Usage == nil {
		return text, annotations
	}
	if request, found := s.podLevelRequest(pod); found {
		used := resource.NewQuantity(number(pod.Usage.Memory), resource.BinarySI)
		text += fmt.Sprintf("Pod %s was using %s, request is %s, has larger consumption of %v. ", pod.Object.Name, used, &request, s.Resource)
		annotations[annotationPod], annotations[annotationPodUsage] = pod.Object.Name, used.String()
	}
	var names, amounts []string
	for i := range pod.Usage.Containers {
		container := &pod.Usage.Containers[i]
		request, found := containerRequest(pod.Object, container.Name, s.Resource)
		used, known := s.containerUsage(container)
		if !found || !known || used.Cmp(request) <= 0 {
			continue
		}
		text += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %v. ",
			container.Name, used, &request, s.Resource)
		names, amounts = append(names, container.Name), append(amounts, used.String())
	}
	annotations[annotationContainers], annotations[annotationContainersUsage] = strings.Join(names, ","), strings.Join(amounts, ",")
	annotations[annotationResource] = string(s.Resource)
	return text, annotations
}

// podLevelRequest returns the memory that is requested at the level of the pod, if that is starved.
func (s *Starved) podLevelRequest(pod *Pod) (resource.Quantity, bool) {
	if s.Resource != v1.ResourceMemory || !pod.Usage.Memory.IsKnown() || !resourcehelper.IsPodLevelResourcesSet(pod.Object) {
		return resource.Quantity{}, false
	}
	request, found := pod.Object.Spec.Resources.Requests[v1.ResourceMemory]
	return request, found
}

// containerRequest returns what a regular or init container requests. Ephemeral containers cannot request anything.
func containerRequest(pod *v1.Pod, container string, name v1.ResourceName) (resource.Quantity, bool) {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if c.Name == container {
			return c.Resources.Requests[name], true
		}
	}
	return resource.Quantity{}, false
}

// containerUsage returns what the container uses of the resource, and false if it was not measured.
func (s *Starved) containerUsage(container *ContainerUsage) (*resource.Quantity, bool) {
	used := load.Value{}
	switch s.Resource {
	case v1.ResourceMemory:
		used = container.Memory
	case v1.ResourceEphemeralStorage:
		used = container.Layer.Bytes.Plus(container.Logs.Bytes)
	}
	return resource.NewQuantity(number(used), resource.BinarySI), used.IsKnown()
}

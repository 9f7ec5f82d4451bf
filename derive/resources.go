package derive

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Smallest values that a cgroup can represent. If both the allocated and the enforced value are at or below them, the
// allocated one is shown: the difference is rounding.
const (
	minMilliCPURequest = 2
	minMilliCPULimit   = 10
	noMinimum          = -1
)

// containerResources returns the allocated resources, and for a running container those that the runtime enforces. Values
// that the runtime does not report are taken from the previous status of the same instance (PH-39).
func containerResources(
	container *v1.Container, instance *observed.Container, previous *v1.ContainerStatus,
) *v1.ResourceRequirements {
	resources := container.Resources.DeepCopy()
	if instance.State != observed.Running {
		return resources
	}
	published := &v1.ResourceRequirements{}
	if previous != nil && previous.Resources != nil && previous.State.Running != nil &&
		previous.ContainerID == instance.ID.String() {
		published = previous.Resources
	}
	enforced := newQuantities(instance.Resources)
	if resources.Limits != nil {
		setEnforced(resources.Limits, v1.ResourceCPU, enforced.cpuLimit, published.Limits, minMilliCPULimit)
		setEnforced(resources.Limits, v1.ResourceMemory, enforced.memoryLimit, published.Limits, noMinimum)
	}
	if resources.Requests != nil {
		setEnforced(resources.Requests, v1.ResourceCPU, enforced.cpuRequest, published.Requests, minMilliCPURequest)
		setEnforced(resources.Requests, v1.ResourceMemory, enforced.memoryRequest, published.Requests, noMinimum)
	}
	return resources
}

// quantities are the enforced resources in the API's form. A nil field is not reported by the runtime.
type quantities struct {
	cpuRequest, cpuLimit, memoryRequest, memoryLimit *resource.Quantity
}

func newQuantities(resources *observed.Resources) quantities {
	if resources == nil {
		return quantities{}
	}
	milli := func(value *int64) *resource.Quantity {
		if value == nil {
			return nil
		}
		return resource.NewMilliQuantity(*value, resource.DecimalSI)
	}
	bytes := func(value *int64) *resource.Quantity {
		if value == nil {
			return nil
		}
		return resource.NewQuantity(*value, resource.BinarySI)
	}
	return quantities{
		cpuRequest: milli(resources.MilliCPURequest), cpuLimit: milli(resources.MilliCPULimit),
		memoryRequest: bytes(resources.MemoryRequestBytes), memoryLimit: bytes(resources.MemoryLimitBytes),
	}
}

// setEnforced sets the enforced value in the list, or the published one if the enforced value is not known.
func setEnforced(
	list v1.ResourceList, name v1.ResourceName, enforced *resource.Quantity, published v1.ResourceList, minimum int64,
) {
	if enforced == nil {
		if quantity, ok := published[name]; ok {
			list[name] = quantity
		}
		return
	}
	allocated := list[name]
	if minimum == noMinimum || enforced.MilliValue() > minimum || allocated.MilliValue() > minimum {
		list[name] = *enforced
	}
}

// podResources returns the resources of the pod as a whole: those that its own cgroup enforces while it runs, else the
// allocated ones. As in the kubelet, the API server's phase determines whether it runs.
func (d *derivation) podResources() *v1.ResourceRequirements {
	resources := d.Pod.Spec.Resources.DeepCopy()
	if resources == nil {
		resources = &v1.ResourceRequirements{}
	}
	if d.Pod.Status.Phase != v1.PodRunning {
		resources.Requests = podRequests(d.Pod)
		resources.Limits = podLimits(d.Pod)
		return resources
	}
	if resources.Requests == nil {
		resources.Requests = v1.ResourceList{}
	}
	if resources.Limits == nil {
		resources.Limits = v1.ResourceList{}
	}
	published := &v1.ResourceRequirements{}
	if d.previous.Phase == v1.PodRunning && d.previous.Resources != nil {
		published = d.previous.Resources
	}
	if _, ok := resources.Requests[v1.ResourceMemory]; !ok {
		if total, ok := podRequests(d.Pod)[v1.ResourceMemory]; ok {
			resources.Requests[v1.ResourceMemory] = total
		}
	}
	enforced := newQuantities(d.runtimePod.Resources)
	setEnforced(resources.Requests, v1.ResourceCPU, enforced.cpuRequest, published.Requests, minMilliCPURequest)
	setEnforced(resources.Requests, v1.ResourceMemory, enforced.memoryRequest, published.Requests, noMinimum)
	setEnforced(resources.Limits, v1.ResourceCPU, enforced.cpuLimit, published.Limits, minMilliCPULimit)
	setEnforced(resources.Limits, v1.ResourceMemory, enforced.memoryLimit, published.Limits, noMinimum)
	return resources
}

// podRequests returns what the scheduler counts for the pod: the sum of its containers, overridden by pod-level requests,
// plus overhead.
func podRequests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

// podLimits is podRequests for limits.
func podLimits(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
}

// criticalPriority is the lowest priority of critical pods.
const criticalPriority = 2_000_000_000

// IsCritical reports whether others are preempted for the pod, and it is not evicted: static pods would not come back (ADM-25).
func IsCritical(pod *v1.Pod) bool {
	return podid.IsStatic(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}

// QOSClass returns the pod's quality of service class. The class that was set at creation never changes; without one it is
// computed from the pod's resources (PH-48).
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	var total totalResources
	if podLevel := pod.Spec.Resources; podLevel != nil {
		total.add(podLevel)
		total.allLimited = len(podLevel.Limits) == 0 || hasBothLimits(podLevel.Limits)
	} else {
		total.allLimited = true
		total.addContainers(pod.Spec.Containers)
		total.addContainers(pod.Spec.InitContainers)
	}
	return total.qosClass()
}

// totalResources sums up the CPU and memory of a pod's containers. Other resources do not affect the QoS class.
type totalResources struct {
	cpu, memory struct{ request, limit resource.Quantity }
	allLimited  bool // every container limits both CPU and memory
}

func (t *totalResources) addContainers(containers []v1.Container) {
	for i := range containers {
		resources := &containers[i].Resources
		t.add(resources)
		t.allLimited = t.allLimited && hasBothLimits(resources.Limits)
	}
}

func (t *totalResources) add(resources *v1.ResourceRequirements) {
	addPositive(&t.cpu.request, resources.Requests, v1.ResourceCPU)
	addPositive(&t.cpu.limit, resources.Limits, v1.ResourceCPU)
	addPositive(&t.memory.request, resources.Requests, v1.ResourceMemory)
	addPositive(&t.memory.limit, resources.Limits, v1.ResourceMemory)
}

func addPositive(total *resource.Quantity, list v1.ResourceList, name v1.ResourceName) {
	if quantity, ok := list[name]; ok && quantity.Sign() > 0 {
		total.Add(quantity)
	}
}

func hasBothLimits(limits v1.ResourceList) bool {
	cpu, memory := limits[v1.ResourceCPU], limits[v1.ResourceMemory]
	return cpu.Sign() > 0 && memory.Sign() > 0
}

func (t *totalResources) qosClass() v1.PodQOSClass {
	cpu, memory := &t.cpu, &t.memory
	if cpu.request.IsZero() && cpu.limit.IsZero() && memory.request.IsZero() && memory.limit.IsZero() {
		return v1.PodQOSBestEffort
	}
	if t.allLimited && cpu.request.Cmp(cpu.limit) == 0 && memory.request.Cmp(memory.limit) == 0 {
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

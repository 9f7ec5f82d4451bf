package heraldtest

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resetNewPod makes a pod of what a client posted: the status is the server's own.
func resetNewPod(pod *v1.Pod) {
	defaultPodSpec(&pod.Spec)
	pod.Generation = 1
	pod.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: qosClassOf(&pod.Spec)}
}

// defaultPodSpec sets those defaults that the server's own rules read.
func defaultPodSpec(spec *v1.PodSpec) {
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = v1.RestartPolicyAlways
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(v1.DefaultTerminationGracePeriodSeconds))
	}
}

// keepPodStatus is for writes to the pod itself.
func keepPodStatus(updated, old *v1.Pod) {
	updated.Status = *old.Status.DeepCopy()
	raiseGeneration(updated, old)
}

func raiseGeneration(updated, old *v1.Pod) {
	if updated.Generation == old.Generation && !equality.Semantic.DeepEqual(updated.Spec, old.Spec) {
		updated.Generation++
	}
}

// keepAllButPodStatus is for writes to the status subresource; what a status must not lose is restored too.
func keepAllButPodStatus(updated, old *v1.Pod) {
	updated.Spec = *old.Spec.DeepCopy()
	updated.OwnerReferences = old.DeepCopy().OwnerReferences
	status := &updated.Status
	if status.QOSClass == "" {
		status.QOSClass = old.Status.QOSClass
	}
	if status.ObservedGeneration == 0 {
		status.ObservedGeneration = old.Status.ObservedGeneration
	}
	for i, condition := range status.Conditions {
		before := slices.IndexFunc(old.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == condition.Type })
		if condition.ObservedGeneration == 0 && before >= 0 {
			status.Conditions[i].ObservedGeneration = old.Status.Conditions[before].ObservedGeneration
		}
	}
	alignPodIPs(status)
}

// alignPodIPs makes podIP and the first of podIPs the same address; where they differ, podIP wins.
func alignPodIPs(status *v1.PodStatus) {
	if status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP) {
		status.PodIPs = []v1.PodIP{{IP: status.PodIP}}
	}
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
}

func refusePodStatus(updated, old *v1.Pod) field.ErrorList {
	status := field.NewPath("status")
	errs := validation.ValidateImmutableField(updated.Status.QOSClass, old.Status.QOSClass, status.Child("qosClass"))
	errs = append(errs, refuseResurrections(updated, old)...)
	var podIPs, hostIPs []string
	for _, ip := range updated.Status.PodIPs {
		podIPs = append(podIPs, ip.IP)
	}
	for _, ip := range updated.Status.HostIPs {
		hostIPs = append(hostIPs, ip.IP)
	}
	errs = append(errs, refuseIPs(status.Child("podIPs"), podIPs)...)
	if len(hostIPs) > 0 && hostIPs[0] != updated.Status.HostIP {
		errs = append(errs, field.Invalid(status.Child("hostIPs").Index(0).Child("ip"), hostIPs[0], "must be equal to `hostIP`"))
	}
	return append(errs, refuseIPs(status.Child("hostIPs"), hostIPs)...)
}

// refuseIPs wants addresses, and at most one of each family.
func refuseIPs(path *field.Path, ips []string) field.ErrorList {
	var errs field.ErrorList
	var families []bool
	for i, ip := range ips {
		address, err := netip.ParseAddr(ip)
		if err != nil {
			errs = append(errs, field.Invalid(path.Index(i), ip, "must be a valid IP address"))
			continue
		}
		if slices.Contains(families, address.Is4()) {
			errs = append(errs, field.Invalid(path, ips, "may specify no more than one IP for each IP family"))
		}
		families = append(families, address.Is4())
	}
	return errs
}

// podGracePeriod is zero for a pod that no node can have running.
func podGracePeriod(pod *v1.Pod, asked *int64) int64 {
	if pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return 0
	}
	seconds := asked
	if seconds == nil {
		seconds = pod.Spec.TerminationGracePeriodSeconds
	}
	switch {
	case seconds == nil:
		return 0
	case *seconds < 0:
		return 1
	}
	return *seconds
}

// qosClassOf looks at cpu and memory alone, the pod's own or else its containers': nothing asked for is BestEffort, limits
// on both that no request falls short of are Guaranteed.
func qosClassOf(spec *v1.PodSpec) v1.PodQOSClass {
	var wanted []v1.ResourceRequirements
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		wanted = append(wanted, container.Resources)
	}
	if spec.Resources != nil {
		wanted = []v1.ResourceRequirements{*spec.Resources}
	}
	asks, guaranteed := false, true
	for _, resources := range wanted {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := resources.Requests[name], resources.Limits[name]
			asks = asks || !request.IsZero() || !limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && (request.IsZero() || request.Cmp(limit) == 0)
		}
	}
	switch {
	case !asks:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

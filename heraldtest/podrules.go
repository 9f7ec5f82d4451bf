package heraldtest

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// preparePodCreate resets the status and generation of a pod that a client creates.
func preparePodCreate(pod *v1.Pod) {
	defaultPodSpec(&pod.Spec)
	pod.Generation = 1
	pod.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: qosClass(&pod.Spec)}
}

// defaultPodSpec sets the defaults that the server's own rules depend on.
func defaultPodSpec(spec *v1.PodSpec) {
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = v1.RestartPolicyAlways
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(v1.DefaultTerminationGracePeriodSeconds))
	}
}

// preparePodUpdate restores the status: a write to the pod cannot change it.
func preparePodUpdate(updated, old *v1.Pod) {
	updated.Status = *old.Status.DeepCopy()
	incrementGeneration(updated, old)
}

// incrementGeneration increments the generation if the spec changed.
func incrementGeneration(updated, old *v1.Pod) {
	if updated.Generation == old.Generation && !equality.Semantic.DeepEqual(updated.Spec, old.Spec) {
		updated.Generation++
	}
}

// preparePodStatusUpdate restores the spec and owners, and the status fields that cannot be cleared.
func preparePodStatusUpdate(updated, old *v1.Pod) {
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

// alignPodIPs makes podIP equal to the first of podIPs. If they differ, podIP takes precedence.
func alignPodIPs(status *v1.PodStatus) {
	if status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP) {
		status.PodIPs = []v1.PodIP{{IP: status.PodIP}}
	}
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
}

// podGracePeriod returns the grace period of a deletion. It is zero if no node can be running the pod.
func podGracePeriod(pod *v1.Pod, requested *int64) int64 {
	if pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return 0
	}
	seconds := requested
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

// qosClass computes the QoS class from the CPU and memory resources of the pod, or of its containers if the pod sets none:
// BestEffort without requests and limits, Guaranteed if both limits are set and no request is lower, otherwise Burstable.
func qosClass(spec *v1.PodSpec) v1.PodQOSClass {
	var requirements []v1.ResourceRequirements
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		requirements = append(requirements, container.Resources)
	}
	if spec.Resources != nil {
		requirements = []v1.ResourceRequirements{*spec.Resources}
	}
	bestEffort, guaranteed := true, true
	for _, resources := range requirements {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := resources.Requests[name], resources.Limits[name]
			bestEffort = bestEffort && request.IsZero() && limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && (request.IsZero() || request.Cmp(limit) == 0)
		}
	}
	switch {
	case bestEffort:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

func validatePodStatus(updated, old *v1.Pod) field.ErrorList {
	path := field.NewPath("status")
	errs := validation.ValidateImmutableField(updated.Status.QOSClass, old.Status.QOSClass, path.Child("qosClass"))
	errs = append(errs, validateContainerStates(updated, old)...)
	var podIPs, hostIPs []string
	for _, ip := range updated.Status.PodIPs {
		podIPs = append(podIPs, ip.IP)
	}
	for _, ip := range updated.Status.HostIPs {
		hostIPs = append(hostIPs, ip.IP)
	}
	errs = append(errs, validateIPs(path.Child("podIPs"), podIPs)...)
	if len(hostIPs) > 0 && hostIPs[0] != updated.Status.HostIP {
		errs = append(errs, field.Invalid(path.Child("hostIPs").Index(0).Child("ip"), hostIPs[0], "must be equal to `hostIP`"))
	}
	return append(errs, validateIPs(path.Child("hostIPs"), hostIPs)...)
}

// validateIPs requires valid addresses, at most one of each IP family.
func validateIPs(path *field.Path, ips []string) field.ErrorList {
	var errs field.ErrorList
	var families []bool // true for IPv4
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

// validateContainerStates rejects that a container leaves the terminated state, unless it may restart.
func validateContainerStates(updated, old *v1.Pod) field.ErrorList {
	if canRestartAllContainers(&old.Spec) {
		return nil
	}
	path := field.NewPath("status")
	canRestartRegular := func(status v1.ContainerStatus) bool { return canRestart(&old.Spec, old.Spec.Containers, status) }
	canRestartInit := func(status v1.ContainerStatus) bool { return canRestart(&old.Spec, old.Spec.InitContainers, status) }
	never := func(v1.ContainerStatus) bool { return false }
	return slices.Concat(
		validateTerminated(path.Child("containerStatuses"),
			updated.Status.ContainerStatuses, old.Status.ContainerStatuses, canRestartRegular),
		validateTerminated(path.Child("initContainerStatuses"),
			updated.Status.InitContainerStatuses, old.Status.InitContainerStatuses, canRestartInit),
		validateTerminated(path.Child("ephemeralContainerStatuses"),
			updated.Status.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, never),
	)
}

func validateTerminated(
	path *field.Path, updated, old []v1.ContainerStatus, canRestart func(v1.ContainerStatus) bool,
) field.ErrorList {
	var errs field.ErrorList
	for i, before := range old {
		if before.State.Terminated == nil {
			continue
		}
		restarted := slices.ContainsFunc(updated, func(after v1.ContainerStatus) bool {
			return after.Name == before.Name && after.State.Terminated == nil
		})
		if restarted && !canRestart(before) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}

// canRestart reports whether a terminated container may restart. The container's rules come first, then its own policy, then
// the pod's policy. A container that is not in the spec may not restart.
func canRestart(spec *v1.PodSpec, containers []v1.Container, status v1.ContainerStatus) bool {
	index := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == status.Name })
	if index < 0 {
		return false
	}
	exitCode := status.State.Terminated.ExitCode
	policy := spec.RestartPolicy
	if own := containers[index].RestartPolicy; own != nil {
		if slices.ContainsFunc(containers[index].RestartPolicyRules, func(rule v1.ContainerRestartRule) bool {
			return rule.Action == v1.ContainerRestartRuleActionRestart && matchesExitCode(rule.ExitCodes, exitCode)
		}) {
			return true
		}
		policy = v1.RestartPolicy(*own)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

func matchesExitCode(rule *v1.ContainerRestartRuleOnExitCodes, exitCode int32) bool {
	if rule == nil {
		return false
	}
	listed := slices.Contains(rule.Values, exitCode)
	return listed == (rule.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// canRestartAllContainers reports whether the exit of a container can restart the whole pod. No state is final then.
func canRestartAllContainers(spec *v1.PodSpec) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(rule v1.ContainerRestartRule) bool {
			return rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

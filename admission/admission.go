package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/derive"
)

// Reasons of rejections, the kubelet's. OutOf is followed by the name of the resource.
const (
	reasonSysctlForbidden = "SysctlForbidden"
	reasonOSLabel         = "PodOSSelectorNodeLabelDoesNotMatch"
	reasonOS              = "PodOSNotSupported"
	reasonGroupsPolicy    = "SupplementalGroupsPolicyNotSupported"
	reasonAppArmor        = "AppArmor"
	reasonOutOf           = "OutOf"
	reasonNodeAffinity    = "NodeAffinity"
	reasonNodeName        = "NodeName"
	reasonNodePorts       = "NodePorts"
	reasonTaintToleration = "TaintToleration"
	reasonEvicted         = "Evicted"
)

// Rejection is why the node does not run a pod.
type Rejection struct { //nolint:errname // it is a verdict that is an error too
	Reason string
	// Message is the kubelet's.
	Message string
	// Field is the path of the field that caused the rejection, and Remedy what to do about it.
	Field, Remedy string
	// Shortages are the resources that are missing, if that is the reason.
	Shortages []Shortage
	// Temporary reports that what is missing is about to be freed. The pod waits.
	Temporary bool
}

// Error returns the kubelet's message, followed by field and remedy.
func (r *Rejection) Error() string {
	if strings.HasSuffix(r.Message, ". ") {
		return fmt.Sprintf("%s%s: %s", r.Message, r.Field, r.Remedy)
	}
	return fmt.Sprintf("%s; %s: %s", r.Message, r.Field, r.Remedy)
}

// RejectionReason returns the reason for the pod's status and event.
func (r *Rejection) RejectionReason() string { return r.Reason }

// IsTemporary reports whether the pod waits for resources that are about to be freed (ADM-4).
func (r *Rejection) IsTemporary() bool { return r.Temporary }

// IsNodeAffinity reports whether the labels of the node caused the rejection. They may have changed recently (ADM-11).
func (r *Rejection) IsNodeAffinity() bool { return r.Reason == reasonNodeAffinity }

// Node is what the decision depends on, apart from the pods.
type Node struct {
	// Object is the latest known Node. Without one, labels and taints are not checked.
	Object *v1.Node
	// Allocatable are the resources that the node offers to pods together.
	Allocatable v1.ResourceList
	// AllowedUnsafeSysctls lists sysctls beyond the safe ones that pods may set; a trailing * matches any suffix.
	AllowedUnsafeSysctls []string
	// SupplementalGroupsPolicy reports whether the runtime supports the policy Strict.
	SupplementalGroupsPolicy bool
	// AppArmor reports whether AppArmor is enabled.
	AppArmor bool
	// Pressures are the conditions of pressure that hold.
	Pressures []v1.NodeConditionType
}

// Check returns why the node does not run the pod beside the others, or nil. The order is the kubelet's: the first reason is
// returned (ADM-2, ADM-16).
func Check(pod *v1.Pod, node Node, others []*v1.Pod) *Rejection {
	if rejection := checkPressure(pod, node); rejection != nil {
		return rejection
	}
	if rejection := CheckSpec(pod, node.AllowedUnsafeSysctls); rejection != nil {
		return rejection
	}
	if security := pod.Spec.SecurityContext; security != nil && security.SupplementalGroupsPolicy != nil &&
		*security.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict && !node.SupplementalGroupsPolicy {
		return &Rejection{
			Reason: reasonGroupsPolicy, Message: "SupplementalGroupsPolicy=Strict is not supported in this node",
			Field: "spec.securityContext.supplementalGroupsPolicy", Remedy: "use Merge, or a newer container runtime",
		}
	}
	outOfResources := checkResources(pod, node, others)
	if outOfResources != nil && !derive.IsCritical(pod) {
		return outOfResources
	}
	for _, check := range []func(*v1.Pod, Node, []*v1.Pod) *Rejection{checkAffinity, checkName, checkPorts, checkTaints} {
		if rejection := check(pod, node, others); rejection != nil {
			return rejection
		}
	}
	if rejection := checkAppArmor(pod, node); rejection != nil {
		return rejection
	}
	return outOfResources // last for critical pods: others are preempted for them if it is the only reason (ADM-26, ADM-28)
}

// checkPressure rejects pods that would make a shortage worse (ADM-22). If only memory is short, pods with requests are admitted, and
// those that tolerate it.
func checkPressure(pod *v1.Pod, node Node) *Rejection {
	if len(node.Pressures) == 0 || derive.IsCritical(pod) {
		return nil
	}
	if slices.Equal(node.Pressures, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		isTolerated := func(toleration v1.Toleration) bool { return tolerates(toleration, taint) }
		if derive.QOSClass(pod) != v1.PodQOSBestEffort || slices.ContainsFunc(pod.Spec.Tolerations, isTolerated) {
			return nil
		}
	}
	return &Rejection{
		Reason: reasonEvicted, Message: fmt.Sprintf("The node had condition: %v. ", node.Pressures),
		Field: "spec.nodeName", Remedy: "use another node, or wait until this one is no longer short of resources",
	}
}

// CheckSpec returns why no Linux node that allows these sysctls runs the pod, or nil.
func CheckSpec(pod *v1.Pod, allowedUnsafeSysctls []string) *Rejection {
	if rejection := checkSysctls(pod, allowedUnsafeSysctls); rejection != nil {
		return rejection
	}
	if os, found := pod.Labels[v1.LabelOSStable]; found && os != string(v1.Linux) { // ADM-17
		return &Rejection{
			Reason: reasonOSLabel, Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
			Field: "metadata.labels[kubernetes.io/os]", Remedy: "use linux or remove the label",
		}
	}
	if os := pod.Spec.OS; os != nil && os.Name != v1.Linux {
		return &Rejection{
			Reason: reasonOS, Message: "Failed to admit pod as the OS field doesn't match node OS",
			Field: "spec.os.name", Remedy: "use linux or another node",
		}
	}
	return nil
}

// checkAppArmor rejects a pod with a profile that nothing would enforce (ADM-21). A pod that has been started before keeps
// running.
func checkAppArmor(pod *v1.Pod, node Node) *Rejection {
	if node.AppArmor || pod.Status.Phase != "" && pod.Status.Phase != v1.PodPending {
		return nil
	}
	at := appArmorField(pod)
	if at == nil {
		return nil
	}
	return &Rejection{
		Reason: reasonAppArmor, Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host",
		Field: at.String(), Remedy: "use Unconfined, or a node with AppArmor",
	}
}

// appArmorField returns the first profile that confines a container, or nil.
func appArmorField(pod *v1.Pod) *field.Path {
	confines := func(profile *v1.AppArmorProfile) bool {
		return profile != nil && profile.Type != v1.AppArmorProfileTypeUnconfined
	}
	spec := field.NewPath("spec")
	if security := pod.Spec.SecurityContext; security != nil && confines(security.AppArmorProfile) {
		return spec.Child("securityContext", "appArmorProfile")
	}
	for name, containers := range map[string][]v1.Container{"initContainers": pod.Spec.InitContainers, "containers": pod.Spec.Containers} {
		for i := range containers {
			if security := containers[i].SecurityContext; security != nil && confines(security.AppArmorProfile) {
				return spec.Child(name).Index(i).Child("securityContext", "appArmorProfile")
			}
		}
	}
	return nil
}

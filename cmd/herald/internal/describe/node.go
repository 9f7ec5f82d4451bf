package describe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/heraldnode/herald/derive"
)

// Node describes a node, its pods and its events, which are sorted from old to new. Nil events are not known.
func Node(node *v1.Node, pods []v1.Pod, events []Event, now time.Time) string {
	w := newWriter()
	w.field(0, "Name", node.Name)
	w.field(0, "Roles", orNone(strings.Join(roles(node), ",")))
	w.labels("Labels", node.Labels)
	w.annotations(node.Annotations)
	w.field(0, "CreationTimestamp", formatTime(node.CreationTimestamp.Time))
	w.list("Taints", formatTaints(node.Spec.Taints))
	w.field(0, "Unschedulable", node.Spec.Unschedulable)
	describeNodeConditions(w, node.Status.Conditions)
	w.line(0, "Addresses:")
	for _, address := range node.Status.Addresses {
		w.field(1, string(address.Type), address.Address)
	}
	if len(node.Status.Capacity) > 0 {
		w.line(0, "Capacity:")
		w.resourceList(1, node.Status.Capacity)
	}
	if len(node.Status.Allocatable) > 0 {
		w.line(0, "Allocatable:")
		w.resourceList(1, node.Status.Allocatable)
	}
	describeSystem(w, &node.Status.NodeInfo)
	w.fieldIf(0, "PodCIDR", node.Spec.PodCIDR)
	w.fieldIf(0, "PodCIDRs", strings.Join(node.Spec.PodCIDRs, ","))
	w.fieldIf(0, "ProviderID", node.Spec.ProviderID)
	describePods(w, node, slices.DeleteFunc(slices.Clone(pods), func(pod v1.Pod) bool { return derive.IsTerminal(pod.Status.Phase) }), now)
	w.events(events, now)
	return w.String()
}

func roles(node *v1.Node) []string {
	var roles []string
	for label, value := range node.Labels {
		if role, isRole := strings.CutPrefix(label, "node-role.kubernetes.io/"); isRole && role != "" {
			roles = append(roles, role)
		} else if label == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

func formatTaints(taints []v1.Taint) []string {
	taints = slices.Clone(taints)
	slices.SortStableFunc(taints, func(a, b v1.Taint) int {
		return cmp.Or(cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Key, b.Key))
	})
	var texts []string
	for i := range taints {
		texts = append(texts, taints[i].ToString())
	}
	return texts
}

func describeNodeConditions(w *writer, conditions []v1.NodeCondition) {
	if len(conditions) == 0 {
		return
	}
	w.line(0, "Conditions:")
	w.line(1, "Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message")
	w.line(1, "----", "------", "-----------------", "------------------", "------", "-------")
	for i := range conditions {
		c := &conditions[i]
		w.line(1, string(c.Type)+" ", string(c.Status)+" ", formatTime(c.LastHeartbeatTime.Time)+" ",
			formatTime(c.LastTransitionTime.Time)+" ", c.Reason+" ", c.Message)
	}
}

func describeSystem(w *writer, info *v1.NodeSystemInfo) {
	w.line(0, "System Info:")
	w.field(1, "Machine ID", info.MachineID)
	w.field(1, "System UUID", info.SystemUUID)
	w.field(1, "Boot ID", info.BootID)
	w.field(1, "Kernel Version", info.KernelVersion)
	w.field(1, "OS Image", info.OSImage)
	w.field(1, "Operating System", info.OperatingSystem)
	w.field(1, "Architecture", info.Architecture)
	w.field(1, "Container Runtime Version", info.ContainerRuntimeVersion)
	w.field(1, "Kubelet Version", info.KubeletVersion)
}

// describePods writes what the pods request of the node.
func describePods(w *writer, node *v1.Node, pods []v1.Pod, now time.Time) {
	allocatable := node.Status.Allocatable
	if len(allocatable) == 0 {
		allocatable = node.Status.Capacity
	}
	w.field(0, "Non-terminated Pods", fmt.Sprintf("(%d in total)", len(pods)))
	w.line(1, "Namespace", "Name", "", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits", "Age")
	w.line(1, "---------", "----", "", "------------", "----------", "---------------", "-------------", "---")
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	for i := range pods {
		options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
		request, limit := resourcehelper.PodRequests(&pods[i], options), resourcehelper.PodLimits(&pods[i], options)
		share := func(list v1.ResourceList, name v1.ResourceName) string { return formatShare(list, allocatable, name) }
		w.line(1, pods[i].Namespace, pods[i].Name, "", share(request, v1.ResourceCPU), share(limit, v1.ResourceCPU),
			share(request, v1.ResourceMemory), share(limit, v1.ResourceMemory), since(pods[i].CreationTimestamp.Time, now))
		add(requests, request)
		add(limits, limit)
	}
	w.line(0, "Allocated resources:")
	w.line(1, "(Total limits may be over 100 percent, i.e., overcommitted.)")
	w.line(1, "Resource", "Requests", "Limits")
	w.line(1, "--------", "--------", "------")
	for _, name := range allocatedNames(allocatable) {
		if isExtended(name) {
			request, limit := requests[name], limits[name]
			w.line(1, string(name), request.String(), limit.String())
			continue
		}
		w.line(1, string(name), formatShare(requests, allocatable, name), formatShare(limits, allocatable, name))
	}
}

// allocatedNames returns the resources in kubectl's order: those of all nodes, huge pages, extended resources.
func allocatedNames(allocatable v1.ResourceList) []v1.ResourceName {
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	var hugePages, extended []v1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		switch {
		case strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
			hugePages = append(hugePages, name)
		case isExtended(name):
			extended = append(extended, name)
		}
	}
	return append(append(names, hugePages...), extended...)
}

func isExtended(name v1.ResourceName) bool {
	return name != v1.ResourcePods && name != v1.ResourceCPU && name != v1.ResourceMemory && name != v1.ResourceEphemeralStorage &&
		!strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

func formatShare(list, allocatable v1.ResourceList, name v1.ResourceName) string {
	amount, total := list[name], allocatable[name]
	percent := int64(0)
	if all := total.MilliValue(); all != 0 {
		percent = int64(float64(amount.MilliValue()) / float64(all) * 100)
	}
	return fmt.Sprintf("%s (%d%%)", amount.String(), percent)
}

func add(sum, list v1.ResourceList) {
	for name, amount := range list {
		total, found := sum[name]
		if !found {
			total = resource.Quantity{Format: amount.Format}
		}
		total.Add(amount)
		sum[name] = total
	}
}

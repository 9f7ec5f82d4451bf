package transition

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// AppendNode appends the changes between two versions of the Node object that concern this node: conditions, addresses,
// scheduling, resources and versions. Heartbeats, labels and images are no changes. before is nil if there was none.
func AppendNode(changes []Change, before, after *v1.Node) []Change {
	if before == nil {
		before = &v1.Node{}
	}
	d := differ{changes: changes}
	d.nodeConditions(before.Status.Conditions, after.Status.Conditions)
	if before.Spec.Unschedulable != after.Spec.Unschedulable {
		d.add(Change{
			Field: FieldUnschedulable, From: formatBool(before.Spec.Unschedulable), To: formatBool(after.Spec.Unschedulable),
		})
	}
	if !slices.EqualFunc(before.Spec.Taints, after.Spec.Taints, func(a, b v1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }) {
		d.add(Change{Field: FieldTaints, From: formatTaints(before.Spec.Taints), To: formatTaints(after.Spec.Taints)})
	}
	if !equal(before.Status.Addresses, after.Status.Addresses) {
		d.add(Change{Field: FieldAddress, From: formatAddresses(before.Status.Addresses), To: formatAddresses(after.Status.Addresses)})
	}
	if !equalResourceLists(before.Status.Allocatable, after.Status.Allocatable) {
		d.add(Change{Field: FieldAllocatable, From: formatResources(before.Status.Allocatable), To: formatResources(after.Status.Allocatable)})
	}
	from, to := &before.Status.NodeInfo, &after.Status.NodeInfo
	for _, value := range [...]struct {
		field    Field
		from, to string
	}{
		{FieldBootID, from.BootID, to.BootID},
		{FieldKernelVersion, from.KernelVersion, to.KernelVersion},
		{FieldRuntimeVersion, from.ContainerRuntimeVersion, to.ContainerRuntimeVersion},
		{FieldAgentVersion, from.KubeletVersion, to.KubeletVersion},
	} {
		if value.from != value.to {
			d.add(Change{Field: value.field, From: value.from, To: value.to})
		}
	}
	return d.changes
}

func (d *differ) nodeConditions(before, after []v1.NodeCondition) {
	find := func(conditions []v1.NodeCondition, conditionType v1.NodeConditionType) v1.NodeCondition {
		for i := range conditions {
			if conditions[i].Type == conditionType {
				return conditions[i]
			}
		}
		return v1.NodeCondition{}
	}
	for i := range after {
		old, condition := find(before, after[i].Type), &after[i]
		if old.Status != condition.Status || old.Reason != condition.Reason || old.Message != condition.Message {
			d.add(Change{
				Field: Field(condition.Type), From: string(old.Status), To: string(condition.Status),
				Reason: condition.Reason, Message: condition.Message,
			})
		}
	}
	for i := range before {
		if find(after, before[i].Type).Type == "" {
			d.add(Change{Field: Field(before[i].Type), From: string(before[i].Status)})
		}
	}
}

func formatTaints(taints []v1.Taint) string {
	text := ""
	for i := range taints {
		if i > 0 {
			text += ","
		}
		text += taints[i].ToString()
	}
	return Truncate(text, MaxMessage)
}

func formatAddresses(addresses []v1.NodeAddress) string {
	text := ""
	for _, address := range addresses {
		if address.Type == v1.NodeHostName {
			continue
		}
		if text != "" {
			text += ","
		}
		text += address.Address
	}
	return Truncate(text, MaxMessage)
}

// recordedResources are the resources whose change is worth a record. Others, like hugepages, follow from them or are rare.
var recordedResources = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods}

func equalResourceLists(a, b v1.ResourceList) bool {
	for _, name := range recordedResources {
		if from, to := a[name], b[name]; from.Cmp(to) != 0 {
			return false
		}
	}
	return true
}

func formatResources(resources v1.ResourceList) string {
	text := ""
	for _, name := range recordedResources {
		if quantity, found := resources[name]; found {
			if text != "" {
				text += ","
			}
			text += string(name) + "=" + quantity.String()
		}
	}
	return text
}

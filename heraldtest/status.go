package heraldtest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/heraldnode/herald/derive"
)

// DiffOwnedStatus compares what the node owns of the status of an API object with its local status, and returns the first difference,
// or "". It is independent of the comparison that the status manager makes. Transition times may differ: those of the object stay if
// the condition's status does.
func DiffOwnedStatus(object, local *v1.PodStatus) string {
	for _, field := range []struct {
		name          string
		object, local any
	}{
		{"phase", object.Phase, local.Phase},
		{"reason", object.Reason, local.Reason},
		{"message", object.Message, local.Message},
		{"podIPs", object.PodIPs, local.PodIPs},
		{"hostIPs", object.HostIPs, local.HostIPs},
		{"startTime", object.StartTime, local.StartTime},
		{"initContainerStatuses", object.InitContainerStatuses, local.InitContainerStatuses},
		{"containerStatuses", object.ContainerStatuses, local.ContainerStatuses},
		{"ephemeralContainerStatuses", object.EphemeralContainerStatuses, local.EphemeralContainerStatuses},
		{"conditions", ownedConditions(object), ownedConditions(local)},
	} {
		if !equality.Semantic.DeepEqual(field.object, field.local) {
			return fmt.Sprintf("%s: object has %+v, local status has %+v", field.name, field.object, field.local)
		}
	}
	return ""
}

// ownedConditions returns the conditions of the node by type, without times.
func ownedConditions(status *v1.PodStatus) map[v1.PodConditionType]string {
	owned := map[v1.PodConditionType]string{}
	for _, condition := range status.Conditions {
		if derive.IsOwnedCondition(condition.Type) {
			owned[condition.Type] = fmt.Sprintf("%s %s %q", condition.Status, condition.Reason, condition.Message)
		}
	}
	return owned
}

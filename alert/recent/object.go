package recent

import (
	"cmp"
	"strings"
)

// Object is what something happened to. All fields are empty for the node, and Container is for a pod.
type Object struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
}

// Compare orders objects by their names.
func (o Object) Compare(other Object) int {
	return cmp.Or(
		strings.Compare(o.Namespace, other.Namespace), strings.Compare(o.Pod, other.Pod), strings.Compare(o.Container, other.Container),
	)
}

// Restart is the kind of a restart of a container. Those of the node are the names of what happened: clock, boot, lease, load, runtime.
const Restart = "restart"

// Ended returns the kind of an end of a container. The reason is that of the terminated state, for example OOMKilled, or why the agent
// stopped the container, see StoppedBy.
func Ended(reason string) string { return "ended/" + reason }

// Flip returns the kind of a change of the status of a pod's condition.
func Flip(condition string) string { return "flip/" + condition }

// StoppedBy returns the reason for Ended of a plan.StopReason: in lower case and without "Probe", for example liveness, startup,
// podterminating, definitionchanged, user.
func StoppedBy(stopReason string) string {
	return strings.ToLower(strings.TrimSuffix(stopReason, "Probe"))
}

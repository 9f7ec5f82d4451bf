package mirror

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
)

// State is everything that the next action for one full name depends on.
type State struct {
	NodeName string  // name of this node
	Static   *v1.Pod // the static pod, or nil
	Mirror   *v1.Pod // the newest known pod of that name in the API server, or nil

	Terminating  bool // a static pod of this name, possibly an earlier one, is still being terminated
	SourcesReady bool // every static pod source has delivered its pods
	Overdue      bool // Mirror is the result of an own write that the watch has not confirmed in time
}

// Action is the next step towards the desired state. A replacement is an ActionDelete, after which the next decision is
// ActionCreate.
type Action int

// Actions that Decide returns.
const (
	ActionNone           Action = iota // the mirror pod is as desired
	ActionWait                         // wait for a termination, a source or a finalizer
	ActionGet                          // read the pod from the API server
	ActionCreate                       // create a mirror pod for Static
	ActionDelete                       // delete Mirror, with its UID as precondition
	ActionReportConflict               // the name belongs to a pod that this node must not touch
)

// String returns the action's name.
func (a Action) String() string {
	return [...]string{"None", "Wait", "Get", "Create", "Delete", "ReportConflict"}[a]
}

// Decide returns the next action (PM-22, PM-25, PM-28). It depends on the existence of the static pod, not on the state of
// its worker.
func (s State) Decide() Action {
	switch {
	case s.Overdue:
		return ActionGet
	case s.Mirror == nil && s.Static == nil:
		return ActionNone
	case s.Mirror == nil:
		return ActionCreate
	case s.isForeign() && s.Static == nil:
		return ActionNone
	case s.isForeign():
		return ActionReportConflict
	case s.isCurrent() && s.Mirror.DeletionTimestamp == nil:
		return ActionNone
	case awaitsFinalizers(s.Mirror):
		return ActionWait
	case s.Static == nil && !s.SourcesReady:
		return ActionWait
	case s.Terminating && !s.isCurrent():
		return ActionWait
	default:
		return ActionDelete
	}
}

// isCurrent reports whether Mirror is bound to this node and mirrors exactly this static pod (PM-21).
func (s State) isCurrent() bool {
	return s.Static != nil && s.Mirror.Spec.NodeName == s.NodeName && podid.IsMirrorOf(s.Mirror, s.Static)
}

// isForeign reports whether Mirror is neither current nor deletable by this node. Deletable are mirror pods on this node
// that its Node object owns, and those that are already being deleted: a pod bound to a node exists until the node's agent
// confirms its deletion.
func (s State) isForeign() bool {
	isDeletable := podid.IsMirror(s.Mirror) && s.Mirror.Spec.NodeName == s.NodeName &&
		(s.Mirror.DeletionTimestamp != nil || isOwnedByNode(s.Mirror, s.NodeName))
	return !isDeletable && !s.isCurrent()
}

// isOwnedByNode compares the name of the Node object, not its UID: the UID changes when the node registers again.
func isOwnedByNode(pod *v1.Pod, nodeName string) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.APIVersion == "v1" && owner.Kind == "Node" && owner.Name == nodeName
	})
}

// awaitsFinalizers reports whether only finalizers keep the deleted pod, so that another delete request has no effect.
func awaitsFinalizers(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0 &&
		pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// newMirrorPod returns the mirror pod to create (PM-18). The API server assigns UID, version and status. Finalizers are not
// copied: no controller would remove them, and the mirror pod could never be replaced. The spec is shared with the static
// pod, which is immutable.
func newMirrorPod(static *v1.Pod, owner metav1.OwnerReference) *v1.Pod {
	annotations := make(map[string]string, len(static.Annotations)+1)
	maps.Copy(annotations, static.Annotations)
	annotations[podid.MirrorAnnotation] = podid.HashOf(static)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            static.Name,
			Namespace:       static.Namespace,
			Labels:          static.Labels,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: static.Spec,
	}
}

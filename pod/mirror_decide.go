package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
)

// MirrorSituation is all that the upkeep of one full name's mirror depends on.
type MirrorSituation struct {
	NodeName string  // this node
	Static   *v1.Pod // the static pod that should have a mirror; nil if there is none
	Mirror   *v1.Pod // the newest that is known of what stands in the API server; nil if nothing does

	Terminating  bool // a static pod of this name, perhaps an earlier one, is still being stopped
	SourcesReady bool // all static pods have been heard of
	Overdue      bool // Mirror is what our own write made of it, and the watch has failed to confirm it in time
}

// MirrorAction is what to do about a MirrorSituation. A replacement is a DeleteMirror whose success makes the next
// decision a CreateMirror.
type MirrorAction int

// The actions.
const (
	LeaveMirror    MirrorAction = iota // all is as it should be
	AwaitMirror                        // something must end first: a shutdown, a late source, a finalizer
	LookUpMirror                       // ask the server what it has
	CreateMirror                       // make a mirror of Static
	DeleteMirror                       // delete Mirror, by its UID
	ReportConflict                     // the name is taken by a pod that is not ours to touch
)

// Decide is the whole policy (PM-22, PM-25, PM-28). Existence in the address book counts, not the state of any worker.
func (s MirrorSituation) Decide() MirrorAction {
	switch {
	case s.Overdue:
		return LookUpMirror
	case s.Mirror == nil && s.Static == nil:
		return LeaveMirror
	case s.Mirror == nil:
		return CreateMirror
	case s.foreign() && s.Static == nil:
		return LeaveMirror
	case s.foreign():
		return ReportConflict
	case s.reflects() && s.Mirror.DeletionTimestamp == nil:
		return LeaveMirror
	case awaitsFinalizers(s.Mirror):
		return AwaitMirror
	case s.Static == nil && !s.SourcesReady:
		return AwaitMirror
	case s.Terminating && !s.reflects():
		return AwaitMirror
	default:
		return DeleteMirror
	}
}

// reflects reports whether Mirror is, on this node, the mirror of exactly this static pod (PM-21).
func (s MirrorSituation) reflects() bool {
	return s.Static != nil && s.Mirror.Spec.NodeName == s.NodeName && podid.Reflects(s.Mirror, s.Static)
}

// foreign reports whether Mirror is neither the right mirror nor one that is ours to delete. Ours are the mirrors on
// this node that its Node owns, and any other mirror on it that somebody is deleting: a pod that is bound to a node
// is not gone before the node's agent confirms it.
func (s MirrorSituation) foreign() bool {
	ours := podid.IsMirror(s.Mirror) && s.Mirror.Spec.NodeName == s.NodeName &&
		(s.Mirror.DeletionTimestamp != nil || ownedByNode(s.Mirror, s.NodeName))
	return !ours && !s.reflects()
}

// ownedByNode goes by the Node's name. Its UID changes when the node registers anew, and the mirrors stay this node's.
func ownedByNode(pod *v1.Pod, nodeName string) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.APIVersion == "v1" && owner.Kind == "Node" && owner.Name == nodeName
	})
}

// awaitsFinalizers reports whether all has been asked of the server that can be asked: only others can still hold the
// pod.
func awaitsFinalizers(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0 &&
		pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

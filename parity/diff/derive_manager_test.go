package diff_test

import (
	"cmp"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/podid"
)

func TestSM24BothContinueTheStatusBefore(t *testing.T)     { compareContinue.run(t) }
func TestSM17BothEndAPodWithTheSameStatus(t *testing.T)    { compareTerminate.run(t) }
func TestSM88BothKeepTheSameResizeConditions(t *testing.T) { compareResize.run(t) }

// newKubeletStatuses is the kubelet's status manager without pods: the status before is then that in the pod.
func newKubeletStatuses() *kubelet.StatusManager {
	return kubelet.NewStatusManager(nil, kubeletpod.NewBasicPodManager(), nil)
}

// published is what becomes of a new status on Herald's side, or nil when it is refused.
func published(pod *v1.Pod, old *v1.PodStatus, next v1.PodStatus) *v1.PodStatus {
	if derive.CheckTransition(pod, old, &next) != nil {
		return nil
	}
	normal, _ := derive.Normalize(pod, derive.Continue(old, next, heraldNow))
	settleNow(&normal)
	return &normal
}

var compareContinue = compared(drawChange, func(c changeCase) string {
	pod, old := c.Pod.DeepCopy(), *c.Old.DeepCopy()
	pod.Status = *c.Old.DeepCopy()
	manager := newKubeletStatuses()
	manager.SetPodStatus(pod, *c.Next.DeepCopy())
	next := *c.Next
	next.ObservedGeneration = c.Pod.Generation // SM-38: SetPodStatus does it
	return unlikeCached(manager, pod, published(c.Pod, &old, next))
})

var compareTerminate = compared(
	func(d *drawer) changeCase {
		pod := drawPod(d)
		return changeCase{Pod: pod, Old: drawStatus(d, pod)}
	},
	func(c changeCase) string {
		pod := c.Pod.DeepCopy()
		pod.Status = *c.Old.DeepCopy()
		manager := newKubeletStatuses()
		manager.TerminatePod(pod)
		theirs, accepted := manager.GetPodStatus(pod.UID)
		ours := published(c.Pod, c.Old, derive.Terminate(c.Pod, *c.Old))
		if !accepted || ours == nil || podid.IsStatic(pod) {
			return unlikeCached(manager, pod, ours)
		}
		// SM-20: the kubelet ends readiness only in what it sends (SM-70), where conditions stand in another order.
		theirs = kubelet.MergeStatus(pod, &theirs, &theirs, false)
		settleNow(&theirs)
		slices.SortFunc(theirs.Conditions, byType)
		slices.SortFunc(ours.Conditions, byType)
		if !equality.Semantic.DeepEqual(theirs, *ours) {
			return unlike(theirs, *ours)
		}
		return ""
	},
)

func byType(a, b v1.PodCondition) int { return cmp.Compare(a.Type, b.Type) }

// unlikeCached compares with what the kubelet holds now, if it took the status at all.
func unlikeCached(manager *kubelet.StatusManager, pod *v1.Pod, ours *v1.PodStatus) string {
	theirs, accepted := manager.GetPodStatus(pod.UID)
	switch {
	case accepted != (ours != nil):
		return "accepted: " + unlike(accepted, ours != nil)
	case !accepted:
		return ""
	}
	settleNow(&theirs)
	if !equality.Semantic.DeepEqual(theirs, *ours) {
		return unlike(theirs, *ours)
	}
	return ""
}

// resizeStep is one call to the keeper of resize conditions.
type resizeStep struct {
	Do              string
	Reason, Message string
	Generation      int64
}

type resizeCase struct{ Steps []resizeStep }

var compareResize = compared(
	func(d *drawer) resizeCase {
		var c resizeCase
		for range 1 + d.IntN(6) {
			c.Steps = append(c.Steps, resizeStep{
				Do: oneOf(d, "pend", "progress", "progress", "accept", "finish"), Reason: oneOf(d, "", "Infeasible", "Deferred", "Error"),
				Message: oneOf(d, "", "M"), Generation: int64(d.IntN(3)),
			})
		}
		return c
	},
	func(c resizeCase) string {
		manager := newKubeletStatuses()
		var resize derive.Resize
		for _, step := range c.Steps {
			var theirs, ours resizeAnswer
			resize, ours = heraldStep(resize, step)
			theirs = kubeletStep(manager, step)
			if !equality.Semantic.DeepEqual(theirs, ours) {
				return unlike(theirs, ours)
			}
		}
		return ""
	},
)

// resizeAnswer is what a step answers and leaves, without times.
type resizeAnswer struct {
	News                 bool
	Generation           int64
	Conditions           []v1.PodCondition
	Deferred, Infeasible bool
}

func heraldStep(resize derive.Resize, step resizeStep) (derive.Resize, resizeAnswer) {
	var answer resizeAnswer
	why := derive.ResizeVerdict{Reason: step.Reason, Message: step.Message, Generation: step.Generation}
	switch step.Do {
	case "pend":
		resize, answer.News = resize.Pend(why, heraldNow)
	case "progress":
		resize, answer.News = resize.Progress(why, heraldNow)
		answer.Generation, _ = resize.InProgress()
	case "accept":
		resize = resize.Accept()
	case "finish":
		resize, answer.Generation, answer.News = resize.Finish()
	}
	answer.Conditions = resize.Conditions()
	for i := range answer.Conditions {
		timeless(&answer.Conditions[i])
	}
	answer.Deferred, answer.Infeasible = resize.IsDeferred(), resize.IsInfeasible()
	return resize, answer
}

func kubeletStep(manager *kubelet.StatusManager, step resizeStep) resizeAnswer {
	const uid = "u1"
	var answer resizeAnswer
	switch step.Do {
	case "pend":
		answer.News = manager.SetPodResizePendingCondition(uid, step.Reason, step.Message, step.Generation)
	case "progress":
		answer.Generation, answer.News = manager.SetPodResizeInProgressCondition(uid, step.Reason, step.Message, step.Generation)
	case "accept":
		manager.ClearPodResizePendingCondition(uid)
	case "finish":
		answer.Generation, answer.News = manager.ClearPodResizeInProgressCondition(uid)
	}
	for _, condition := range manager.GetPodResizeConditions(uid) {
		timed := *condition
		timeless(&timed)
		answer.Conditions = append(answer.Conditions, timed)
	}
	answer.Deferred, answer.Infeasible = manager.IsPodResizeDeferred(uid), manager.IsPodResizeInfeasible(uid)
	return answer
}

func timeless(condition *v1.PodCondition) {
	condition.LastProbeTime, condition.LastTransitionTime = metav1.Time{}, metav1.Time{}
}

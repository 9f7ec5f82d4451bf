package diff_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/podid"
)

func TestPH1BothFindTheSamePhaseInTheSameStatuses(t *testing.T)        { comparePhase.run(t) }
func TestGEN1BothMakeTheSameConditions(t *testing.T)                   { compareConditions.run(t) }
func TestSM39BothRefuseTheSameTransitions(t *testing.T)                { compareTransition.run(t) }
func TestSM32BothTakeTheSameStatusesForEqual(t *testing.T)             { compareEqual.run(t) }
func TestSM28BothBringAStatusIntoTheSameForm(t *testing.T)             { compareNormal.run(t) }
func TestSM63BothSendTheSameInPlaceOfWhatTheAPIServerHas(t *testing.T) { compareMerge.run(t) }

type phaseCase struct {
	Pod                      *v1.Pod
	Status                   *v1.PodStatus
	Terminating, Initialized bool
}

var comparePhase = compared(
	func(d *drawer) phaseCase {
		pod := drawPod(d)
		return phaseCase{pod, drawStatus(d, pod), d.chance(50), d.chance(50)}
	},
	func(c phaseCase) string {
		statuses := slices.Concat(c.Status.ContainerStatuses, c.Status.InitContainerStatuses)
		theirs := kubelet.Phase(c.Pod, statuses, c.Terminating, c.Initialized)
		if ours := derive.Phase(c.Pod, statuses, c.Terminating, c.Initialized); ours != theirs {
			return unlike(string(theirs), string(ours))
		}
		return ""
	},
)

type conditionCase struct {
	Pod         *v1.Pod
	Old, Status *v1.PodStatus
	Observed    *observed.Pod
}

var compareConditions = compared(
	func(d *drawer) conditionCase {
		pod := drawPod(d)
		pod.Status = *drawStatus(d, pod)
		return conditionCase{pod, drawStatus(d, pod), drawStatus(d, pod), drawObserved(d, pod)}
	},
	func(c conditionCase) string {
		pod, phase, now := c.Pod, c.Status.Phase, c.Status.Conditions
		statuses := slices.Concat(c.Status.InitContainerStatuses, c.Status.ContainerStatuses)
		seen := runtimeView(c.Observed)
		theirs := []v1.PodCondition{
			status.GenerateContainersReadyCondition(pod, c.Old, statuses, phase),
			status.GeneratePodReadyCondition(pod, c.Old, now, statuses, phase),
			status.GeneratePodInitializedCondition(pod, c.Old, statuses, phase),
			status.GeneratePodReadyToStartContainersCondition(pod, c.Old, seen),
		}
		ours := []v1.PodCondition{
			derive.ContainersReadyCondition(pod, statuses, phase),
			derive.ReadyCondition(pod, now, statuses, phase),
			derive.InitializedCondition(pod, c.Old.Conditions, statuses, phase),
			derive.ReadyToStartContainersCondition(pod, c.Observed),
		}
		if restarting, ok := derive.AllContainersRestartingCondition(pod, c.Observed, c.Old, phase); ok {
			ours = append(ours, restarting)
			old := c.Old
			if restartIsDone(pod, c.Observed) {
				old = withoutRestart(old)
			}
			theirs = append(theirs, status.GenerateAllContainersRestartingCondition(pod, seen, old, phase))
		}
		if !equality.Semantic.DeepEqual(theirs, ours) {
			return unlike(theirs, ours)
		}
		return staleReadiness(pod)
	},
)

// staleReadiness gives the kubelet the statuses of init containers where it looks for those of regular ones (SM-97).
func staleReadiness(pod *v1.Pod) string {
	whole := *pod
	whole.Status.ContainerStatuses = slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	theirs, ours := status.NeedToReconcilePodReadiness(&whole), derive.NeedToReconcileReadiness(pod)
	if theirs != ours {
		return "readiness is stale: " + unlike(theirs, ours)
	}
	return ""
}

type changeCase struct {
	Pod       *v1.Pod
	Old, Next *v1.PodStatus
}

func drawChange(d *drawer) changeCase {
	pod := drawPod(d)
	return changeCase{pod, drawStatus(d, pod), drawStatus(d, pod)}
}

var compareTransition = compared(drawChange, func(c changeCase) string {
	theirs, ours := kubelet.CheckTransition(c.Pod, c.Old, c.Next), derive.CheckTransition(c.Pod, c.Old, c.Next)
	mismatch := theirs != nil && strings.Contains(theirs.Error(), "found mismatch")
	if (theirs == nil) != (ours == nil) || mismatch != errors.Is(ours, derive.ErrInitMismatch) {
		return unlike(theirs, ours)
	}
	return ""
})

// compareEqual takes statuses that differ in nothing, in one thing, or in order and times.
var compareEqual = compared(
	func(d *drawer) changeCase {
		c := drawChange(d)
		c.Next = c.Old.DeepCopy()
		switch d.IntN(4) {
		case 0:
			emptyOneOf(d, c.Next)
		case 1:
			emptyOneOf(d, c.Old)
		case 2:
			slices.Reverse(c.Next.Conditions)
			for i := range c.Next.Conditions {
				c.Next.Conditions[i].LastTransitionTime, c.Next.Conditions[i].ObservedGeneration = drawTime(d), 9
			}
		}
		return c
	},
	func(c changeCase) string {
		same := *c.Next // SM-32: fixed at creation, and the scheduler's
		same.QOSClass, same.NominatedNodeName = c.Old.QOSClass, c.Old.NominatedNodeName
		theirs, ours := kubelet.StatusEqual(c.Old, &same), derive.Equal(c.Old, c.Next)
		if theirs != ours || ours != derive.Equal(c.Next, c.Old) {
			return unlike(theirs, ours)
		}
		return ""
	},
)

var compareNormal = compared(
	func(d *drawer) changeCase {
		pod := drawPod(d)
		status := drawStatus(d, pod)
		lengthen(d, status)
		return changeCase{Pod: pod, Next: status}
	},
	func(c changeCase) string {
		theirs := kubelet.NormalizeStatus(c.Pod, asText(c.Next))
		cutBetweenCharacters(&theirs)
		ours, changed := derive.Normalize(c.Pod, *c.Next)
		switch {
		case !equality.Semantic.DeepEqual(theirs, ours):
			return unlike(theirs, ours)
		case !changed && !equality.Semantic.DeepEqual(*c.Next, ours):
			return "Herald says that nothing changed"
		}
		return ""
	},
)

type mergeCase struct {
	Pod       *v1.Pod
	API, Ours *v1.PodStatus
	CouldRun  bool
}

var compareMerge = compared(
	func(d *drawer) mergeCase {
		pod := drawPod(d)
		return mergeCase{pod, drawStatus(d, pod), drawStatus(d, pod), d.chance(50)}
	},
	func(c mergeCase) string {
		api, before := c.API, c.Ours.DeepCopy()
		told := c.Ours.DeepCopy()
		if isTerminal(api.Phase) && api.Phase != told.Phase { // SM-68
			told.Phase, told.Reason, told.Message = api.Phase, api.Reason, api.Message
		}
		told.ObservedGeneration = max(api.ObservedGeneration, told.ObservedGeneration) // SM-27
		told.NominatedNodeName = api.NominatedNodeName                                 // SM-66
		if api.QOSClass != "" {                                                        // PH-48
			told.QOSClass = api.QOSClass
		}
		pod := *c.Pod
		pod.Generation = told.ObservedGeneration
		theirs := kubelet.MergeStatus(&pod, api, told, c.CouldRun)
		ours := derive.Merge(*api, *c.Ours, c.CouldRun, heraldNow)
		if !equality.Semantic.DeepEqual(before, c.Ours) {
			return "Herald changed its argument"
		}
		settleNow(&theirs)
		settleNow(&ours)
		if !equality.Semantic.DeepEqual(theirs, ours) {
			return unlike(theirs, ours)
		}
		return ""
	},
)

func isTerminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

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
	normal, _ := derive.Normalize(pod, derive.CarryOver(old, next, heraldNow))
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
	why := derive.ResizeCondition{Reason: step.Reason, Message: step.Message, Generation: step.Generation}
	switch step.Do {
	case "pend":
		resize, answer.News = resize.WithPending(why, heraldNow)
	case "progress":
		resize, answer.News = resize.WithInProgress(why, heraldNow)
		answer.Generation, _ = resize.InProgress()
	case "accept":
		resize = resize.WithoutPending()
	case "finish":
		resize, answer.Generation, answer.News = resize.WithoutInProgress()
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

// heraldNow is later than all times that are drawn, and for the kubelet it is later still.
var heraldNow = firstDay.Add(24 * time.Hour)

// settleNow gives both sides the same present: a time that was not drawn was read from a clock.
func settleNow(status *v1.PodStatus) {
	settle := func(t *metav1.Time) {
		if t.After(firstDay.Add(12 * time.Hour)) {
			*t = metav1.NewTime(heraldNow)
		}
	}
	for i := range status.Conditions {
		settle(&status.Conditions[i].LastTransitionTime)
	}
	if status.StartTime != nil {
		status.StartTime = status.StartTime.DeepCopy()
		settle(status.StartTime)
	}
}

// emptyOneOf empties something somewhere in the status.
func emptyOneOf(d *drawer, status *v1.PodStatus) {
	place := d.IntN(60)
	emptyOne(reflect.ValueOf(status).Elem(), &place)
}

// asText is the status after a way through JSON, which writes U+FFFD for each byte that is no character.
func asText(status *v1.PodStatus) *v1.PodStatus {
	text := status.DeepCopy()
	for _, end := range endsOf(text) {
		if utf8.ValidString(end.Message) {
			continue
		}
		written, err := json.Marshal(end.Message)
		if err == nil {
			err = json.Unmarshal(written, &end.Message)
		}
		if err != nil {
			panic(err)
		}
	}
	return text
}

// cutBetweenCharacters takes the rest of a character off that the kubelet cut through (SM-29).
func cutBetweenCharacters(status *v1.PodStatus) {
	for _, end := range endsOf(status) {
		for !utf8.ValidString(end.Message) {
			end.Message = end.Message[:len(end.Message)-1]
		}
	}
}

// endsOf are all ends in the status.
func endsOf(status *v1.PodStatus) []*v1.ContainerStateTerminated {
	var ends []*v1.ContainerStateTerminated
	for _, list := range [][]v1.ContainerStatus{
		status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range list {
			for _, end := range []*v1.ContainerStateTerminated{list[i].State.Terminated, list[i].LastTerminationState.Terminated} {
				if end != nil {
					ends = append(ends, end)
				}
			}
		}
	}
	return ends
}

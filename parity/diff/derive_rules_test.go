package diff_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
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
			derive.ContainersReady(pod, statuses, phase),
			derive.Ready(pod, now, statuses, phase),
			derive.Initialized(pod, c.Old.Conditions, statuses, phase),
			derive.ReadyToStartContainers(pod, c.Observed),
		}
		if restarting, ok := derive.AllContainersRestarting(pod, c.Observed, c.Old, phase); ok {
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
	theirs, ours := status.NeedToReconcilePodReadiness(&whole), derive.ReadinessStale(pod)
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
		theirs, ours := kubelet.EqualStatus(c.Old, &same), derive.Equal(c.Old, c.Next)
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

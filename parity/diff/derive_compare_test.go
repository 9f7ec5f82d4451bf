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

func TestPH1_SamePhase(t *testing.T)          { comparePhase.run(t) }
func TestGEN1_SameConditions(t *testing.T)    { compareConditions.run(t) }
func TestSM39_SameTransitions(t *testing.T)   { compareTransition.run(t) }
func TestSM32_SameEquality(t *testing.T)      { compareEqual.run(t) }
func TestSM28_SameNormalization(t *testing.T) { compareNormal.run(t) }
func TestSM63_SameMerge(t *testing.T)         { compareMerge.run(t) }

type phaseCase struct {
	Pod                      *v1.Pod
	Status                   *v1.PodStatus
	Terminating, Initialized bool
}

var comparePhase = newComparison(
	func(g *generator) phaseCase {
		pod := generatePod(g)
		return phaseCase{pod, generateStatus(g, pod), g.chance(50), g.chance(50)}
	},
	func(c phaseCase) string {
		statuses := slices.Concat(c.Status.ContainerStatuses, c.Status.InitContainerStatuses)
		theirs := kubelet.Phase(c.Pod, statuses, c.Terminating, c.Initialized)
		if ours := derive.Phase(c.Pod, statuses, c.Terminating, c.Initialized); ours != theirs {
			return describeMismatch(string(theirs), string(ours))
		}
		return ""
	},
)

type conditionCase struct {
	Pod         *v1.Pod
	Old, Status *v1.PodStatus
	Observed    *observed.Pod
}

var compareConditions = newComparison(
	func(g *generator) conditionCase {
		pod := generatePod(g)
		pod.Status = *generateStatus(g, pod)
		return conditionCase{pod, generateStatus(g, pod), generateStatus(g, pod), generateObserved(g, pod)}
	},
	func(c conditionCase) string {
		pod, phase, now := c.Pod, c.Status.Phase, c.Status.Conditions
		statuses := slices.Concat(c.Status.InitContainerStatuses, c.Status.ContainerStatuses)
		seen := kubeletPodStatus(c.Observed)
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
			if isRestartAllDone(pod, c.Observed) {
				old = withoutRestartCondition(old)
			}
			theirs = append(theirs, status.GenerateAllContainersRestartingCondition(pod, seen, old, phase))
		}
		if !equality.Semantic.DeepEqual(theirs, ours) {
			return describeMismatch(theirs, ours)
		}
		return compareReadinessStale(pod)
	},
)

// compareReadinessStale gives the kubelet the statuses of init containers among those of regular ones (SM-97).
func compareReadinessStale(pod *v1.Pod) string {
	podWithInits := *pod
	podWithInits.Status.ContainerStatuses = slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	theirs, ours := status.NeedToReconcilePodReadiness(&podWithInits), derive.NeedToReconcileReadiness(pod)
	if theirs != ours {
		return "readiness stale: " + describeMismatch(theirs, ours)
	}
	return ""
}

type changeCase struct {
	Pod       *v1.Pod
	Old, Next *v1.PodStatus
}

func generateChange(g *generator) changeCase {
	pod := generatePod(g)
	return changeCase{pod, generateStatus(g, pod), generateStatus(g, pod)}
}

var compareTransition = newComparison(generateChange, func(c changeCase) string {
	theirs, ours := kubelet.CheckTransition(c.Pod, c.Old, c.Next), derive.CheckTransition(c.Pod, c.Old, c.Next)
	mismatch := theirs != nil && strings.Contains(theirs.Error(), "found mismatch")
	if (theirs == nil) != (ours == nil) || mismatch != errors.Is(ours, derive.ErrInitMismatch) {
		return describeMismatch(theirs, ours)
	}
	return ""
})

// compareEqual compares statuses that differ in nothing, in one field, or in order and times.
var compareEqual = newComparison(
	func(g *generator) changeCase {
		c := generateChange(g)
		c.Next = c.Old.DeepCopy()
		switch g.IntN(4) {
		case 0:
			clearRandomField(g, c.Next)
		case 1:
			clearRandomField(g, c.Old)
		case 2:
			slices.Reverse(c.Next.Conditions)
			for i := range c.Next.Conditions {
				c.Next.Conditions[i].LastTransitionTime, c.Next.Conditions[i].ObservedGeneration = generateTime(g), 9
			}
		}
		return c
	},
	func(c changeCase) string {
		next := *c.Next // SM-32: one is immutable, the other is the scheduler's
		next.QOSClass, next.NominatedNodeName = c.Old.QOSClass, c.Old.NominatedNodeName
		theirs, ours := kubelet.StatusEqual(c.Old, &next), derive.Equal(c.Old, c.Next)
		if theirs != ours || ours != derive.Equal(c.Next, c.Old) {
			return describeMismatch(theirs, ours)
		}
		return ""
	},
)

var compareNormal = newComparison(
	func(g *generator) changeCase {
		pod := generatePod(g)
		status := generateStatus(g, pod)
		lengthenMessages(g, status)
		return changeCase{Pod: pod, Next: status}
	},
	func(c changeCase) string {
		theirs := kubelet.NormalizeStatus(c.Pod, encodeMessages(c.Next))
		trimPartialRunes(&theirs)
		ours, changed := derive.Normalize(c.Pod, *c.Next)
		switch {
		case !equality.Semantic.DeepEqual(theirs, ours):
			return describeMismatch(theirs, ours)
		case !changed && !equality.Semantic.DeepEqual(*c.Next, ours):
			return "Herald reports no change, but changed the status"
		}
		return ""
	},
)

type mergeCase struct {
	Pod       *v1.Pod
	API, Ours *v1.PodStatus
	CouldRun  bool
}

var compareMerge = newComparison(
	func(g *generator) mergeCase {
		pod := generatePod(g)
		return mergeCase{pod, generateStatus(g, pod), generateStatus(g, pod), g.chance(50)}
	},
	func(c mergeCase) string {
		api, original := c.API, c.Ours.DeepCopy()
		sent := c.Ours.DeepCopy()
		if derive.IsTerminal(api.Phase) && api.Phase != sent.Phase { // SM-68
			sent.Phase, sent.Reason, sent.Message = api.Phase, api.Reason, api.Message
		}
		sent.ObservedGeneration = max(api.ObservedGeneration, sent.ObservedGeneration) // SM-27
		sent.NominatedNodeName = api.NominatedNodeName                                 // SM-66
		if api.QOSClass != "" {                                                        // PH-48
			sent.QOSClass = api.QOSClass
		}
		if sent.Resources == nil && sent.AllocatedResources == nil { // PH-39
			sent.Resources, sent.AllocatedResources = api.Resources, api.AllocatedResources
		}
		pod := *c.Pod
		pod.Generation = sent.ObservedGeneration
		theirs := kubelet.MergeStatus(&pod, api, sent, c.CouldRun)
		ours := derive.Merge(*api, *c.Ours, c.CouldRun, fixedNow)
		if !equality.Semantic.DeepEqual(original, c.Ours) {
			return "Herald modified its argument"
		}
		normalizeNow(&theirs)
		normalizeNow(&ours)
		if !equality.Semantic.DeepEqual(theirs, ours) {
			return describeMismatch(theirs, ours)
		}
		return ""
	},
)

func TestSM24_SameContinuation(t *testing.T)     { compareContinue.run(t) }
func TestSM17_SameTermination(t *testing.T)      { compareTerminate.run(t) }
func TestSM88_SameResizeConditions(t *testing.T) { compareResize.run(t) }

// newKubeletStatusManager returns the kubelet's status manager without pods, so that the previous status is the one in
// the pod.
func newKubeletStatusManager() *kubelet.StatusManager {
	return kubelet.NewStatusManager(nil, kubeletpod.NewBasicPodManager(), nil)
}

// applyHerald returns what Herald publishes for a new status, or nil if it rejects the transition.
func applyHerald(pod *v1.Pod, old *v1.PodStatus, next v1.PodStatus) *v1.PodStatus {
	if derive.CheckTransition(pod, old, &next) != nil {
		return nil
	}
	normal, _ := derive.Normalize(pod, derive.CarryOver(old, next, fixedNow))
	normalizeNow(&normal)
	return &normal
}

var compareContinue = newComparison(generateChange, func(c changeCase) string {
	pod, old := c.Pod.DeepCopy(), *c.Old.DeepCopy()
	pod.Status = *c.Old.DeepCopy()
	manager := newKubeletStatusManager()
	next := *c.Next
	theirs := c.Next.DeepCopy()
	if next.Resources == nil && next.AllocatedResources == nil { // PH-39: a status of the kubelet always has them
		theirs.Resources, theirs.AllocatedResources = old.Resources, old.AllocatedResources
	}
	manager.SetPodStatus(pod, *theirs)
	next.ObservedGeneration = c.Pod.Generation // SM-38: SetPodStatus sets it
	return compareCached(manager, pod, applyHerald(c.Pod, &old, next))
})

var compareTerminate = newComparison(
	func(g *generator) changeCase {
		pod := generatePod(g)
		return changeCase{Pod: pod, Old: generateStatus(g, pod)}
	},
	func(c changeCase) string {
		pod := c.Pod.DeepCopy()
		pod.Status = *c.Old.DeepCopy()
		manager := newKubeletStatusManager()
		manager.TerminatePod(pod)
		theirs, accepted := manager.GetPodStatus(pod.UID)
		ours := applyHerald(c.Pod, c.Old, derive.Terminate(c.Pod, *c.Old))
		if !accepted || ours == nil || podid.IsStatic(pod) {
			return compareCached(manager, pod, ours)
		}
		// SM-20: the kubelet clears readiness only in what it sends (SM-70), where conditions have another order.
		theirs = kubelet.MergeStatus(pod, &theirs, &theirs, false)
		normalizeNow(&theirs)
		slices.SortFunc(theirs.Conditions, byType)
		slices.SortFunc(ours.Conditions, byType)
		if !equality.Semantic.DeepEqual(theirs, *ours) {
			return describeMismatch(theirs, *ours)
		}
		return ""
	},
)

func byType(a, b v1.PodCondition) int { return cmp.Compare(a.Type, b.Type) }

// compareCached compares with the status that the kubelet caches, if it accepted it.
func compareCached(manager *kubelet.StatusManager, pod *v1.Pod, ours *v1.PodStatus) string {
	theirs, accepted := manager.GetPodStatus(pod.UID)
	switch {
	case accepted != (ours != nil):
		return "accepted: " + describeMismatch(accepted, ours != nil)
	case !accepted:
		return ""
	}
	normalizeNow(&theirs)
	if !equality.Semantic.DeepEqual(theirs, *ours) {
		return describeMismatch(theirs, *ours)
	}
	return ""
}

// resizeStep is one call that changes resize conditions.
type resizeStep struct {
	Op              string
	Reason, Message string
	Generation      int64
}

type resizeCase struct{ Steps []resizeStep }

var compareResize = newComparison(
	func(g *generator) resizeCase {
		var c resizeCase
		for range 1 + g.IntN(6) {
			c.Steps = append(c.Steps, resizeStep{
				Op: oneOf(g, "pend", "progress", "progress", "accept", "finish"), Reason: oneOf(g, "", "Infeasible", "Deferred", "Error"),
				Message: oneOf(g, "", "M"), Generation: int64(g.IntN(3)),
			})
		}
		return c
	},
	func(c resizeCase) string {
		manager := newKubeletStatusManager()
		var resize derive.Resize
		for _, step := range c.Steps {
			var theirs, ours resizeState
			resize, ours = applyHeraldStep(resize, step)
			theirs = applyKubeletStep(manager, step)
			if !equality.Semantic.DeepEqual(theirs, ours) {
				return describeMismatch(theirs, ours)
			}
		}
		return ""
	},
)

// resizeState is the result of a step, without times.
type resizeState struct {
	Changed              bool
	Generation           int64
	Conditions           []v1.PodCondition
	Deferred, Infeasible bool
}

func applyHeraldStep(resize derive.Resize, step resizeStep) (derive.Resize, resizeState) {
	var state resizeState
	verdict := derive.ResizeCondition{Reason: step.Reason, Message: step.Message, Generation: step.Generation}
	switch step.Op {
	case "pend":
		resize, state.Changed = resize.WithPending(verdict, fixedNow)
	case "progress":
		resize, state.Changed = resize.WithInProgress(verdict, fixedNow)
		state.Generation, _ = resize.InProgress()
	case "accept":
		resize = resize.WithoutPending()
	case "finish":
		resize, state.Generation, state.Changed = resize.WithoutInProgress()
	}
	state.Conditions = resize.Conditions()
	for i := range state.Conditions {
		clearTimes(&state.Conditions[i])
	}
	state.Deferred, state.Infeasible = resize.IsDeferred(), resize.IsInfeasible()
	return resize, state
}

func applyKubeletStep(manager *kubelet.StatusManager, step resizeStep) resizeState {
	const uid = "u1"
	var state resizeState
	switch step.Op {
	case "pend":
		state.Changed = manager.SetPodResizePendingCondition(uid, step.Reason, step.Message, step.Generation)
	case "progress":
		state.Generation, state.Changed = manager.SetPodResizeInProgressCondition(uid, step.Reason, step.Message, step.Generation)
	case "accept":
		manager.ClearPodResizePendingCondition(uid)
	case "finish":
		state.Generation, state.Changed = manager.ClearPodResizeInProgressCondition(uid)
	}
	for _, condition := range manager.GetPodResizeConditions(uid) {
		copied := *condition
		clearTimes(&copied)
		state.Conditions = append(state.Conditions, copied)
	}
	state.Deferred, state.Infeasible = manager.IsPodResizeDeferred(uid), manager.IsPodResizeInfeasible(uid)
	return state
}

func clearTimes(condition *v1.PodCondition) {
	condition.LastProbeTime, condition.LastTransitionTime = metav1.Time{}, metav1.Time{}
}

// fixedNow is later than all generated times. The kubelet's clock is later still.
var fixedNow = baseTime.Add(24 * time.Hour)

// normalizeNow gives both sides the same current time: a time that was not generated was read from a clock.
func normalizeNow(status *v1.PodStatus) {
	normalize := func(t *metav1.Time) {
		if t.After(baseTime.Add(12 * time.Hour)) {
			*t = metav1.NewTime(fixedNow)
		}
	}
	for i := range status.Conditions {
		normalize(&status.Conditions[i].LastTransitionTime)
	}
	if status.StartTime != nil {
		status.StartTime = status.StartTime.DeepCopy()
		normalize(status.StartTime)
	}
}

// clearRandomField clears a random field somewhere in the status.
func clearRandomField(g *generator, status *v1.PodStatus) {
	n := g.IntN(60)
	clearNth(reflect.ValueOf(status).Elem(), &n)
}

// encodeMessages returns the status after a JSON round trip, which writes U+FFFD for each invalid byte.
func encodeMessages(status *v1.PodStatus) *v1.PodStatus {
	encoded := status.DeepCopy()
	for _, end := range terminatedStates(encoded) {
		if utf8.ValidString(end.Message) {
			continue
		}
		data, err := json.Marshal(end.Message)
		if err == nil {
			err = json.Unmarshal(data, &end.Message)
		}
		if err != nil {
			panic(err)
		}
	}
	return encoded
}

// trimPartialRunes removes the partial character at the end of a message that the kubelet truncated (SM-29).
func trimPartialRunes(status *v1.PodStatus) {
	for _, end := range terminatedStates(status) {
		for !utf8.ValidString(end.Message) {
			end.Message = end.Message[:len(end.Message)-1]
		}
	}
}

// terminatedStates returns all termination states in the status.
func terminatedStates(status *v1.PodStatus) []*v1.ContainerStateTerminated {
	var states []*v1.ContainerStateTerminated
	for _, list := range [][]v1.ContainerStatus{
		status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range list {
			for _, state := range []*v1.ContainerStateTerminated{list[i].State.Terminated, list[i].LastTerminationState.Terminated} {
				if state != nil {
					states = append(states, state)
				}
			}
		}
	}
	return states
}

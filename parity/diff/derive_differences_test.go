package diff_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
)

// show is what each makes of the case, the kubelet without any help.
func (c statusCase) show() (theirs, ours v1.PodStatus) {
	if c.Observed == nil {
		c.Observed = &observed.Pod{}
	}
	return generator.Generate(lookOf(c)), c.herald()
}

// said is one thing as each side says it.
type said[T comparable] struct{ kubelet, herald T }

func pair[T comparable](kubelet, herald T) said[T] { return said[T]{kubelet, herald} }

// expect checks both sides. A kubelet that no longer does what the table says is news for the table.
func expect[T comparable](t *testing.T, what string, got, want said[T]) {
	t.Helper()
	if got.kubelet != want.kubelet {
		t.Errorf("%s: the kubelet says %v, no longer %v", what, got.kubelet, want.kubelet)
	}
	if got.herald != want.herald {
		t.Errorf("%s: Herald says %v, want %v", what, got.herald, want.herald)
	}
}

func podWith(policy v1.RestartPolicy, names ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Generation: 2}}
	pod.Spec.RestartPolicy = policy
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Image: name + ":1"})
	}
	return pod
}

// sight is an instance of a container in the sandbox "now"; higher instances are newer.
func sight(name string, instance int, state observed.State) observed.Container {
	c := observed.Container{
		ID: containerID(name, instance), Name: name, SandboxID: "now", State: state,
		CreatedAt: firstDay.Add(time.Duration(instance) * time.Minute), StartedAt: firstDay,
	}
	if state == observed.Exited {
		c.Exit = &observed.Exit{Reason: "Completed", FinishedAt: firstDay}
	}
	return c
}

// sights is a runtime with a ready sandbox "now", one from before, and these containers.
func sights(containers ...observed.Container) *observed.Pod {
	seen := &observed.Pod{
		Sandboxes:  []observed.Sandbox{{ID: "now", Ready: true, CreatedAt: firstDay}, {ID: "before"}},
		Containers: containers,
	}
	seen.Sort()
	return seen
}

// statusOf is a container status of that instance.
func statusOf(name string, instance int, state v1.ContainerState) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, ContainerID: containerID(name, instance).String(), State: state}
}

var (
	runs  = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(firstDay)}}
	waits = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	ended = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"}}
)

func before(phase v1.PodPhase, containers ...v1.ContainerStatus) *v1.PodStatus {
	return &v1.PodStatus{Phase: phase, ContainerStatuses: containers}
}

func TestPH2TheStartOfASidecarReachesThePhaseAtOnce(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	main := sight("main", 1, observed.Exited)
	main.SandboxID = "before"
	theirs, ours := statusCase{Pod: pod, Observed: sights(sight("proxy", 1, observed.Running), main)}.show()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodPending, v1.PodRunning))
	expect(t, "started", pair(*theirs.InitContainerStatuses[0].Started, *ours.InitContainerStatuses[0].Started), pair(true, true))
}

func TestPH11AStateThatNobodyKnowsDoesNotUndoThatThePodRuns(t *testing.T) {
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: before(v1.PodRunning, statusOf("main", 1, waits)),
		Observed: sights(sight("main", 1, observed.Unknown)),
	}.show()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodPending, v1.PodRunning))
}

func TestPH16AnInitContainerKilledForWantOfMemoryHasFailed(t *testing.T) {
	pod := podWith(v1.RestartPolicyNever, "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	setup := sight("setup", 1, observed.Exited)
	setup.Exit.Reason = outOfMemory
	theirs, ours := statusCase{Pod: pod, Observed: sights(setup)}.show()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodPending, v1.PodFailed))
	expect(t, "ready", pair(theirs.InitContainerStatuses[0].Ready, ours.InitContainerStatuses[0].Ready), pair(true, false))
}

func TestPH17ATerminalPhaseThatWasPublishedIsFinal(t *testing.T) {
	evicted := before(v1.PodFailed)
	evicted.Reason = "Evicted"
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyNever, "main"), Previous: evicted, Observed: sights(sight("main", 1, observed.Exited)),
	}.show()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodSucceeded, v1.PodFailed))
	expect(t, "reason", pair(theirs.Reason, ours.Reason), pair("", "Evicted"))
}

func TestPH19NobodyEvictsAPodThatHasEnded(t *testing.T) {
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyNever, "main"), Previous: before(v1.PodSucceeded), Evict: &derive.Eviction{Reason: "DeadlineExceeded"},
		Observed: sights(sight("main", 1, observed.Exited)),
	}.show()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodFailed, v1.PodSucceeded))
}

func TestPH20TheEndThatTheAPIServerShowsKeepsItsReason(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost"}
	theirs, ours := statusCase{
		Pod: pod, Previous: before(v1.PodRunning), Observed: sights(sight("main", 1, observed.Running)),
	}.show()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodFailed, v1.PodFailed))
	expect(t, "reason", pair(theirs.Reason, ours.Reason), pair("", "NodeLost"))
}

func TestPH24AnInstanceThatNeverStartedIsNoLastState(t *testing.T) {
	old := statusOf("main", 1, waits)
	old.LastTerminationState = ended
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: before(v1.PodRunning, old),
		Observed: sights(sight("main", 3, observed.Running), sight("main", 2, observed.Created)),
	}.show()
	expect(t, "last state is an end", pair(theirs.ContainerStatuses[0].LastTerminationState.Terminated != nil, ours.ContainerStatuses[0].LastTerminationState.Terminated != nil), pair(false, true))
}

func TestPH28AnEndThatWasShownStaysWhileTheRuntimeCannotTell(t *testing.T) {
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyNever, "main"), Previous: before(v1.PodRunning, statusOf("main", 1, ended)),
		Observed: sights(sight("main", 1, observed.Unknown)),
		Waiting:  map[string]derive.Waiting{"main": {Reason: "CrashLoopBackOff"}},
	}.show()
	expect(t, "ended", pair(theirs.ContainerStatuses[0].State.Terminated != nil, ours.ContainerStatuses[0].State.Terminated != nil), pair(false, true))
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodPending, v1.PodSucceeded))
}

func TestPH38AContainerThatWasReplacedDoesNotInheritThatItStarted(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.Containers[0].StartupProbe = &v1.Probe{}
	old := statusOf("main", 1, runs)
	old.Started = new(true)
	theirs, ours := statusCase{
		Pod: pod, Previous: before(v1.PodRunning, old), Observed: sights(sight("main", 2, observed.Running)),
	}.show()
	expect(t, "started", pair(*theirs.ContainerStatuses[0].Started, *ours.ContainerStatuses[0].Started), pair(true, false))
}

func TestPH42AnEphemeralContainerThatEndedDoesNotWaitToRunAgain(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	theirs, ours := statusCase{
		Pod: pod, Observed: sights(sight("main", 1, observed.Running), sight("debug", 1, observed.Exited)),
		Waiting: map[string]derive.Waiting{"debug": {Reason: "RunContainerError"}},
	}.show()
	expect(t, "waits", pair(theirs.EphemeralContainerStatuses[0].State.Waiting != nil, ours.EphemeralContainerStatuses[0].State.Waiting != nil), pair(true, false))
}

func TestPH44APodThatEndedKeepsItsAddressAcrossARestart(t *testing.T) {
	old := before(v1.PodSucceeded)
	old.PodIP, old.PodIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}}
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyNever, "main"), Previous: old,
		Observed: &observed.Pod{Containers: []observed.Container{sight("main", 1, observed.Exited)}},
	}.show()
	expect(t, "pod IP", pair(theirs.PodIP, ours.PodIP), pair("", "10.0.0.1"))
}

func TestPH45TheAddressOfAPodOnTheHostsNetworkDoesNotMove(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.HostNetwork = true
	old := before(v1.PodRunning)
	old.PodIP, old.PodIPs = "192.0.2.1", []v1.PodIP{{IP: "192.0.2.1"}}
	theirs, ours := statusCase{Pod: pod, Previous: old, Observed: sights(), Addresses: nodeAddresses("192.0.2.2")}.show()
	expect(t, "pod IP", pair(theirs.PodIP, ours.PodIP), pair("192.0.2.2", "192.0.2.1"))
}

func TestPH47TheNodesAddressIsNotWithdrawnWhileItIsNotKnown(t *testing.T) {
	old := before(v1.PodRunning)
	old.HostIP, old.HostIPs = "192.0.2.1", []v1.HostIP{{IP: "192.0.2.1"}}
	theirs, ours := statusCase{Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: old}.show()
	expect(t, "host IP", pair(theirs.HostIP, ours.HostIP), pair("", "192.0.2.1"))
}

func TestPRB33AContainerThatDoesNotRunIsNotReady(t *testing.T) {
	old := statusOf("main", 1, ended)
	old.Ready = true
	theirs, ours := statusCase{Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: before(v1.PodRunning, old)}.show()
	expect(t, "ready", pair(theirs.ContainerStatuses[0].Ready, ours.ContainerStatuses[0].Ready), pair(true, false))
}

func TestPRB34ReadinessIsKeptForTheContainerThatHadIt(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	old := statusOf("main", 1, runs)
	old.Ready, old.Started = true, new(true)
	theirs, ours := statusCase{
		Pod: pod, Previous: before(v1.PodRunning, old), Observed: sights(sight("main", 2, observed.Running)),
	}.show()
	expect(t, "another instance is ready", pair(theirs.ContainerStatuses[0].Ready, ours.ContainerStatuses[0].Ready), pair(true, false))
	pod.Status.Conditions = nil
	theirs, ours = statusCase{
		Pod: pod, Previous: before(v1.PodRunning, old), Observed: sights(sight("main", 1, observed.Running)),
	}.show()
	expect(t, "the same instance is ready", pair(theirs.ContainerStatuses[0].Ready, ours.ContainerStatuses[0].Ready), pair(false, true))
}

func TestPH22AContainerShowsItsMountsFromTheFirstLookOn(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	theirs, ours := statusCase{Pod: pod, Observed: sights(sight("main", 1, observed.Running))}.show()
	expect(t, "mounts", pair(len(theirs.ContainerStatuses[0].VolumeMounts), len(ours.ContainerStatuses[0].VolumeMounts)), pair(0, 1))
}

func TestPH39ResourcesOfThePodAreShownWhereTheServerKeepsThem(t *testing.T) {
	theirs, ours := statusCase{Pod: podWith(v1.RestartPolicyAlways, "main")}.show()
	expect(t, "resources are shown", pair(theirs.Resources != nil, ours.Resources != nil), pair(true, false))
	_, ours = statusCase{Pod: podWith(v1.RestartPolicyAlways, "main"), PodResources: true}.show()
	expect(t, "resources are shown on demand", pair(theirs.Resources != nil, ours.Resources != nil), pair(true, true))
}

func TestGEN34ARestartOfAllContainersIsOverWhenTheyWereMadeAnew(t *testing.T) {
	pod := podWith(v1.RestartPolicyNever, "main", "other")
	never := v1.ContainerRestartPolicyNever
	pod.Spec.Containers[0].RestartPolicy = &never
	pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{0},
		},
	}}
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}
	theirs, ours := statusCase{Pod: pod, Observed: sights(
		sight("main", 2, observed.Running), sight("other", 2, observed.Running), sight("main", 1, observed.Exited),
	)}.show()
	restarting := func(s v1.PodStatus) v1.ConditionStatus { return conditionOf(s, v1.AllContainersRestarting).Status }
	expect(t, "restarting", pair(restarting(theirs), restarting(ours)), pair(v1.ConditionTrue, v1.ConditionFalse))
}

func trueSince(kind v1.PodConditionType, at time.Time) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}
}

func TestSM18TheLastStatusIsTheEvidenceOfWhatRan(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	known := before(v1.PodRunning, statusOf("main", 1, runs))
	known.InitContainerStatuses = []v1.ContainerStatus{statusOf("setup", 1, ended)}
	manager := newKubeletStatuses()
	manager.SetPodStatus(pod, *known.DeepCopy())
	manager.TerminatePod(pod) // whose copy in the API server is still empty
	theirs, _ := manager.GetPodStatus(pod.UID)
	ours := derive.Terminate(pod, *known)
	expect(t, "the container ended", pair(theirs.ContainerStatuses[0].State.Terminated != nil, ours.ContainerStatuses[0].State.Terminated != nil), pair(false, true))
}

func TestSM20ReadinessEndsWithThePod(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Status = *before(v1.PodRunning, statusOf("main", 1, runs))
	pod.Status.Conditions = []v1.PodCondition{trueSince(v1.PodReady, firstDay)}
	manager := newKubeletStatuses()
	manager.TerminatePod(pod)
	theirs, _ := manager.GetPodStatus(pod.UID)
	ours := derive.Terminate(pod, pod.Status)
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodFailed, v1.PodFailed))
	expect(t, "ready", pair(theirs.Conditions[0].Status, ours.Conditions[0].Status), pair(v1.ConditionTrue, v1.ConditionFalse))
}

func TestSM24NoTimeMovesBackwardsWithTheClock(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Status.Conditions = []v1.PodCondition{trueSince(v1.PodReady, now.Add(time.Hour))}
	next := v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}}
	manager := newKubeletStatuses()
	theirs, _ := manager.SetPodStatus(pod, *next.DeepCopy())
	ours := derive.CarryOver(&pod.Status, next, now)
	moved := func(s *v1.PodStatus) bool {
		return s.Conditions[0].LastTransitionTime.Before(&pod.Status.Conditions[0].LastTransitionTime)
	}
	expect(t, "moved back", pair(moved(&theirs), moved(&ours)), pair(true, false))
}

func TestSM29AMessageIsCutBetweenCharacters(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	long := before(v1.PodRunning, statusOf("main", 1, v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{Message: "a" + strings.Repeat("世", 5000)},
	}))
	theirs := kubelet.NormalizeStatus(pod, long)
	ours, _ := derive.Normalize(pod, *long)
	isText := func(s *v1.PodStatus) bool { return utf8.ValidString(s.ContainerStatuses[0].State.Terminated.Message) }
	expect(t, "is text", pair(isText(&theirs), isText(&ours)), pair(false, true))
}

func TestSM32WhatTheAgentDoesNotWriteIsNoReasonToWrite(t *testing.T) {
	for name, foreign := range map[string]v1.PodStatus{
		"nominatedNodeName": {NominatedNodeName: "other"}, "qosClass": {QOSClass: v1.PodQOSBurstable},
	} {
		expect(t, name, pair(kubelet.StatusEqual(&v1.PodStatus{}, &foreign), derive.Equal(&v1.PodStatus{}, &foreign)), pair(false, true))
	}
}

func TestSM63AConditionIsSentOnce(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	twice := &v1.PodStatus{Conditions: []v1.PodCondition{trueSince(v1.PodReady, firstDay), trueSince(v1.PodReady, firstDay)}}
	theirs := kubelet.MergeStatus(pod, &v1.PodStatus{}, twice, false)
	ours := derive.Merge(v1.PodStatus{}, *twice, false, heraldNow)
	expect(t, "conditions", pair(len(theirs.Conditions), len(ours.Conditions)), pair(2, 1))
}

func TestSM66FieldsOfOthersAreNotSent(t *testing.T) {
	api := v1.PodStatus{NominatedNodeName: "other", QOSClass: v1.PodQOSBurstable}
	theirs := kubelet.MergeStatus(podWith(v1.RestartPolicyAlways, "main"), &api, &v1.PodStatus{QOSClass: v1.PodQOSBestEffort}, false)
	ours := derive.Merge(api, v1.PodStatus{QOSClass: v1.PodQOSBestEffort}, false, heraldNow)
	expect(t, "nominatedNodeName", pair(theirs.NominatedNodeName, ours.NominatedNodeName), pair("", "other"))
	expect(t, "qosClass", pair(theirs.QOSClass, ours.QOSClass), pair(v1.PodQOSBestEffort, v1.PodQOSBurstable))
}

func TestSM68AnEndThatSomebodyElseToldIsNotUndone(t *testing.T) {
	api := v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost"}
	theirs := kubelet.MergeStatus(podWith(v1.RestartPolicyAlways, "main"), &api, before(v1.PodRunning), true)
	ours := derive.Merge(api, *before(v1.PodRunning), true, heraldNow)
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodRunning, v1.PodFailed))
	expect(t, "reason", pair(theirs.Reason, ours.Reason), pair("", "NodeLost"))
}

func TestSM27TheObservedGenerationDoesNotFallInTheAPIServer(t *testing.T) {
	api := v1.PodStatus{ObservedGeneration: 3}
	theirs := kubelet.MergeStatus(podWith(v1.RestartPolicyAlways, "main"), &api, &v1.PodStatus{ObservedGeneration: 2}, false)
	ours := derive.Merge(api, v1.PodStatus{ObservedGeneration: 2}, false, heraldNow)
	expect(t, "observed generation", pair(theirs.ObservedGeneration, ours.ObservedGeneration), pair[int64](2, 3))
}

func TestSM92ResizeConditionsKeepTheirTimesAcrossARestart(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Status.Conditions = []v1.PodCondition{trueSince(v1.PodResizePending, firstDay)}
	manager := newKubeletStatuses()
	manager.BackfillPodResizeConditions([]*v1.Pod{pod})
	theirs := manager.GetPodResizeConditions(pod.UID)[0]
	ours := derive.ResizeFromConditions(pod.Status.Conditions).Conditions()[0]
	expect(t, "time kept", pair(theirs.LastTransitionTime.Time.Equal(firstDay), ours.LastTransitionTime.Time.Equal(firstDay)), pair(false, true))
}

func TestSM97SidecarsDoNotMakeReadinessLookStale(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate/a"}}
	proxy, main := statusOf("proxy", 1, runs), statusOf("main", 1, runs)
	proxy.Ready, main.Ready = true, true
	pod.Status = *before(v1.PodRunning, main)
	pod.Status.InitContainerStatuses = []v1.ContainerStatus{proxy}
	pod.Status.Conditions = []v1.PodCondition{trueSince("gate/a", firstDay), trueSince(v1.PodReady, firstDay)}
	expect(t, "stale", pair(status.NeedToReconcilePodReadiness(pod), derive.NeedToReconcileReadiness(pod)), pair(true, false))
}

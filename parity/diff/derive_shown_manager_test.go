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
	"github.com/heraldnode/herald/parity/internal/kubelet"
)

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
	ours := derive.Continue(&pod.Status, next, now)
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
		expect(t, name, pair(kubelet.EqualStatus(&v1.PodStatus{}, &foreign), derive.Equal(&v1.PodStatus{}, &foreign)), pair(false, true))
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
	ours := derive.ResizeOf(pod.Status.Conditions).Conditions()[0]
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
	expect(t, "stale", pair(status.NeedToReconcilePodReadiness(pod), derive.ReadinessStale(pod)), pair(true, false))
}

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

// run returns the status of each side, without adapting the kubelet's input.
func (c statusCase) run() (theirs, ours v1.PodStatus) {
	if c.Observed == nil {
		c.Observed = &observed.Pod{}
	}
	return kubeletGenerator.Generate(newStatusInput(c)), c.heraldStatus()
}

func podWith(policy v1.RestartPolicy, names ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Generation: 2}}
	pod.Spec.RestartPolicy = policy
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Image: name + ":1"})
	}
	return pod
}

// observedInstance returns an instance of a container in the sandbox "now". Higher instances are newer.
func observedInstance(name string, instance int, state observed.State) observed.Container {
	c := observed.Container{
		ID: containerID(name, instance), Name: name, SandboxID: "now", State: state,
		CreatedAt: baseTime.Add(time.Duration(instance) * time.Minute), StartedAt: baseTime,
	}
	if state == observed.Exited {
		c.Exit = &observed.Exit{Reason: "Completed", FinishedAt: baseTime}
	}
	return c
}

// runtimeWith returns a runtime with a ready sandbox "now", an older one, and these containers.
func runtimeWith(containers ...observed.Container) *observed.Pod {
	pod := &observed.Pod{
		Sandboxes:  []observed.Sandbox{{ID: "now", Ready: true, CreatedAt: baseTime}, {ID: "before"}},
		Containers: containers,
	}
	pod.Sort()
	return pod
}

// containerStatus returns a status of that instance.
func containerStatus(name string, instance int, state v1.ContainerState) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, ContainerID: containerID(name, instance).String(), State: state}
}

var (
	stateRunning    = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(baseTime)}}
	stateWaiting    = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	stateTerminated = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"}}
)

func podStatus(phase v1.PodPhase, containers ...v1.ContainerStatus) *v1.PodStatus {
	return &v1.PodStatus{Phase: phase, ContainerStatuses: containers}
}

func TestPH2_SidecarStart(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	main := observedInstance("main", 1, observed.Exited)
	main.SandboxID = "before"
	theirs, ours := statusCase{Pod: pod, Observed: runtimeWith(observedInstance("proxy", 1, observed.Running), main)}.run()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodPending, v1.PodRunning))
	expect(t, "started", pair(*theirs.InitContainerStatuses[0].Started, *ours.InitContainerStatuses[0].Started), pair(true, true))
}

func TestPH11_UnknownState(t *testing.T) {
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: podStatus(v1.PodRunning, containerStatus("main", 1, stateWaiting)),
		Observed: runtimeWith(observedInstance("main", 1, observed.Unknown)),
	}.run()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodPending, v1.PodRunning))
}

func TestPH16_OOMKilledInitContainer(t *testing.T) {
	pod := podWith(v1.RestartPolicyNever, "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	setup := observedInstance("setup", 1, observed.Exited)
	setup.Exit.Reason = oomKilled
	theirs, ours := statusCase{Pod: pod, Observed: runtimeWith(setup)}.run()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodPending, v1.PodFailed))
	expect(t, "ready", pair(theirs.InitContainerStatuses[0].Ready, ours.InitContainerStatuses[0].Ready), pair(true, false))
}

func TestPH17_TerminalPhaseIsFinal(t *testing.T) {
	evicted := podStatus(v1.PodFailed)
	evicted.Reason = "Evicted"
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyNever, "main"), Previous: evicted, Observed: runtimeWith(observedInstance("main", 1, observed.Exited)),
	}.run()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodSucceeded, v1.PodFailed))
	expect(t, "reason", pair(theirs.Reason, ours.Reason), pair("", "Evicted"))
}

func TestPH19_NoEvictionAfterTermination(t *testing.T) {
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyNever, "main"), Previous: podStatus(v1.PodSucceeded), Evict: &derive.Eviction{Reason: "DeadlineExceeded"},
		Observed: runtimeWith(observedInstance("main", 1, observed.Exited)),
	}.run()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodFailed, v1.PodSucceeded))
}

func TestPH20_ReasonFromAPIServer(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost"}
	theirs, ours := statusCase{
		Pod: pod, Previous: podStatus(v1.PodRunning), Observed: runtimeWith(observedInstance("main", 1, observed.Running)),
	}.run()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodFailed, v1.PodFailed))
	expect(t, "reason", pair(theirs.Reason, ours.Reason), pair("", "NodeLost"))
}

func TestPH24_InstanceNeverStarted(t *testing.T) {
	old := containerStatus("main", 1, stateWaiting)
	old.LastTerminationState = stateTerminated
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: podStatus(v1.PodRunning, old),
		Observed: runtimeWith(observedInstance("main", 3, observed.Running), observedInstance("main", 2, observed.Created)),
	}.run()
	expect(t, "last state is a termination", pair(theirs.ContainerStatuses[0].LastTerminationState.Terminated != nil, ours.ContainerStatuses[0].LastTerminationState.Terminated != nil), pair(false, true))
}

func TestPH28_TerminationKept(t *testing.T) {
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyNever, "main"), Previous: podStatus(v1.PodRunning, containerStatus("main", 1, stateTerminated)),
		Observed: runtimeWith(observedInstance("main", 1, observed.Unknown)),
		Waiting:  map[string]derive.Waiting{"main": {Reason: "CrashLoopBackOff"}},
	}.run()
	expect(t, "terminated", pair(theirs.ContainerStatuses[0].State.Terminated != nil, ours.ContainerStatuses[0].State.Terminated != nil), pair(false, true))
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodPending, v1.PodSucceeded))
}

func TestPH36_SameInstance(t *testing.T) {
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: podStatus(v1.PodRunning, containerStatus("main", 1, stateTerminated)),
		Observed: runtimeWith(observedInstance("main", 1, observed.Running)),
	}.run()
	expect(t, "restart count", pair(theirs.ContainerStatuses[0].RestartCount, ours.ContainerStatuses[0].RestartCount), pair[int32](1, 0))
}

func TestPH38_StartedByContainerID(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.Containers[0].StartupProbe = &v1.Probe{}
	old := containerStatus("main", 1, stateRunning)
	old.Started = new(true)
	theirs, ours := statusCase{
		Pod: pod, Previous: podStatus(v1.PodRunning, old), Observed: runtimeWith(observedInstance("main", 2, observed.Running)),
	}.run()
	expect(t, "started", pair(*theirs.ContainerStatuses[0].Started, *ours.ContainerStatuses[0].Started), pair(true, false))
}

func TestPH42_EphemeralContainerTerminated(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	theirs, ours := statusCase{
		Pod: pod, Observed: runtimeWith(observedInstance("main", 1, observed.Running), observedInstance("debug", 1, observed.Exited)),
		Waiting: map[string]derive.Waiting{"debug": {Reason: "RunContainerError"}},
	}.run()
	expect(t, "waiting", pair(theirs.EphemeralContainerStatuses[0].State.Waiting != nil, ours.EphemeralContainerStatuses[0].State.Waiting != nil), pair(true, false))
}

func TestPH44_AddressAfterRestart(t *testing.T) {
	old := podStatus(v1.PodSucceeded)
	old.PodIP, old.PodIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}}
	theirs, ours := statusCase{
		Pod: podWith(v1.RestartPolicyNever, "main"), Previous: old,
		Observed: &observed.Pod{Containers: []observed.Container{observedInstance("main", 1, observed.Exited)}},
	}.run()
	expect(t, "pod IP", pair(theirs.PodIP, ours.PodIP), pair("", "10.0.0.1"))
}

func TestPH45_HostNetworkAddress(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.HostNetwork = true
	old := podStatus(v1.PodRunning)
	old.PodIP, old.PodIPs = "192.0.2.1", []v1.PodIP{{IP: "192.0.2.1"}}
	theirs, ours := statusCase{Pod: pod, Previous: old, Observed: runtimeWith(), Addresses: newNodeAddresses("192.0.2.2")}.run()
	expect(t, "pod IP", pair(theirs.PodIP, ours.PodIP), pair("192.0.2.2", "192.0.2.1"))
}

func TestPH47_HostIPKept(t *testing.T) {
	old := podStatus(v1.PodRunning)
	old.HostIP, old.HostIPs = "192.0.2.1", []v1.HostIP{{IP: "192.0.2.1"}}
	theirs, ours := statusCase{Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: old}.run()
	expect(t, "host IP", pair(theirs.HostIP, ours.HostIP), pair("", "192.0.2.1"))
}

func TestPRB33_NotRunningNotReady(t *testing.T) {
	old := containerStatus("main", 1, stateTerminated)
	old.Ready = true
	theirs, ours := statusCase{Pod: podWith(v1.RestartPolicyAlways, "main"), Previous: podStatus(v1.PodRunning, old)}.run()
	expect(t, "ready", pair(theirs.ContainerStatuses[0].Ready, ours.ContainerStatuses[0].Ready), pair(true, false))
}

func TestPRB34_ReadinessByContainerID(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	old := containerStatus("main", 1, stateRunning)
	old.Ready, old.Started = true, new(true)
	theirs, ours := statusCase{
		Pod: pod, Previous: podStatus(v1.PodRunning, old), Observed: runtimeWith(observedInstance("main", 2, observed.Running)),
	}.run()
	expect(t, "other instance ready", pair(theirs.ContainerStatuses[0].Ready, ours.ContainerStatuses[0].Ready), pair(true, false))
	pod.Status.Conditions = nil
	theirs, ours = statusCase{
		Pod: pod, Previous: podStatus(v1.PodRunning, old), Observed: runtimeWith(observedInstance("main", 1, observed.Running)),
	}.run()
	expect(t, "same instance ready", pair(theirs.ContainerStatuses[0].Ready, ours.ContainerStatuses[0].Ready), pair(false, true))
}

func TestPH22_VolumeMountsAtOnce(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	theirs, ours := statusCase{Pod: pod, Observed: runtimeWith(observedInstance("main", 1, observed.Running))}.run()
	expect(t, "mounts", pair(len(theirs.ContainerStatuses[0].VolumeMounts), len(ours.ContainerStatuses[0].VolumeMounts)), pair(0, 1))
}

func TestPH39_PodResources(t *testing.T) {
	theirs, ours := statusCase{Pod: podWith(v1.RestartPolicyAlways, "main")}.run()
	expect(t, "resources present", pair(theirs.Resources != nil, ours.Resources != nil), pair(true, false))
	_, ours = statusCase{Pod: podWith(v1.RestartPolicyAlways, "main"), PodResources: true}.run()
	expect(t, "resources present if enabled", pair(theirs.Resources != nil, ours.Resources != nil), pair(true, true))
}

// restartAllPod returns a pod whose containers all restart when "main" exits with code 0, and not at all otherwise.
func restartAllPod() *v1.Pod {
	pod := podWith(v1.RestartPolicyNever, "main", "other")
	never := v1.ContainerRestartPolicyNever
	pod.Spec.Containers[0].RestartPolicy = &never
	pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{0},
		},
	}}
	return pod
}

// The first main triggers the restart of all containers, which stops other. The second main fails before other is replaced.
func TestPH4_StoppedForRestartAll(t *testing.T) {
	exited := func(name string, instance, code int, after time.Duration) observed.Container {
		c := observedInstance(name, instance, observed.Exited)
		c.Exit.Code, c.Exit.FinishedAt = code, c.CreatedAt.Add(after)
		return c
	}
	pod := restartAllPod()
	pod.Status.Phase = v1.PodRunning
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}
	theirs, ours := statusCase{Pod: pod, Observed: runtimeWith(
		exited("main", 1, 0, 10*time.Second), exited("other", 1, 137, 20*time.Second), exited("main", 2, 5, 10*time.Second),
	)}.run()
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodFailed, v1.PodRunning))
}

func TestGEN34_RestartAllDone(t *testing.T) {
	pod := restartAllPod()
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}
	theirs, ours := statusCase{Pod: pod, Observed: runtimeWith(
		observedInstance("main", 2, observed.Running), observedInstance("other", 2, observed.Running), observedInstance("main", 1, observed.Exited),
	)}.run()
	restartingStatus := func(s v1.PodStatus) v1.ConditionStatus { return findCondition(s, v1.AllContainersRestarting).Status }
	expect(t, "restarting", pair(restartingStatus(theirs), restartingStatus(ours)), pair(v1.ConditionTrue, v1.ConditionFalse))
}

func trueCondition(kind v1.PodConditionType, at time.Time) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}
}

func TestSM18_InitializedByLastStatus(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	known := podStatus(v1.PodRunning, containerStatus("main", 1, stateRunning))
	known.InitContainerStatuses = []v1.ContainerStatus{containerStatus("setup", 1, stateTerminated)}
	manager := newKubeletStatusManager()
	manager.SetPodStatus(pod, *known.DeepCopy())
	manager.TerminatePod(pod) // the pod from the API server still has no status
	theirs, _ := manager.GetPodStatus(pod.UID)
	ours := derive.Terminate(pod, *known)
	expect(t, "container terminated", pair(theirs.ContainerStatuses[0].State.Terminated != nil, ours.ContainerStatuses[0].State.Terminated != nil), pair(false, true))
}

func TestSM20_ReadyFalseAfterTermination(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Status = *podStatus(v1.PodRunning, containerStatus("main", 1, stateRunning))
	pod.Status.Conditions = []v1.PodCondition{trueCondition(v1.PodReady, baseTime)}
	manager := newKubeletStatusManager()
	manager.TerminatePod(pod)
	theirs, _ := manager.GetPodStatus(pod.UID)
	ours := derive.Terminate(pod, pod.Status)
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodFailed, v1.PodFailed))
	expect(t, "ready", pair(theirs.Conditions[0].Status, ours.Conditions[0].Status), pair(v1.ConditionTrue, v1.ConditionFalse))
}

func TestSM24_ClockMovesBack(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Status.Conditions = []v1.PodCondition{trueCondition(v1.PodReady, now.Add(time.Hour))}
	next := v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}}
	manager := newKubeletStatusManager()
	theirs, _ := manager.SetPodStatus(pod, *next.DeepCopy())
	ours := derive.CarryOver(&pod.Status, next, now)
	moved := func(s *v1.PodStatus) bool {
		return s.Conditions[0].LastTransitionTime.Before(&pod.Status.Conditions[0].LastTransitionTime)
	}
	expect(t, "transition time moved back", pair(moved(&theirs), moved(&ours)), pair(true, false))
}

func TestSM29_TruncationBetweenRunes(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	long := podStatus(v1.PodRunning, containerStatus("main", 1, v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{Message: "a" + strings.Repeat("世", 5000)},
	}))
	theirs := kubelet.NormalizeStatus(pod, long)
	ours, _ := derive.Normalize(pod, *long)
	isValid := func(s *v1.PodStatus) bool { return utf8.ValidString(s.ContainerStatuses[0].State.Terminated.Message) }
	expect(t, "valid UTF-8", pair(isValid(&theirs), isValid(&ours)), pair(false, true))
}

func TestSM32_ForeignFieldsIgnored(t *testing.T) {
	for name, foreign := range map[string]v1.PodStatus{
		"nominatedNodeName": {NominatedNodeName: "other"}, "qosClass": {QOSClass: v1.PodQOSBurstable},
	} {
		expect(t, name, pair(kubelet.StatusEqual(&v1.PodStatus{}, &foreign), derive.Equal(&v1.PodStatus{}, &foreign)), pair(false, true))
	}
}

func TestSM63_DuplicateCondition(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	twice := &v1.PodStatus{Conditions: []v1.PodCondition{trueCondition(v1.PodReady, baseTime), trueCondition(v1.PodReady, baseTime)}}
	theirs := kubelet.MergeStatus(pod, &v1.PodStatus{}, twice, false)
	ours := derive.Merge(v1.PodStatus{}, *twice, false, fixedNow)
	expect(t, "conditions", pair(len(theirs.Conditions), len(ours.Conditions)), pair(2, 1))
}

func TestSM66_ForeignFieldsKept(t *testing.T) {
	api := v1.PodStatus{NominatedNodeName: "other", QOSClass: v1.PodQOSBurstable}
	theirs := kubelet.MergeStatus(podWith(v1.RestartPolicyAlways, "main"), &api, &v1.PodStatus{QOSClass: v1.PodQOSBestEffort}, false)
	ours := derive.Merge(api, v1.PodStatus{QOSClass: v1.PodQOSBestEffort}, false, fixedNow)
	expect(t, "nominatedNodeName", pair(theirs.NominatedNodeName, ours.NominatedNodeName), pair("", "other"))
	expect(t, "qosClass", pair(theirs.QOSClass, ours.QOSClass), pair(v1.PodQOSBestEffort, v1.PodQOSBurstable))
}

func TestSM68_ForeignTerminalPhase(t *testing.T) {
	api := v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost"}
	theirs := kubelet.MergeStatus(podWith(v1.RestartPolicyAlways, "main"), &api, podStatus(v1.PodRunning), true)
	ours := derive.Merge(api, *podStatus(v1.PodRunning), true, fixedNow)
	expect(t, "phase", pair(theirs.Phase, ours.Phase), pair(v1.PodRunning, v1.PodFailed))
	expect(t, "reason", pair(theirs.Reason, ours.Reason), pair("", "NodeLost"))
}

func TestSM27_ObservedGeneration(t *testing.T) {
	api := v1.PodStatus{ObservedGeneration: 3}
	theirs := kubelet.MergeStatus(podWith(v1.RestartPolicyAlways, "main"), &api, &v1.PodStatus{ObservedGeneration: 2}, false)
	ours := derive.Merge(api, v1.PodStatus{ObservedGeneration: 2}, false, fixedNow)
	expect(t, "observed generation", pair(theirs.ObservedGeneration, ours.ObservedGeneration), pair[int64](2, 3))
}

func TestSM92_ResizeTimesAfterRestart(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Status.Conditions = []v1.PodCondition{trueCondition(v1.PodResizePending, baseTime)}
	manager := newKubeletStatusManager()
	manager.BackfillPodResizeConditions([]*v1.Pod{pod})
	theirs := manager.GetPodResizeConditions(pod.UID)[0]
	ours := derive.ResizeFromConditions(pod.Status.Conditions).Conditions()[0]
	expect(t, "time kept", pair(theirs.LastTransitionTime.Time.Equal(baseTime), ours.LastTransitionTime.Time.Equal(baseTime)), pair(false, true))
}

func TestSM97_SidecarReadiness(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate/a"}}
	proxy, main := containerStatus("proxy", 1, stateRunning), containerStatus("main", 1, stateRunning)
	proxy.Ready, main.Ready = true, true
	pod.Status = *podStatus(v1.PodRunning, main)
	pod.Status.InitContainerStatuses = []v1.ContainerStatus{proxy}
	pod.Status.Conditions = []v1.PodCondition{trueCondition("gate/a", baseTime), trueCondition(v1.PodReady, baseTime)}
	expect(t, "stale", pair(status.NeedToReconcilePodReadiness(pod), derive.NeedToReconcileReadiness(pod)), pair(true, false))
}

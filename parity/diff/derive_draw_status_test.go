package diff_test

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var firstDay = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func drawTime(d *drawer) metav1.Time {
	return metav1.NewTime(firstDay.Add(time.Duration(d.IntN(3600))*time.Second + time.Duration(d.IntN(3))*300*time.Millisecond))
}

// conditionTypes are others', the shared one and the kubelet's own.
var conditionTypes = []v1.PodConditionType{
	"gate/a", "gate/b", "foreign/x", v1.DisruptionTarget, v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady,
	v1.PodResizeInProgress, v1.PodResizePending, v1.PodReadyToStartContainers, v1.AllContainersRestarting,
}

// drawStatus draws any status of the pod, as this or another agent may have left it.
func drawStatus(d *drawer, pod *v1.Pod) *v1.PodStatus {
	status := &v1.PodStatus{
		Phase:  oneOf(d, v1.PodPending, v1.PodPending, v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodSucceeded, v1.PodFailed, v1.PodPhase("")),
		Reason: oneOf(d, "", "R"), Message: oneOf(d, "", "M"),
		ObservedGeneration: int64(d.IntN(3)),
		QOSClass:           oneOf(d, "", v1.PodQOSBestEffort, v1.PodQOSBurstable),
		NominatedNodeName:  oneOf(d, "", "", "other"),
	}
	if d.chance(50) {
		status.StartTime = new(drawTime(d))
	}
	for _, kind := range conditionTypes {
		if d.chance(40) {
			status.Conditions = append(status.Conditions, drawCondition(d, kind))
		}
	}
	d.Shuffle(len(status.Conditions), func(i, j int) {
		status.Conditions[i], status.Conditions[j] = status.Conditions[j], status.Conditions[i]
	})
	if d.chance(20) {
		status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: fmt.Sprint(d.IntN(2))}}
	}
	if d.chance(20) {
		status.Resources = &v1.ResourceRequirements{Requests: drawResources(d), Limits: drawResources(d)}
	}
	drawAddresses(d, pod, status)
	drawContainerStatuses(d, pod, status)
	return status
}

func drawCondition(d *drawer, kind v1.PodConditionType) v1.PodCondition {
	return v1.PodCondition{
		Type: kind, Status: oneOf(d, v1.ConditionTrue, v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown),
		Reason: oneOf(d, "", "R"), Message: oneOf(d, "", "M"),
		LastTransitionTime: drawTime(d), ObservedGeneration: int64(d.IntN(3)),
	}
}

func drawAddresses(d *drawer, pod *v1.Pod, status *v1.PodStatus) {
	if d.chance(50) {
		status.HostIP, status.HostIPs = "192.0.2.9", []v1.HostIP{{IP: "192.0.2.9"}}
		if d.chance(30) {
			status.HostIPs = append(status.HostIPs, v1.HostIP{IP: "2001:db8::9"})
		}
	}
	if d.chance(50) {
		status.PodIP, status.PodIPs = "10.0.9.9", []v1.PodIP{{IP: "10.0.9.9"}}
	}
	if pod.Spec.HostNetwork && d.chance(50) {
		status.PodIP, status.PodIPs = "192.0.2.9", []v1.PodIP{{IP: "192.0.2.9"}}
	}
}

// drawContainerStatuses leaves some out, adds one too many, and shuffles now and then.
func drawContainerStatuses(d *drawer, pod *v1.Pod, status *v1.PodStatus) {
	missing := oneOf(d, 0, 0, 0, 10, 50, 100)
	draw := func(list *[]v1.ContainerStatus, name string) {
		if !d.chance(missing) {
			*list = append(*list, drawContainerStatus(d, name))
		}
	}
	for i := range pod.Spec.InitContainers {
		draw(&status.InitContainerStatuses, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		draw(&status.ContainerStatuses, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		draw(&status.EphemeralContainerStatuses, pod.Spec.EphemeralContainers[i].Name)
	}
	for i := range status.EphemeralContainerStatuses {
		status.EphemeralContainerStatuses[i].Ready, status.EphemeralContainerStatuses[i].Started = false, nil
	}
	for _, list := range []*[]v1.ContainerStatus{&status.InitContainerStatuses, &status.ContainerStatuses} {
		if d.chance(5) {
			*list = append(*list, drawContainerStatus(d, "stranger"))
		}
		if d.chance(5) {
			d.Shuffle(len(*list), func(i, j int) { (*list)[i], (*list)[j] = (*list)[j], (*list)[i] })
		}
	}
}

func drawContainerStatus(d *drawer, name string) v1.ContainerStatus {
	id := containerID(name, d.IntN(3)).String()
	status := v1.ContainerStatus{
		Name: name, Image: "old:1", ImageID: "old@sha256:1", RestartCount: int32(d.IntN(4)), State: drawState(d, id), Ready: d.chance(50),
	}
	if status.State.Waiting == nil {
		status.ContainerID = id
	}
	if d.chance(40) {
		status.LastTerminationState.Terminated = drawEnd(d, containerID(name, 9).String())
	}
	if d.chance(80) {
		status.Started = new(d.chance(50))
	}
	if d.chance(40) {
		status.Resources = &v1.ResourceRequirements{Requests: drawResources(d), Limits: drawResources(d)}
		status.AllocatedResources = drawResources(d)
	}
	if d.chance(20) {
		status.VolumeMounts = []v1.VolumeMountStatus{{Name: "data", MountPath: "/data"}}
	}
	return status
}

func drawState(d *drawer, id string) v1.ContainerState {
	switch d.IntN(10) {
	case 0:
		return v1.ContainerState{}
	case 1, 2, 3:
		reason := oneOf(d, "ContainerCreating", "PodInitializing", "CrashLoopBackOff")
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	case 4, 5, 6:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: drawTime(d)}}
	default:
		return v1.ContainerState{Terminated: drawEnd(d, id)}
	}
}

func drawEnd(d *drawer, id string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		ExitCode: int32(d.IntN(3)), Message: "it ended", StartedAt: drawTime(d), FinishedAt: drawTime(d), ContainerID: id,
		Reason: oneOf(d, "Completed", "Error", "Error", "Error", "RestartingAllContainers", "OOMKilled"),
	}
}

// lengthen makes the messages of ended containers about as long as they may be, with characters of several bytes and
// bytes that are no characters.
func lengthen(d *drawer, status *v1.PodStatus) {
	containers := max(1, len(endsOf(status)))
	for _, end := range endsOf(status) {
		if d.chance(15) {
			character := oneOf(d, "a", "é", "世", "\xff", "a\xe4\xb8")
			end.Message = strings.Repeat(character, (12_288/containers-20+d.IntN(40))/len(character))
		}
	}
}

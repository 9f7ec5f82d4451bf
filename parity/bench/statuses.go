package bench

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const runtimeName = "containerd"

func containerID(i int) string { return fmt.Sprintf("%064d", i) }

// runningStatus is that of a pod with three containers, all ready.
func runningStatus() v1.PodStatus {
	now, started := metav1.NewTime(time.Now().Truncate(time.Second)), true
	s := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, StartTime: &now}
	for _, kind := range []v1.PodConditionType{
		v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
	} {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue})
	}
	for i := range 3 {
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example/app:1", ImageID: "registry.example/app@sha256:0123456789abcdef",
			ContainerID: runtimeName + "://" + containerID(i), Ready: true, Started: &started,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}

// restarted is the status with another restart count: a change that nobody waits for.
func restarted(s v1.PodStatus, count int) v1.PodStatus {
	s = *s.DeepCopy()
	s.ContainerStatuses[1].RestartCount = int32(count)
	return s
}

func isReady(s *v1.PodStatus) bool {
	for i := range s.Conditions {
		if s.Conditions[i].Type == v1.PodReady {
			return s.Conditions[i].Status == v1.ConditionTrue
		}
	}
	return false
}

func threeContainers(name string, uid types.UID) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid}}
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
	for i := range 3 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example/app:1", ReadinessProbe: probe,
		})
	}
	return p
}

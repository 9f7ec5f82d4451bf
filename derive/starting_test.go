package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

func TestIsStarting(t *testing.T) {
	waiting := func(reason string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: "web", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
	}
	starting := v1.PodStatus{
		Phase:                 v1.PodPending,
		InitContainerStatuses: []v1.ContainerStatus{waiting("PodInitializing")},
		ContainerStatuses:     []v1.ContainerStatus{waiting("ContainerCreating")},
		Conditions:            []v1.PodCondition{{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue}},
	}
	if !derive.IsStarting(&starting) || !derive.IsStarting(&v1.PodStatus{}) {
		t.Error("got false for a pod that starts, want true")
	}
	for name, change := range map[string]func(*v1.PodStatus){
		"running":  func(s *v1.PodStatus) { s.Phase = v1.PodRunning },
		"rejected": func(s *v1.PodStatus) { s.Reason = "OutOfcpu" },
		"message":  func(s *v1.PodStatus) { s.Message = "Pod was rejected" },
		"no image": func(s *v1.PodStatus) { s.ContainerStatuses[0] = waiting("ErrImagePull") },
		"init runs": func(s *v1.PodStatus) {
			s.InitContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		},
		"debugged": func(s *v1.PodStatus) { s.EphemeralContainerStatuses = []v1.ContainerStatus{waiting("ErrImagePull")} },
		"restart":  func(s *v1.PodStatus) { s.ContainerStatuses[0].RestartCount = 1 },
		"terminated": func(s *v1.PodStatus) {
			s.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{}
		},
		"gate":   func(s *v1.PodStatus) { s.Conditions = append(s.Conditions, v1.PodCondition{Type: "example.com/ready"}) },
		"resize": func(s *v1.PodStatus) { s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.PodResizePending}) },
	} {
		t.Run(name, func(t *testing.T) {
			status := *starting.DeepCopy()
			if change(&status); derive.IsStarting(&status) {
				t.Error("got true, want false")
			}
		})
	}
}

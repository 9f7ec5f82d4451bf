package derive_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
)

func TestAfterBoot(t *testing.T) {
	boot := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	started := func(at time.Time) v1.ContainerState {
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}
	}
	tests := map[string]struct {
		phase v1.PodPhase
		state v1.ContainerState
		want  v1.PodPhase
	}{
		"ran before":      {v1.PodRunning, started(boot.Add(-time.Second)), v1.PodUnknown},
		"started since":   {v1.PodRunning, started(boot), v1.PodRunning},
		"did not run":     {v1.PodPending, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}, v1.PodPending},
		"has ended":       {v1.PodSucceeded, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}, v1.PodSucceeded},
		"ended, no state": {v1.PodFailed, started(boot.Add(-time.Hour)), v1.PodFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
			before := v1.PodStatus{
				Phase:             test.phase,
				ContainerStatuses: []v1.ContainerStatus{{Name: "a", Ready: true, RestartCount: 3, ContainerID: "c://1", State: test.state}},
				Conditions:        []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.ContainersReady, Status: v1.ConditionTrue}},
			}
			shared := before.DeepCopy()
			got := derive.AfterBoot(pod, before, boot)
			if !derive.Equal(&before, shared) {
				t.Error("the given status was modified")
			}
			if got.Phase != test.want {
				t.Fatalf("got phase %s, want %s", got.Phase, test.want)
			}
			if test.want != v1.PodUnknown {
				if !derive.Equal(&got, shared) {
					t.Errorf("got %+v, want the status unchanged", got)
				}
				return
			}
			container := got.ContainerStatuses[0]
			if container.State.Waiting == nil || container.State.Running != nil || container.Ready || container.RestartCount != 3 {
				t.Errorf("got %+v, want a waiting container that is not ready", container)
			}
			for _, condition := range got.Conditions {
				if condition.Status != v1.ConditionFalse || condition.Reason != derive.ReasonContainersNotReady {
					t.Errorf("got condition %+v, want False", condition)
				}
			}
		})
	}
}

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/resize"
)

// withCPU returns a container that is allocated 2 CPUs.
func withCPU(c v1.Container, policies ...v1.ContainerResizePolicy) v1.Container {
	c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
	c.ResizePolicy = policies
	return c
}

// actuatedBefore returns what was actuated before the resize: 1 CPU each.
func actuatedBefore(names ...string) resize.State {
	state := resize.State{}
	for _, name := range names {
		state[name] = resize.Quantities{MilliCPURequest: 1000}
	}
	return state
}

func computeResize(pod *v1.Pod, actuated resize.State, containers ...observed.Container) plan.Actions {
	return plan.ComputeActions(plan.Input{Pod: pod, Observed: newRuntimePod(readySandbox, containers...), Actuated: actuated, Now: now})
}

func TestRSZ12_RunningContainers(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, withCPU(newContainer("a")), withCPU(newContainer("same"))), withCPU(newSidecar("sidecar")))
	actuated := actuatedBefore("a", "sidecar", resize.PodLevel)
	actuated["same"] = resize.Quantities{MilliCPURequest: 2000}
	actions := computeResize(pod, actuated, newRunning("sidecar"), newRunning("a"), newRunning("same"))
	if actions.Resize == nil || !actions.Resize.Pod {
		t.Fatalf("got %+v, want a resize of the pod", actions.Resize)
	}
	var names []string
	for _, container := range actions.Resize.Containers {
		names = append(names, container.Spec.Name)
		if container.Current.MilliCPURequest != 1000 || container.Desired.MilliCPURequest != 2000 || container.ID.ID == "" {
			t.Errorf("got %+v", container)
		}
	}
	if diff := cmp.Diff([]string{"sidecar", "a"}, names); diff != "" || len(actions.Stop) > 0 {
		t.Errorf("got %s, stops %v", diff, actions.Stop)
	}
	if done := computeResize(pod, nil, newRunning("sidecar"), newRunning("a"), newRunning("same")); done.Resize != nil || !done.IsEmpty() {
		t.Errorf("got %+v without a resize in progress", done)
	}
}

func TestRSZ15_Restart(t *testing.T) {
	restart := v1.ContainerResizePolicy{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}
	pod := newPod(v1.RestartPolicyNever, withCPU(newContainer("a"), restart), withCPU(newContainer("b")))
	actions := computeResize(pod, actuatedBefore("a", "b", resize.PodLevel), newRunning("a"), newRunning("b"))
	if len(actions.Stop) != 1 || actions.Stop[0].Reason != plan.StopResize || actions.Stop[0].Message != "Container a resize requires restart" {
		t.Errorf("got stops %+v", actions.Stop)
	}
	if len(actions.Start) != 1 || actions.Start[0].Container.Name != "a" || actions.Start[0].RestartCount != 1 {
		t.Errorf("got starts %+v", actions.Start)
	}
	if got := actions.Resize; got == nil || len(got.Containers) != 1 || got.Containers[0].Spec.Name != "b" || !cmp.Equal(got.Restarts, []string{"a"}) {
		t.Errorf("got %+v, want b to be updated and a to be restarted", got)
	}
}

// The pod's cgroup is resized even if its only container waits to be restarted: with the old limits it might never run again.
func TestBUG121_CrashLoop(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, withCPU(newContainer("a")))
	actions := computeResize(pod, actuatedBefore("a", resize.PodLevel), newExited("a", 137, restartCount(5), ran(time.Second, time.Second)))
	if len(actions.Start) > 0 || actions.Waiting["a"].Reason != plan.ReasonCrashLoopBackOff {
		t.Fatalf("got starts %v, waiting %v; want a back-off", actions.Start, actions.Waiting)
	}
	if actions.Resize == nil || !actions.Resize.Pod || len(actions.Resize.Containers) > 0 {
		t.Errorf("got %+v, want a resize of the pod only (RSZ-13)", actions.Resize)
	}
}

func TestRSZ13_NewSandbox(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, withCPU(newContainer("a")))
	actions := plan.ComputeActions(plan.Input{Pod: pod, Observed: &observed.Pod{UID: "u1"}, Actuated: actuatedBefore("a", resize.PodLevel), Now: now})
	if actions.Resize != nil || actions.Sandbox == nil {
		t.Errorf("got resize %+v, sandbox %v; a new sandbox has the allocated resources from the start", actions.Resize, actions.Sandbox)
	}
}

package derive_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

var (
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	later = noon.Add(time.Minute)
)

// newPod returns a pod of generation 7 with these regular containers.
func newPod(policy v1.RestartPolicy, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Generation: 7},
		Spec:       v1.PodSpec{RestartPolicy: policy, Containers: containers},
	}
}

func withInit(pod *v1.Pod, containers ...v1.Container) *v1.Pod {
	pod.Spec.InitContainers = containers
	return pod
}

func asStatic(pod *v1.Pod) *v1.Pod {
	pod.Annotations = map[string]string{podid.SourceAnnotation: "file"}
	return pod
}

func asDeleted(pod *v1.Pod) *v1.Pod {
	pod.DeletionTimestamp = &metav1.Time{Time: noon}
	return pod
}

func newContainer(name string) v1.Container { return v1.Container{Name: name, Image: name + ":1"} }

func newSidecar(name string) v1.Container {
	c := newContainer(name)
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return c
}

// withRule returns a container with a policy of its own and one rule for exit code 42.
func withRule(name string, policy v1.ContainerRestartPolicy, action v1.ContainerRestartRuleAction) v1.Container {
	c := newContainer(name)
	c.RestartPolicy = &policy
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    action,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	return c
}

func waitingStatus(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}
}

func runningStatus(name string) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name: name, ContainerID: containerID(name, 1).String(),
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}},
	}
}

func exitedStatus(name string, code int32) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name: name, ContainerID: containerID(name, 1).String(),
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(noon)}},
	}
}

func crashedStatus(name string, code int32) v1.ContainerStatus {
	status := waitingStatus(name)
	status.LastTerminationState = exitedStatus(name, code).State
	return status
}

func withoutState(name string) v1.ContainerStatus { return v1.ContainerStatus{Name: name} }

func withReady(status v1.ContainerStatus) v1.ContainerStatus {
	status.Ready, status.Started = true, new(true)
	return status
}

func withStarted(status v1.ContainerStatus) v1.ContainerStatus {
	status.Started = new(true)
	return status
}

func withReason(status v1.ContainerStatus, reason string) v1.ContainerStatus {
	for _, end := range []*v1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
		if end != nil {
			end.Reason = reason
		}
	}
	return status
}

func containerID(name string, instance int) observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: fmt.Sprintf("%s-%d", name, instance)}
}

// newInstance returns the n-th instance of a container, in sandbox "new".
func newInstance(name string, n int, state observed.State) observed.Container {
	return observed.Container{
		ID: containerID(name, n), Name: name, SandboxID: "new", State: state, RestartCount: n - 1,
		CreatedAt: noon.Add(time.Duration(n) * time.Second), StartedAt: noon,
		Image: observed.Image{Name: name + ":1", Ref: "sha256:" + name},
	}
}

func newExited(name string, n, code int) observed.Container {
	c := newInstance(name, n, observed.Exited)
	c.Exit = &observed.Exit{Code: code, Reason: "Error", Message: "it broke", FinishedAt: later}
	return c
}

// newRuntimePod returns a pod with one ready sandbox and these containers.
func newRuntimePod(containers ...observed.Container) *observed.Pod {
	pod := &observed.Pod{
		Sandboxes:  []observed.Sandbox{{ID: "new", Ready: true, CreatedAt: noon}},
		Containers: containers,
	}
	pod.Sort()
	return pod
}

func computeStatus(in derive.Input) v1.PodStatus {
	if in.Now.IsZero() {
		in.Now = noon
	}
	return derive.Status(in)
}

func findStatus(t *testing.T, statuses []v1.ContainerStatus, name string) v1.ContainerStatus {
	t.Helper()
	for _, status := range statuses {
		if status.Name == name {
			return status
		}
	}
	t.Fatalf("no status of container %q", name)
	return v1.ContainerStatus{}
}

func findCondition(t *testing.T, status v1.PodStatus, conditionType v1.PodConditionType) v1.PodCondition {
	t.Helper()
	for _, condition := range status.Conditions {
		if condition.Type == conditionType {
			return condition
		}
	}
	t.Fatalf("no condition %s in %v", conditionType, status.Conditions)
	return v1.PodCondition{}
}

func requireEqual(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
}

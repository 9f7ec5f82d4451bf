package table_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/internal/table"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func pod(change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", CreationTimestamp: metav1.NewTime(noon.Add(-90 * time.Second))},
		Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main"}, {Name: "log"}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
	if change != nil {
		change(p)
	}
	return p
}

func runs(name string, ready bool) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Ready: ready, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func waits(name, reason string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
}

func ended(name string, code int32, reason string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}}
}

func TestStatusIsKubectlsWord(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	tests := map[string]struct {
		pod           *v1.Pod
		status, ready string
	}{
		"pending": {pod(func(p *v1.Pod) { p.Status.Phase = v1.PodPending }), "Pending", "0/2"},
		"running": {pod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{runs("main", true), runs("log", false)}
		}), "Running", "1/2"},
		"evicted":     {pod(func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "Evicted" }), "Evicted", "0/2"},
		"terminating": {pod(func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }), "Terminating", "0/2"},
		"ended and deleted": {pod(func(p *v1.Pod) {
			p.DeletionTimestamp, p.Status.Phase = &metav1.Time{Time: noon}, v1.PodSucceeded
			p.Status.ContainerStatuses = []v1.ContainerStatus{ended("main", 0, "Completed"), ended("log", 0, "Completed")}
		}), "Completed", "0/2"},
		"the first that waits has the word": {pod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{waits("main", "CrashLoopBackOff"), waits("log", "ErrImagePull")}
		}), "CrashLoopBackOff", "0/2"},
		"one is done, the other runs and the pod is ready": {pod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{ended("main", 0, "Completed"), runs("log", true)}
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}), "Running", "1/2"},
		"one is done, the other runs": {pod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{ended("main", 0, "Completed"), runs("log", true)}
		}), "NotReady", "1/2"},
		"one is done, the other failed": {pod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{ended("main", 0, "Completed"), ended("log", 3, "Error")}
		}), "Error", "0/2"},
		"an end without a reason": {pod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{ended("main", 3, "")}
		}), "ExitCode:3", "0/2"},
		"the second of two init containers": {pod(func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "one"}, {Name: "two"}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{ended("one", 0, "Completed"), runs("two", false)}
			p.Status.ContainerStatuses = []v1.ContainerStatus{waits("main", "PodInitializing")}
		}), "Init:1/2", "0/2"},
		"a failed init container": {pod(func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "one"}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{ended("one", 1, "Error")}
		}), "Init:Error", "0/2"},
		"a sidecar counts": {pod(func(p *v1.Pod) {
			started := true
			p.Spec.InitContainers = []v1.Container{{Name: "proxy", RestartPolicy: &always}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{runs("proxy", true)}
			p.Status.InitContainerStatuses[0].Started = &started
			p.Status.ContainerStatuses = []v1.ContainerStatus{runs("main", true), runs("log", true)}
		}), "Running", "3/3"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if row := table.Of(test.pod, noon); row.Status != test.status || row.Ready != test.ready {
				t.Errorf("%s %s, want %s %s", row.Ready, row.Status, test.ready, test.status)
			}
		})
	}
}

func TestATableIsAlignedAsKubectlAlignsIt(t *testing.T) {
	restarted := pod(func(p *v1.Pod) {
		p.Name, p.Status.PodIPs = "a-longer-name", []v1.PodIP{{IP: "10.0.0.7"}}
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}}
		p.Status.Conditions = []v1.PodCondition{{Type: "b", Status: v1.ConditionTrue}}
		c := waits("main", "CrashLoopBackOff")
		c.RestartCount = 5
		c.LastTerminationState.Terminated = &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(noon.Add(-30 * time.Second))}
		p.Status.ContainerStatuses = []v1.ContainerStatus{c}
	})
	var out strings.Builder
	lines := table.NewPrinter(&out, table.Options{Namespaces: true, Wide: true})
	for _, rows := range [][]table.Row{{table.Of(pod(nil), noon), table.Of(restarted, noon)}, {table.Of(pod(nil), noon)}} {
		if err := lines.Print(rows...); err != nil {
			t.Fatal(err)
		}
	}
	want := `NAMESPACE   NAME            READY   STATUS             RESTARTS      AGE   IP         NODE   NOMINATED NODE   READINESS GATES
shop        web             0/2     Running            0             90s   <none>     n1     <none>           <none>
shop        a-longer-name   0/2     CrashLoopBackOff   5 (30s ago)   90s   10.0.0.7   n1     <none>           1/2
shop        web             0/2     Running            0             90s   <none>     n1     <none>           <none>
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

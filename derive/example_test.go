package derive_test

import (
	"fmt"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// An agent inspects its runtime twice. In between, the container starts and its readiness probe succeeds.
func Example() {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Generation: 1},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways,
			Containers:    []v1.Container{{Name: "nginx", Image: "nginx:1", ReadinessProbe: &v1.Probe{}}},
		},
	}
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	first := derive.Status(derive.Input{Pod: pod, Now: start})

	id := observed.ContainerID{Runtime: "containerd", ID: "abc"}
	second := derive.Status(derive.Input{
		Pod:      pod,
		Previous: &first,
		Observed: &observed.Pod{
			Sandboxes:  []observed.Sandbox{{ID: "box", Ready: true}},
			Containers: []observed.Container{{ID: id, Name: "nginx", SandboxID: "box", State: observed.Running, StartedAt: start}},
			IPs:        []netip.Addr{netip.MustParseAddr("10.0.0.7")},
		},
		Probes: derive.ProbeResults{id: {Readiness: derive.ProbeSuccess}},
		Now:    start.Add(5 * time.Second),
	})

	for _, status := range []v1.PodStatus{first, second} {
		fmt.Printf("%s, IP %q\n", status.Phase, status.PodIP)
		for _, condition := range status.Conditions {
			fmt.Println(" ", condition.Type, condition.Status, condition.LastTransitionTime.Format("15:04:05"))
		}
	}

	// Another writer has added a condition in the API server. It survives the merge.
	api := first
	api.Conditions = append([]v1.PodCondition{{Type: "lb/attached", Status: v1.ConditionTrue}}, first.Conditions...)
	fmt.Println("to send:", !derive.Equal(&api, &second), derive.Merge(api, second, true, start).Conditions[0].Type)

	// Output:
	// Pending, IP ""
	//   PodReadyToStartContainers False 12:00:00
	//   Initialized True 12:00:00
	//   Ready False 12:00:00
	//   ContainersReady False 12:00:00
	//   PodScheduled True 12:00:00
	// Running, IP "10.0.0.7"
	//   PodReadyToStartContainers True 12:00:05
	//   Initialized True 12:00:00
	//   Ready True 12:00:05
	//   ContainersReady True 12:00:05
	//   PodScheduled True 12:00:00
	// to send: true lb/attached
}

// A status manager accepts a status from a pod worker, applies the newest probe results and decides whether to send it.
func ExampleCarryOver() {
	pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "job"}}}}
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cached := derive.Status(derive.Input{Pod: pod, Now: noon})

	update := func(next v1.PodStatus, now time.Time) (v1.PodStatus, bool) {
		next = derive.WithProbeResults(pod, next, nil)
		if err := derive.CheckTransition(pod, &cached, &next); err != nil {
			return cached, false
		}
		next = derive.CarryOver(&cached, next, now)
		next, _ = derive.Normalize(pod, next)
		return next, !derive.Equal(&cached, &next)
	}

	same, changed := update(cached, noon.Add(time.Minute))
	fmt.Println(same.Phase, changed)
	last, changed := update(derive.Terminate(pod, cached), noon.Add(time.Hour))
	fmt.Println(last.Phase, last.ContainerStatuses[0].State.Terminated.Reason, changed)
	// Output:
	// Pending false
	// Failed ContainerStatusUnknown true
}

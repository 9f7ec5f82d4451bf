package derive_test

import (
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// newLargeInput returns a pod of three containers, one of them restarted, with resources, probes and a readiness gate.
func newLargeInput() derive.Input {
	pod := withInit(newPod(always), newContainer("init"))
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb/ready"}}
	pod.Status.Conditions = []v1.PodCondition{{Type: "lb/ready", Status: v1.ConditionTrue}}
	runtime := newRuntimePod(newExited("init", 1, 0))
	for i := range 3 {
		c := newContainer(fmt.Sprintf("c%d", i))
		c.Resources = v1.ResourceRequirements{Requests: newResourceList("cpu", "100m", "memory", "64Mi"), Limits: newResourceList("cpu", "1", "memory", "128Mi")}
		c.VolumeMounts = []v1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets", ReadOnly: true}}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		runtime.Containers = append(runtime.Containers, newInstance(c.Name, 1, observed.Running))
	}
	runtime.Containers = append(runtime.Containers, newExited("c0", 0, 1))
	runtime.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	runtime.Sort()
	return derive.Input{Pod: pod, Observed: runtime, Now: noon, Node: derive.NodeInfo{HostIPs: parseIPs("192.168.0.1")}}
}

func newLargeStatus() (*v1.Pod, v1.PodStatus) {
	in := newLargeInput()
	return in.Pod, derive.Status(in)
}

func BenchmarkStatus(b *testing.B) {
	in := newLargeInput()
	_, previous := newLargeStatus()
	in.Previous = &previous
	b.ReportAllocs()
	for b.Loop() {
		derive.Status(in)
	}
}

func BenchmarkEqual(b *testing.B) {
	_, one := newLargeStatus()
	other := *one.DeepCopy()
	b.ReportAllocs()
	for b.Loop() {
		if !derive.Equal(&one, &other) {
			b.Fatal("not equal")
		}
	}
}

func BenchmarkNormalize_Unchanged(b *testing.B) {
	pod, normal := newLargeStatus()
	b.ReportAllocs()
	for b.Loop() {
		derive.Normalize(pod, normal)
	}
}

func BenchmarkCarryOver_Unchanged(b *testing.B) {
	_, normal := newLargeStatus()
	b.ReportAllocs()
	for b.Loop() {
		derive.CarryOver(&normal, normal, later)
	}
}

func BenchmarkMerge(b *testing.B) {
	_, normal := newLargeStatus()
	b.ReportAllocs()
	for b.Loop() {
		derive.Merge(normal, normal, false, later)
	}
}

func BenchmarkWithProbeResults_Unchanged(b *testing.B) {
	pod, normal := newLargeStatus()
	results := derive.ProbeResults{containerID("c0", 1): {Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}}
	b.ReportAllocs()
	for b.Loop() {
		derive.WithProbeResults(pod, normal, results)
	}
}

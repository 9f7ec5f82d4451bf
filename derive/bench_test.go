package derive_test

import (
	"fmt"
	"net/netip"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// largeInput is a pod of three containers, one of them restarted, with resources, probes and a readiness gate.
func largeInput() derive.Input {
	pod := withInit(newPod(always), container("init"))
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb/ready"}}
	pod.Status.Conditions = []v1.PodCondition{{Type: "lb/ready", Status: v1.ConditionTrue}}
	runtime := world(seenExit("init", 1, 0))
	for i := range 3 {
		c := container(fmt.Sprintf("c%d", i))
		c.Resources = v1.ResourceRequirements{Requests: quantities("cpu", "100m", "memory", "64Mi"), Limits: quantities("cpu", "1", "memory", "128Mi")}
		c.VolumeMounts = []v1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets", ReadOnly: true}}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		runtime.Containers = append(runtime.Containers, seen(c.Name, 1, observed.Running))
	}
	runtime.Containers = append(runtime.Containers, seenExit("c0", 0, 1))
	runtime.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	runtime.Sort()
	return derive.Input{Pod: pod, Observed: runtime, Now: noon, Node: derive.NodeInfo{HostIPs: addrs("192.168.0.1")}}
}

func largeStatus() (*v1.Pod, v1.PodStatus) {
	in := largeInput()
	return in.Pod, derive.Status(in)
}

func BenchmarkStatus(b *testing.B) {
	in := largeInput()
	_, previous := largeStatus()
	in.Previous = &previous
	b.ReportAllocs()
	for b.Loop() {
		derive.Status(in)
	}
}

func BenchmarkEqual(b *testing.B) {
	_, one := largeStatus()
	other := *one.DeepCopy()
	b.ReportAllocs()
	for b.Loop() {
		if !derive.Equal(&one, &other) {
			b.Fatal("not equal")
		}
	}
}

func BenchmarkNormalizeOfANormalStatus(b *testing.B) {
	pod, normal := largeStatus()
	b.ReportAllocs()
	for b.Loop() {
		derive.Normalize(pod, normal)
	}
}

func BenchmarkContinueAnUnchangedStatus(b *testing.B) {
	_, normal := largeStatus()
	b.ReportAllocs()
	for b.Loop() {
		derive.CarryOver(&normal, normal, later)
	}
}

func BenchmarkMerge(b *testing.B) {
	_, normal := largeStatus()
	b.ReportAllocs()
	for b.Loop() {
		derive.Merge(normal, normal, false, later)
	}
}

func BenchmarkWithProbeFactsUnchanged(b *testing.B) {
	pod, normal := largeStatus()
	facts := derive.ProbeResults{idOf("c0", 1): {Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}}
	b.ReportAllocs()
	for b.Loop() {
		derive.WithProbeResults(pod, normal, facts)
	}
}

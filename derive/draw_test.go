package derive_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

func oneOf[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func chance(t *rapid.T, label string) bool { return rapid.Bool().Draw(t, label) }

// drawPod draws a pod of up to five containers, with policies and probes. It has no rule that restarts all containers:
// such a pod is a machine of its own (GEN-34).
func drawPod(t *rapid.T) *v1.Pod {
	pod := newPod(oneOf(t, "policy", always, onFailure, never))
	for i := range rapid.IntRange(0, 2).Draw(t, "init containers") {
		c := container(fmt.Sprintf("init%d", i))
		if chance(t, "sidecar") {
			c = sidecar(c.Name)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, drawProbes(t, c))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		c := container(fmt.Sprintf("c%d", 9-i))
		if chance(t, "own policy") {
			c = ruled(c.Name, oneOf(t, "own", v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever),
				v1.ContainerRestartRuleActionRestart)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, drawProbes(t, c))
	}
	if chance(t, "ephemeral") {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	}
	pod.Spec.HostNetwork = chance(t, "host network")
	if chance(t, "static") {
		static(pod)
	}
	if chance(t, "gate") {
		pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "foreign/a"}}
	}
	return pod
}

func drawProbes(t *rapid.T, c v1.Container) v1.Container {
	if chance(t, "probed") {
		return probedContainer(c)
	}
	return c
}

// drawWorld draws what the runtime holds of the pod at one moment.
func drawWorld(t *rapid.T, pod *v1.Pod) *observed.Pod {
	seenPod := &observed.Pod{}
	boxes := rapid.IntRange(0, 2).Draw(t, "sandboxes")
	for i := range boxes {
		seenPod.Sandboxes = append(seenPod.Sandboxes, observed.Sandbox{
			ID: fmt.Sprintf("box%d", i), Ready: chance(t, "ready"), CreatedAt: noon.Add(time.Duration(i) * time.Minute),
		})
	}
	for _, name := range allNames(pod) {
		last := rapid.IntRange(1, 3).Draw(t, "instance")
		for n := max(1, last-rapid.IntRange(0, 2).Draw(t, "instances")+1); n <= last; n++ {
			c := seen(name, n, oneOf(t, "state", observed.Unknown, observed.Created, observed.Running, observed.Exited))
			if c.State == observed.Exited {
				c = seenExit(name, n, oneOf(t, "code", 0, 1, 42))
			}
			c.SandboxID = fmt.Sprintf("box%d", rapid.IntRange(0, 1).Draw(t, "sandbox"))
			seenPod.Containers = append(seenPod.Containers, c)
		}
	}
	seenPod.Sort()
	return seenPod
}

func allNames(pod *v1.Pod) (names []string) {
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

func drawFacts(t *rapid.T, pod *v1.Pod) derive.ProbeResults {
	facts := derive.ProbeResults{}
	verdicts := []derive.ProbeResult{derive.ProbeUnknown, derive.ProbeSuccess, derive.ProbeFailure}
	for _, name := range allNames(pod) {
		facts[idOf(name, rapid.IntRange(1, 3).Draw(t, "instance"))] = derive.ContainerProbeResults{
			Startup: oneOf(t, "startup", verdicts...), Readiness: oneOf(t, "readiness", verdicts...),
		}
	}
	return facts
}

// drawInput draws all of an input but its past.
func drawInput(t *rapid.T, pod *v1.Pod) derive.Input {
	in := derive.Input{
		Pod: pod, Observed: drawWorld(t, pod), Probes: drawFacts(t, pod), Terminating: chance(t, "terminating"),
		Now: noon.Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "clock")) * time.Second),
	}
	if chance(t, "cannot start") {
		in.Waiting = map[string]derive.Waiting{pod.Spec.Containers[0].Name: {Reason: "CrashLoopBackOff"}}
	}
	if rapid.IntRange(0, 9).Draw(t, "evict") == 0 {
		in.Eviction = &derive.Eviction{Reason: "Evicted"}
	}
	if chance(t, "addresses") {
		in.Node.HostIPs = addrs("192.168.0.1", "fd00::1")
	}
	return in
}

var phases = []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed, ""}

// drawStatus draws any status, as another writer may have left it.
func drawStatus(t *rapid.T) v1.PodStatus {
	status := v1.PodStatus{
		Phase:  oneOf(t, "phase", phases...),
		Reason: oneOf(t, "reason", "", "R", "bad\xff"), ObservedGeneration: rapid.Int64Range(0, 2).Draw(t, "generation"),
		NominatedNodeName: oneOf(t, "nominated", "", "n2"), QOSClass: oneOf(t, "qos", "", v1.PodQOSBurstable),
	}
	types := append([]v1.PodConditionType{"foreign/a", "foreign/b", v1.DisruptionTarget}, derive.OwnedConditions()...)
	for _, kind := range rapid.SliceOfDistinct(rapid.SampledFrom(types), rapid.ID).Draw(t, "conditions") {
		status.Conditions = append(status.Conditions, v1.PodCondition{
			Type: kind, Status: oneOf(t, "status", v1.ConditionTrue, v1.ConditionFalse), Reason: oneOf(t, "reason", "", "R"),
			LastTransitionTime: drawTime(t), ObservedGeneration: rapid.Int64Range(0, 2).Draw(t, "generation"),
		})
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"c9", "c8", "x"}), 0, 3, rapid.ID).Draw(t, "containers") {
		message := rapid.StringN(-1, -1, 40).Draw(t, "message") + oneOf(t, "tail", "", "\xe4\xb8", "\xff")
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: name, Ready: chance(t, "ready"),
			State: oneOf(t, "state", v1.ContainerState{}, waitsFor("W", message), endedWith(1, "E", message), v1.ContainerState{
				Running: &v1.ContainerStateRunning{StartedAt: drawTime(t)},
			}),
		})
	}
	if chance(t, "start") {
		start := drawTime(t)
		status.StartTime = &start
	}
	return status
}

func drawTime(t *rapid.T) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "time")) * 500 * time.Millisecond))
}

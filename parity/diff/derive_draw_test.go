package diff_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
)

// drawPod draws a pod without its status. Its containers are not in the order of their names.
func drawPod(d *drawer) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Generation: int64(d.IntN(4))}}
	pod.Spec.RestartPolicy = oneOf(d, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	restartsAll := d.chance(30)
	for i := range d.IntN(4) {
		c := drawContainer(d, fmt.Sprintf("init%d", 3-i), restartsAll)
		if d.chance(40) {
			c.RestartPolicy, c.RestartPolicyRules = new(v1.ContainerRestartPolicyAlways), nil
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + d.IntN(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, drawContainer(d, fmt.Sprintf("main%d", 3-i), restartsAll))
	}
	if d.chance(20) {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"},
		}}
	}
	drawSurroundings(d, pod)
	return pod
}

func drawSurroundings(d *drawer, pod *v1.Pod) {
	if d.chance(20) {
		pod.Annotations = map[string]string{podid.SourceAnnotation: oneOf(d, "file", "api")}
	}
	if d.chance(30) {
		pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate/a"}, {ConditionType: "gate/b"}}[:1+d.IntN(2)]
	}
	pod.Spec.HostNetwork = d.chance(20)
	if d.chance(15) {
		pod.DeletionTimestamp = new(drawTime(d))
	}
	if d.chance(20) {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: drawResources(d), Limits: drawResources(d)}
	}
	if d.chance(10) {
		pod.Spec.Overhead = drawResources(d)
	}
}

func drawContainer(d *drawer, name string, restartsAll bool) v1.Container {
	c := v1.Container{
		Name: name, Image: name + ":1", Resources: v1.ResourceRequirements{Requests: drawResources(d), Limits: drawResources(d)},
	}
	if d.chance(30) {
		c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: d.chance(50)}}
	}
	if d.chance(25) {
		c.StartupProbe = &v1.Probe{}
	}
	if d.chance(25) {
		c.ReadinessProbe = &v1.Probe{}
	}
	if d.chance(30) {
		c.RestartPolicy = new(oneOf(d,
			v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever))
		for range d.IntN(3) {
			c.RestartPolicyRules = append(c.RestartPolicyRules, drawRule(d, restartsAll))
		}
	}
	return c
}

func drawRule(d *drawer, restartsAll bool) v1.ContainerRestartRule {
	rule := v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart}
	if restartsAll && d.chance(50) {
		rule.Action = v1.ContainerRestartRuleActionRestartAllContainers
	}
	if d.chance(85) {
		rule.ExitCodes = &v1.ContainerRestartRuleOnExitCodes{
			Operator: oneOf(d, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn),
			Values:   []int32{int32(d.IntN(3))},
		}
	}
	return rule
}

// drawResources prefers what is about as small as a cgroup can hold.
func drawResources(d *drawer) v1.ResourceList {
	if d.chance(30) {
		return nil
	}
	list := v1.ResourceList{}
	if d.chance(70) {
		list[v1.ResourceCPU] = *resource.NewMilliQuantity(oneOf(d, int64(0), 1, 2, 3, 10, 11, 500), resource.DecimalSI)
	}
	if d.chance(70) {
		list[v1.ResourceMemory] = *resource.NewQuantity(oneOf(d, int64(0), 1<<10, 1<<20), resource.BinarySI)
	}
	if d.chance(10) {
		list["hugepages-2Mi"] = *resource.NewQuantity(2<<20, resource.BinarySI)
	}
	return list
}

// containerNames are all of the pod's, and one that is not.
func containerNames(pod *v1.Pod) []string {
	names := []string{"stranger"}
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}

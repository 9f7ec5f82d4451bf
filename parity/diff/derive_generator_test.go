package diff_test

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
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

var firstDay = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func drawTime(d *drawer) metav1.Time {
	return metav1.NewTime(firstDay.Add(time.Duration(d.IntN(3600))*time.Second + time.Duration(d.IntN(3))*300*time.Millisecond))
}

// conditionTypes are others', the shared one and the kubelet's own.
var conditionTypes = []v1.PodConditionType{
	"gate/a", "gate/b", "foreign/x", v1.DisruptionTarget, v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady,
	v1.PodResizeInProgress, v1.PodResizePending, v1.PodReadyToStartContainers, v1.AllContainersRestarting,
}

// drawStatus draws any status of the pod, as this or another agent may have left it.
func drawStatus(d *drawer, pod *v1.Pod) *v1.PodStatus {
	status := &v1.PodStatus{
		Phase:  oneOf(d, v1.PodPending, v1.PodPending, v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodSucceeded, v1.PodFailed, v1.PodPhase("")),
		Reason: oneOf(d, "", "R"), Message: oneOf(d, "", "M"),
		ObservedGeneration: int64(d.IntN(3)),
		QOSClass:           oneOf(d, "", v1.PodQOSBestEffort, v1.PodQOSBurstable),
		NominatedNodeName:  oneOf(d, "", "", "other"),
	}
	if d.chance(50) {
		status.StartTime = new(drawTime(d))
	}
	for _, kind := range conditionTypes {
		if d.chance(40) {
			status.Conditions = append(status.Conditions, drawCondition(d, kind))
		}
	}
	d.Shuffle(len(status.Conditions), func(i, j int) {
		status.Conditions[i], status.Conditions[j] = status.Conditions[j], status.Conditions[i]
	})
	if d.chance(20) {
		status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: fmt.Sprint(d.IntN(2))}}
	}
	if d.chance(20) {
		status.Resources = &v1.ResourceRequirements{Requests: drawResources(d), Limits: drawResources(d)}
	}
	drawAddresses(d, pod, status)
	drawContainerStatuses(d, pod, status)
	return status
}

func drawCondition(d *drawer, kind v1.PodConditionType) v1.PodCondition {
	return v1.PodCondition{
		Type: kind, Status: oneOf(d, v1.ConditionTrue, v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown),
		Reason: oneOf(d, "", "R"), Message: oneOf(d, "", "M"),
		LastTransitionTime: drawTime(d), ObservedGeneration: int64(d.IntN(3)),
	}
}

func drawAddresses(d *drawer, pod *v1.Pod, status *v1.PodStatus) {
	if d.chance(50) {
		status.HostIP, status.HostIPs = "192.0.2.9", []v1.HostIP{{IP: "192.0.2.9"}}
		if d.chance(30) {
			status.HostIPs = append(status.HostIPs, v1.HostIP{IP: "2001:db8::9"})
		}
	}
	if d.chance(50) {
		status.PodIP, status.PodIPs = "10.0.9.9", []v1.PodIP{{IP: "10.0.9.9"}}
	}
	if pod.Spec.HostNetwork && d.chance(50) {
		status.PodIP, status.PodIPs = "192.0.2.9", []v1.PodIP{{IP: "192.0.2.9"}}
	}
}

// drawContainerStatuses leaves some out, adds one too many, and shuffles now and then.
func drawContainerStatuses(d *drawer, pod *v1.Pod, status *v1.PodStatus) {
	missing := oneOf(d, 0, 0, 0, 10, 50, 100)
	draw := func(list *[]v1.ContainerStatus, name string) {
		if !d.chance(missing) {
			*list = append(*list, drawContainerStatus(d, name))
		}
	}
	for i := range pod.Spec.InitContainers {
		draw(&status.InitContainerStatuses, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		draw(&status.ContainerStatuses, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		draw(&status.EphemeralContainerStatuses, pod.Spec.EphemeralContainers[i].Name)
	}
	for i := range status.EphemeralContainerStatuses {
		status.EphemeralContainerStatuses[i].Ready, status.EphemeralContainerStatuses[i].Started = false, nil
	}
	for _, list := range []*[]v1.ContainerStatus{&status.InitContainerStatuses, &status.ContainerStatuses} {
		if d.chance(5) {
			*list = append(*list, drawContainerStatus(d, "stranger"))
		}
		if d.chance(5) {
			d.Shuffle(len(*list), func(i, j int) { (*list)[i], (*list)[j] = (*list)[j], (*list)[i] })
		}
	}
}

func drawContainerStatus(d *drawer, name string) v1.ContainerStatus {
	id := containerID(name, d.IntN(3)).String()
	status := v1.ContainerStatus{
		Name: name, Image: "old:1", ImageID: "old@sha256:1", RestartCount: int32(d.IntN(4)), State: drawState(d, id), Ready: d.chance(50),
	}
	if status.State.Waiting == nil {
		status.ContainerID = id
	}
	if d.chance(40) {
		status.LastTerminationState.Terminated = drawEnd(d, containerID(name, 9).String())
	}
	if d.chance(80) {
		status.Started = new(d.chance(50))
	}
	if d.chance(40) {
		status.Resources = &v1.ResourceRequirements{Requests: drawResources(d), Limits: drawResources(d)}
		status.AllocatedResources = drawResources(d)
	}
	if d.chance(20) {
		status.VolumeMounts = []v1.VolumeMountStatus{{Name: "data", MountPath: "/data"}}
	}
	return status
}

func drawState(d *drawer, id string) v1.ContainerState {
	switch d.IntN(10) {
	case 0:
		return v1.ContainerState{}
	case 1, 2, 3:
		reason := oneOf(d, "ContainerCreating", "PodInitializing", "CrashLoopBackOff")
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	case 4, 5, 6:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: drawTime(d)}}
	default:
		return v1.ContainerState{Terminated: drawEnd(d, id)}
	}
}

func drawEnd(d *drawer, id string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		ExitCode: int32(d.IntN(3)), Message: "it ended", StartedAt: drawTime(d), FinishedAt: drawTime(d), ContainerID: id,
		Reason: oneOf(d, "Completed", "Error", "Error", "Error", "RestartingAllContainers", "OOMKilled"),
	}
}

// lengthen makes the messages of ended containers about as long as they may be, with characters of several bytes and
// bytes that are no characters.
func lengthen(d *drawer, status *v1.PodStatus) {
	containers := max(1, len(endsOf(status)))
	for _, end := range endsOf(status) {
		if d.chance(15) {
			character := oneOf(d, "a", "é", "世", "\xff", "a\xe4\xb8")
			end.Message = strings.Repeat(character, (12_288/containers-20+d.IntN(40))/len(character))
		}
	}
}

func containerID(name string, instance int) observed.ContainerID {
	return observed.ContainerID{Runtime: "rt", ID: fmt.Sprintf("%s-%d", name, instance)}
}

// drawObserved draws what a runtime holds of the pod, leftovers and strangers included. Now and then all is well, which
// chance alone would hardly bring about.
func drawObserved(d *drawer, pod *v1.Pod) *observed.Pod {
	seen := &observed.Pod{}
	boxes := oneOf(d, 0, 1, 1, 1, 2, 2, 3)
	well := boxes > 0 && d.chance(30)
	for i := range boxes {
		seen.Sandboxes = append(seen.Sandboxes, drawSandbox(d, pod, i))
	}
	age := time.Duration(0)
	for _, name := range containerNames(pod) {
		restarts := d.IntN(4)
		for instance := range oneOf(d, 0, 1, 1, 1, 2, 3) {
			age += time.Minute
			c := drawInstance(d, name, instance)
			c.CreatedAt = firstDay.Add(-age)
			c.RestartCount = max(0, restarts-instance) // which only rises: see observed.Pod.Sort
			if boxes > 0 {
				c.SandboxID = seen.Sandboxes[d.IntN(boxes)].ID
			}
			seen.Containers = append(seen.Containers, c)
		}
	}
	for _, ip := range oneOf(d, nil, nil, []string{"10.0.0.1"}, []string{"2001:db8::1", "10.0.0.2", "10.0.0.3"},
		[]string{"2001:db8::2"}, []string{"::ffff:10.1.1.1", "2001:db8:0::7"}) {
		seen.IPs = append(seen.IPs, netip.MustParseAddr(ip))
	}
	if d.chance(50) {
		seen.Resources = drawEnforced(d)
	}
	seen.Sort()
	if well {
		makeWell(pod, seen)
	}
	return seen
}

// makeWell lets the newest sandbox be ready, all containers run, and those that initialize be done.
func makeWell(pod *v1.Pod, seen *observed.Pod) {
	seen.Sandboxes[0].Ready = true
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if seen.Instances(c.Name)[0].ID != c.ID {
			continue
		}
		c.State, c.Exit, c.SandboxID = observed.Running, nil, seen.Sandboxes[0].ID
		for j := range pod.Spec.InitContainers {
			if spec := &pod.Spec.InitContainers[j]; spec.Name == c.Name && !isSidecar(spec) {
				c.State, c.Exit = observed.Exited, &observed.Exit{Reason: "Completed", FinishedAt: c.StartedAt}
			}
		}
	}
}

func isSidecar(spec *v1.Container) bool {
	return spec.RestartPolicy != nil && *spec.RestartPolicy == v1.ContainerRestartPolicyAlways
}

func drawSandbox(d *drawer, pod *v1.Pod, age int) observed.Sandbox {
	box := observed.Sandbox{
		ID: fmt.Sprintf("box%d", age), CreatedAt: firstDay.Add(-time.Duration(age) * time.Hour), Attempt: uint32(9 - age),
		Ready: d.chance(70), HostNetwork: pod.Spec.HostNetwork != d.chance(10),
	}
	if d.chance(70) {
		box.Network = &observed.Network{}
		if d.chance(80) {
			box.Network.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		}
	}
	return box
}

func drawInstance(d *drawer, name string, instance int) observed.Container {
	c := observed.Container{
		ID: containerID(name, instance), Name: name, StartedAt: drawTime(d).Time,
		State: oneOf(d, observed.Unknown, observed.Created, observed.Running, observed.Running, observed.Exited, observed.Exited),
		Image: observed.Image{Name: name + ":2", Ref: name + "@sha256:2"},
	}
	if instance > 0 && d.chance(60) {
		c.State = observed.Exited
	}
	if c.State == observed.Exited {
		c.Exit = &observed.Exit{
			Code: d.IntN(3), Reason: oneOf(d, "Completed", "Error", "Error", "Error", "Error", "OOMKilled"), Message: "it stopped", FinishedAt: drawTime(d).Time,
		}
	}
	if d.chance(50) {
		c.Resources = drawEnforced(d)
	}
	if d.chance(20) {
		c.User = &observed.User{UID: 1, GID: 2, SupplementalGroups: []int64{3}}
	}
	return c
}

func drawEnforced(d *drawer) *observed.Resources {
	some := func(values ...int64) *int64 {
		if d.chance(30) {
			return nil
		}
		return new(oneOf(d, values...))
	}
	return &observed.Resources{
		MilliCPURequest: some(2, 3, 100), MilliCPULimit: some(5, 10, 11, 100),
		MemoryRequestBytes: some(1, 1<<20), MemoryLimitBytes: some(1, 1<<20),
	}
}

// drawProbes draws results for containers that are probed.
func drawProbes(d *drawer, pod *v1.Pod, seen *observed.Pod) derive.ProbeResults {
	probes := derive.ProbeResults{}
	verdict := func(probe *v1.Probe) derive.ProbeResult {
		if probe == nil {
			return derive.ProbeUnknown
		}
		return oneOf(d, derive.ProbeUnknown, derive.ProbeSuccess, derive.ProbeSuccess, derive.ProbeFailure)
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, c := range seen.Instances(containers[i].Name) {
				facts := derive.ContainerProbeResults{Startup: verdict(containers[i].StartupProbe), Readiness: verdict(containers[i].ReadinessProbe)}
				if facts != (derive.ContainerProbeResults{}) {
					probes[c.ID] = facts
				}
			}
		}
	}
	return probes
}

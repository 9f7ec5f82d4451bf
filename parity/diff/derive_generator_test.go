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

// generatePod generates a pod without a status. Its containers are not in the order of their names.
func generatePod(g *generator) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Generation: int64(g.IntN(4))}}
	pod.Spec.RestartPolicy = oneOf(g, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	restartsAll := g.chance(30)
	for i := range g.IntN(4) {
		c := generateContainer(g, fmt.Sprintf("init%d", 3-i), restartsAll)
		if g.chance(40) {
			c.RestartPolicy, c.RestartPolicyRules = new(v1.ContainerRestartPolicyAlways), nil
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + g.IntN(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, generateContainer(g, fmt.Sprintf("main%d", 3-i), restartsAll))
	}
	if g.chance(20) {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"},
		}}
	}
	generatePodFields(g, pod)
	return pod
}

// generatePodFields sets the fields that do not concern containers.
func generatePodFields(g *generator, pod *v1.Pod) {
	if g.chance(20) {
		pod.Annotations = map[string]string{podid.SourceAnnotation: oneOf(g, "file", "api")}
	}
	if g.chance(30) {
		pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate/a"}, {ConditionType: "gate/b"}}[:1+g.IntN(2)]
	}
	pod.Spec.HostNetwork = g.chance(20)
	if g.chance(15) {
		pod.DeletionTimestamp = new(generateTime(g))
	}
	if g.chance(20) {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: generateResources(g), Limits: generateResources(g)}
	}
	if g.chance(10) {
		pod.Spec.Overhead = generateResources(g)
	}
}

func generateContainer(g *generator, name string, restartsAll bool) v1.Container {
	c := v1.Container{
		Name: name, Image: name + ":1", Resources: v1.ResourceRequirements{Requests: generateResources(g), Limits: generateResources(g)},
	}
	if g.chance(30) {
		c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: g.chance(50)}}
	}
	if g.chance(25) {
		c.StartupProbe = &v1.Probe{}
	}
	if g.chance(25) {
		c.ReadinessProbe = &v1.Probe{}
	}
	hasPolicy := 30
	if restartsAll { // rare otherwise: rule, exit code and state must match
		hasPolicy = 60
	}
	if g.chance(hasPolicy) {
		c.RestartPolicy = new(oneOf(g,
			v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever))
		for range g.IntN(3) {
			c.RestartPolicyRules = append(c.RestartPolicyRules, generateRestartRule(g, restartsAll))
		}
	}
	return c
}

func generateRestartRule(g *generator, restartsAll bool) v1.ContainerRestartRule {
	rule := v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart}
	if restartsAll && g.chance(50) {
		rule.Action = v1.ContainerRestartRuleActionRestartAllContainers
	}
	if g.chance(85) {
		rule.ExitCodes = &v1.ContainerRestartRuleOnExitCodes{
			Operator: oneOf(g, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn),
			Values:   []int32{int32(g.IntN(3))},
		}
	}
	return rule
}

// generateResources prefers quantities close to the minimum of a cgroup.
func generateResources(g *generator) v1.ResourceList {
	if g.chance(30) {
		return nil
	}
	list := v1.ResourceList{}
	if g.chance(70) {
		list[v1.ResourceCPU] = *resource.NewMilliQuantity(oneOf(g, int64(0), 1, 2, 3, 10, 11, 500), resource.DecimalSI)
	}
	if g.chance(70) {
		list[v1.ResourceMemory] = *resource.NewQuantity(oneOf(g, int64(0), 1<<10, 1<<20), resource.BinarySI)
	}
	if g.chance(10) {
		list["hugepages-2Mi"] = *resource.NewQuantity(2<<20, resource.BinarySI)
	}
	return list
}

// containerNames returns the names of all containers of the pod, and one that is not in its spec.
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

var baseTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func generateTime(g *generator) metav1.Time {
	return metav1.NewTime(baseTime.Add(time.Duration(g.IntN(3600))*time.Second + time.Duration(g.IntN(3))*300*time.Millisecond))
}

// conditionTypes are foreign conditions, the shared one and the kubelet's own.
var conditionTypes = []v1.PodConditionType{
	"gate/a", "gate/b", "foreign/x", v1.DisruptionTarget, v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady,
	v1.PodResizeInProgress, v1.PodResizePending, v1.PodReadyToStartContainers, v1.AllContainersRestarting,
}

// generateStatus generates any status of the pod that this or another agent may have left.
func generateStatus(g *generator, pod *v1.Pod) *v1.PodStatus {
	status := &v1.PodStatus{
		Phase:  oneOf(g, v1.PodPending, v1.PodPending, v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodSucceeded, v1.PodFailed, v1.PodPhase("")),
		Reason: oneOf(g, "", "R"), Message: oneOf(g, "", "M"),
		ObservedGeneration: int64(g.IntN(3)),
		QOSClass:           oneOf(g, "", v1.PodQOSBestEffort, v1.PodQOSBurstable),
		NominatedNodeName:  oneOf(g, "", "", "other"),
	}
	if g.chance(50) {
		status.StartTime = new(generateTime(g))
	}
	for _, kind := range conditionTypes {
		if g.chance(40) {
			status.Conditions = append(status.Conditions, generateCondition(g, kind))
		}
	}
	g.Shuffle(len(status.Conditions), func(i, j int) {
		status.Conditions[i], status.Conditions[j] = status.Conditions[j], status.Conditions[i]
	})
	if g.chance(20) {
		status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: fmt.Sprint(g.IntN(2))}}
	}
	if g.chance(20) {
		status.Resources = &v1.ResourceRequirements{Requests: generateResources(g), Limits: generateResources(g)}
	}
	generateAddresses(g, pod, status)
	generateContainerStatuses(g, pod, status)
	return status
}

func generateCondition(g *generator, kind v1.PodConditionType) v1.PodCondition {
	return v1.PodCondition{
		Type: kind, Status: oneOf(g, v1.ConditionTrue, v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown),
		Reason: oneOf(g, "", "R"), Message: oneOf(g, "", "M"),
		LastTransitionTime: generateTime(g), ObservedGeneration: int64(g.IntN(3)),
	}
}

func generateAddresses(g *generator, pod *v1.Pod, status *v1.PodStatus) {
	if g.chance(50) {
		status.HostIP, status.HostIPs = "192.0.2.9", []v1.HostIP{{IP: "192.0.2.9"}}
		if g.chance(30) {
			status.HostIPs = append(status.HostIPs, v1.HostIP{IP: "2001:db8::9"})
		}
	}
	if g.chance(50) {
		status.PodIP, status.PodIPs = "10.0.9.9", []v1.PodIP{{IP: "10.0.9.9"}}
	}
	if pod.Spec.HostNetwork && g.chance(50) {
		status.PodIP, status.PodIPs = "192.0.2.9", []v1.PodIP{{IP: "192.0.2.9"}}
	}
}

// generateContainerStatuses sometimes omits, adds and shuffles statuses.
func generateContainerStatuses(g *generator, pod *v1.Pod, status *v1.PodStatus) {
	missing := oneOf(g, 0, 0, 0, 10, 50, 100)
	add := func(list *[]v1.ContainerStatus, name string) {
		if !g.chance(missing) {
			*list = append(*list, generateContainerStatus(g, name))
		}
	}
	for i := range pod.Spec.InitContainers {
		add(&status.InitContainerStatuses, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		add(&status.ContainerStatuses, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		add(&status.EphemeralContainerStatuses, pod.Spec.EphemeralContainers[i].Name)
	}
	for i := range status.EphemeralContainerStatuses {
		status.EphemeralContainerStatuses[i].Ready, status.EphemeralContainerStatuses[i].Started = false, nil
	}
	for _, list := range []*[]v1.ContainerStatus{&status.InitContainerStatuses, &status.ContainerStatuses} {
		if g.chance(5) {
			*list = append(*list, generateContainerStatus(g, "stranger"))
		}
		if g.chance(5) {
			g.Shuffle(len(*list), func(i, j int) { (*list)[i], (*list)[j] = (*list)[j], (*list)[i] })
		}
	}
}

func generateContainerStatus(g *generator, name string) v1.ContainerStatus {
	id := containerID(name, g.IntN(3)).String()
	status := v1.ContainerStatus{
		Name: name, Image: "old:1", ImageID: "old@sha256:1", RestartCount: int32(g.IntN(4)), State: generateState(g, id), Ready: g.chance(50),
	}
	if status.State.Waiting == nil {
		status.ContainerID = id
	}
	if g.chance(40) {
		status.LastTerminationState.Terminated = generateTerminated(g, containerID(name, 9).String())
	}
	if g.chance(80) {
		status.Started = new(g.chance(50))
	}
	if g.chance(40) {
		status.Resources = &v1.ResourceRequirements{Requests: generateResources(g), Limits: generateResources(g)}
		status.AllocatedResources = generateResources(g)
	}
	if g.chance(20) {
		status.VolumeMounts = []v1.VolumeMountStatus{{Name: "data", MountPath: "/data"}}
	}
	return status
}

func generateState(g *generator, id string) v1.ContainerState {
	switch g.IntN(10) {
	case 0:
		return v1.ContainerState{}
	case 1, 2, 3:
		reason := oneOf(g, "ContainerCreating", "PodInitializing", "CrashLoopBackOff")
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	case 4, 5, 6:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: generateTime(g)}}
	default:
		return v1.ContainerState{Terminated: generateTerminated(g, id)}
	}
}

func generateTerminated(g *generator, id string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		ExitCode: int32(g.IntN(3)), Message: "terminated", StartedAt: generateTime(g), FinishedAt: generateTime(g), ContainerID: id,
		Reason: oneOf(g, "Completed", "Error", "Error", "Error", "RestartingAllContainers", "OOMKilled"),
	}
}

// lengthenMessages makes termination messages about as long as allowed, with multi-byte characters and invalid bytes.
func lengthenMessages(g *generator, status *v1.PodStatus) {
	containers := max(1, len(terminatedStates(status)))
	for _, end := range terminatedStates(status) {
		if g.chance(15) {
			character := oneOf(g, "a", "é", "世", "\xff", "a\xe4\xb8")
			end.Message = strings.Repeat(character, (12_288/containers-20+g.IntN(40))/len(character))
		}
	}
}

func containerID(name string, instance int) observed.ContainerID {
	return observed.ContainerID{Runtime: "rt", ID: fmt.Sprintf("%s-%d", name, instance)}
}

// generateObserved generates what a runtime has of the pod, including leftovers and containers that are not in the
// spec. Some pods are entirely healthy, which random choices alone would rarely produce.
func generateObserved(g *generator, pod *v1.Pod) *observed.Pod {
	seen := &observed.Pod{}
	sandboxes := oneOf(g, 0, 1, 1, 1, 2, 2, 3)
	healthy := sandboxes > 0 && g.chance(30)
	for i := range sandboxes {
		seen.Sandboxes = append(seen.Sandboxes, generateSandbox(g, pod, i))
	}
	age := time.Duration(0)
	for _, name := range containerNames(pod) {
		restarts := g.IntN(4)
		for instance := range oneOf(g, 0, 1, 1, 1, 2, 3) {
			age += time.Minute
			c := generateInstance(g, name, instance)
			c.CreatedAt = baseTime.Add(-age)
			c.RestartCount = max(0, restarts-instance) // only increases: see observed.Pod.Sort
			if sandboxes > 0 {
				c.SandboxID = seen.Sandboxes[g.IntN(sandboxes)].ID
			}
			seen.Containers = append(seen.Containers, c)
		}
	}
	for _, ip := range oneOf(g, nil, nil, []string{"10.0.0.1"}, []string{"2001:db8::1", "10.0.0.2", "10.0.0.3"},
		[]string{"2001:db8::2"}, []string{"::ffff:10.1.1.1", "2001:db8:0::7"}) {
		seen.IPs = append(seen.IPs, netip.MustParseAddr(ip))
	}
	if g.chance(50) {
		seen.Resources = generateEnforced(g)
		seen.Resources.MemoryRequestBytes = nil // cgroups have none; Herald knows it of pods that it resized
	}
	seen.Sort()
	if healthy {
		makeHealthy(pod, seen)
	}
	return seen
}

// makeHealthy makes the newest sandbox ready, runs all containers, and completes the init containers.
func makeHealthy(pod *v1.Pod, seen *observed.Pod) {
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

func generateSandbox(g *generator, pod *v1.Pod, age int) observed.Sandbox {
	sandbox := observed.Sandbox{
		ID: fmt.Sprintf("box%d", age), CreatedAt: baseTime.Add(-time.Duration(age) * time.Hour), Attempt: uint32(9 - age),
		Ready: g.chance(70), HostNetwork: pod.Spec.HostNetwork != g.chance(10),
	}
	if g.chance(70) {
		sandbox.Network = &observed.Network{}
		if g.chance(80) {
			sandbox.Network.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		}
	}
	return sandbox
}

func generateInstance(g *generator, name string, instance int) observed.Container {
	c := observed.Container{
		ID: containerID(name, instance), Name: name, StartedAt: generateTime(g).Time,
		State: oneOf(g, observed.Unknown, observed.Created, observed.Running, observed.Running, observed.Exited, observed.Exited),
		Image: observed.Image{Name: name + ":2", Ref: name + "@sha256:2"},
	}
	if instance > 0 && g.chance(60) {
		c.State = observed.Exited
	}
	if c.State == observed.Exited {
		c.Exit = &observed.Exit{
			Code: g.IntN(3), Reason: oneOf(g, "Completed", "Error", "Error", "Error", "Error", "OOMKilled"), Message: "stopped", FinishedAt: generateTime(g).Time,
		}
	}
	if g.chance(50) {
		c.Resources = generateEnforced(g)
	}
	if g.chance(20) {
		c.User = &observed.User{UID: 1, GID: 2, SupplementalGroups: []int64{3}}
	}
	return c
}

func generateEnforced(g *generator) *observed.Resources {
	optional := func(values ...int64) *int64 {
		if g.chance(30) {
			return nil
		}
		return new(oneOf(g, values...))
	}
	return &observed.Resources{
		MilliCPURequest: optional(2, 3, 100), MilliCPULimit: optional(5, 10, 11, 100),
		MemoryRequestBytes: optional(1, 1<<20), MemoryLimitBytes: optional(1, 1<<20),
	}
}

// generateProbes generates results for probed containers.
func generateProbes(g *generator, pod *v1.Pod, seen *observed.Pod) derive.ProbeResults {
	probes := derive.ProbeResults{}
	verdict := func(probe *v1.Probe) derive.ProbeResult {
		if probe == nil {
			return derive.ProbeUnknown
		}
		return oneOf(g, derive.ProbeUnknown, derive.ProbeSuccess, derive.ProbeSuccess, derive.ProbeFailure)
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

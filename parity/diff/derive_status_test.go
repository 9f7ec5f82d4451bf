package diff_test

import (
	"net"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
)

func TestPH22_SameStatus(t *testing.T) { compareStatus.run(t) }

// statusCase is [derive.Input] in a form that can be generated, printed and shrunk.
type statusCase struct {
	Pod         *v1.Pod
	Previous    *v1.PodStatus
	Observed    *observed.Pod
	Probes      derive.ProbeResults `json:"-"`
	Waiting     map[string]derive.Waiting
	Resize      []v1.PodCondition
	Evict       *derive.Eviction
	Terminating bool
	// Addresses are the Node object's, nil without an API server.
	Addresses               []v1.NodeAddress
	IPv6First, PodResources bool
}

func generateStatusCase(g *generator) statusCase {
	pod := generatePod(g)
	c := statusCase{Pod: pod, Waiting: map[string]derive.Waiting{}, Terminating: g.chance(30), PodResources: g.chance(70)}
	if g.chance(70) {
		pod.Status = *generateStatus(g, pod)
	}
	switch g.IntN(5) {
	case 0:
	case 1:
		c.Previous = pod.Status.DeepCopy()
	default:
		c.Previous = generateStatus(g, pod)
	}
	c.Observed = generateObserved(g, pod)
	c.Probes = generateProbes(g, pod, c.Observed)
	for _, name := range containerNames(pod) {
		if g.chance(30) {
			c.Waiting[name] = derive.Waiting{Reason: "CrashLoopBackOff", Message: "back-off"}
		}
	}
	if g.chance(20) {
		c.Resize = []v1.PodCondition{generateCondition(g, v1.PodResizePending), generateCondition(g, v1.PodResizeInProgress)}[g.IntN(2):]
	}
	if g.chance(10) {
		c.Evict = &derive.Eviction{Reason: "Evicted", Message: "out of memory"}
	}
	c.Addresses = oneOf(g, nil, nil, newNodeAddresses("10.9.9.9"), newNodeAddresses("10.9.9.9", "2001:db8::9"),
		newNodeAddresses("2001:db8::9", "2001:db8::8", "10.9.9.9"), newNodeAddresses("none"))
	c.IPv6First = g.chance(30)
	return c
}

// newNodeAddresses returns external addresses, except for the last, which is internal.
func newNodeAddresses(addresses ...string) []v1.NodeAddress {
	var nodeAddresses []v1.NodeAddress
	for _, address := range addresses {
		nodeAddresses = append(nodeAddresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: address})
	}
	nodeAddresses[len(nodeAddresses)-1].Type = v1.NodeInternalIP
	return nodeAddresses
}

func (c statusCase) heraldStatus() v1.PodStatus {
	return derive.Status(derive.Input{
		Pod: c.Pod, Previous: c.Previous, Observed: c.Observed, Probes: c.Probes, Waiting: c.Waiting,
		Resize: derive.ResizeFromConditions(c.Resize), Eviction: c.Evict, Terminating: c.Terminating, Now: fixedNow,
		Node: derive.NodeInfo{HostIPs: derive.HostIPs(c.Addresses), IPv6First: c.IPv6First, PodResources: c.PodResources},
	})
}

// baseStatus returns the status that the new one continues.
func (c statusCase) baseStatus() *v1.PodStatus {
	if c.Previous != nil {
		return c.Previous
	}
	return &c.Pod.Status
}

var compareStatus = newComparison(generateStatusCase, func(c statusCase) string {
	theirs, ok := expectedStatus(c)
	if !ok {
		return ""
	}
	ours := c.heraldStatus()
	ours.ObservedGeneration, ours.StartTime = 0, nil // the kubelet sets them later, see compareContinue
	if changedPhase := derive.IsTerminal(c.baseStatus().Phase) && c.Pod.Status.Phase == v1.PodRunning; changedPhase {
		ours.Resources, theirs.Resources = nil, nil // the kubelet's input has another phase
	}
	clearConditionTimes(&ours)
	clearConditionTimes(&theirs)
	if !equality.Semantic.DeepEqual(theirs, ours) {
		return describeMismatch(theirs, ours)
	}
	return ""
})

// clearConditionTimes clears the times of conditions that the kubelet sets later: see compareContinue.
func clearConditionTimes(status *v1.PodStatus) {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		resize := condition.Type == v1.PodResizePending || condition.Type == v1.PodResizeInProgress
		if derive.IsOwnedCondition(condition.Type) && !resize || condition.Type == v1.DisruptionTarget {
			condition.LastTransitionTime = metav1.Time{}
		}
	}
}

// kubeletGenerator is shared: comparisons do not run in parallel.
var kubeletGenerator = kubelet.NewStatusGenerator()

// TestStatusCases_Coverage verifies that the generated cases cover all phases and conditions.
func TestStatusCases_Coverage(t *testing.T) {
	const cases = 2_000
	counts := map[string]int{}
	for seed := range uint64(cases) {
		c := generateStatusCase(newGenerator(seed))
		theirs, ok := expectedStatus(c)
		if !ok {
			counts["not comparable"]++
			continue
		}
		counts[string(theirs.Phase)]++
		for _, condition := range theirs.Conditions {
			counts[string(condition.Type)+" "+string(condition.Status)]++
		}
	}
	t.Log(counts)
	if counts["not comparable"] > cases/10 {
		t.Errorf("got %d of %d cases that cannot be compared, want at most a tenth", counts["not comparable"], cases)
	}
	for _, kind := range []string{
		"Pending", "Running", "Succeeded", "Failed", "Ready True", "Ready False", "Initialized True", "Initialized False",
		"PodReadyToStartContainers True", "AllContainersRestarting True", "DisruptionTarget True", "gate/a True",
	} {
		if counts[kind] < cases/100 {
			t.Errorf("%s: got %d of %d cases, want at least one in a hundred", kind, counts[kind], cases)
		}
	}
}

// newStatusInput converts Herald's input to the kubelet's. It copies the previous status; pointers into the spec are
// shared.
func newStatusInput(c statusCase) kubelet.StatusInput {
	pod := *c.Pod
	input := kubelet.StatusInput{
		Pod: &pod, Cached: pod.Status.DeepCopy(), RuntimeStatus: kubeletPodStatus(c.Observed), Reasons: map[string]kubelet.Reason{},
		Startup: map[kubecontainer.ContainerID]results.Result{}, Readiness: map[kubecontainer.ContainerID]results.Result{},
		ResizeConditions: c.Resize, NodeAddresses: c.Addresses, Cgroup: kubeletCgroup(c.Observed.Resources), Terminal: c.Terminating,
	}
	if c.Previous != nil {
		input.Cached = c.Previous.DeepCopy()
	}
	for id, facts := range c.Probes {
		id := kubecontainer.ContainerID{Type: id.Runtime, ID: id.ID}
		setResult(input.Startup, id, facts.Startup)
		setResult(input.Readiness, id, facts.Readiness)
	}
	for name, waiting := range c.Waiting {
		input.Reasons[name] = kubelet.Reason{Reason: waiting.Reason, Message: waiting.Message}
	}
	if c.Evict != nil {
		input.Eviction = &lifecycle.ShouldEvictResponse{Evict: true, Reason: c.Evict.Reason, Message: c.Evict.Message}
	}
	if c.IPv6First {
		input.NodeIPs = []net.IP{net.ParseIP("2001:db8::99")}
	}
	return input
}

func setResult(byID map[kubecontainer.ContainerID]results.Result, id kubecontainer.ContainerID, verdict derive.ProbeResult) {
	switch verdict {
	case derive.ProbeSuccess:
		byID[id] = results.Success
	case derive.ProbeFailure:
		byID[id] = results.Failure
	}
}

// kubeletPodStatus returns what the kubelet's runtime manager would report.
func kubeletPodStatus(pod *observed.Pod) *kubecontainer.PodStatus {
	status := &kubecontainer.PodStatus{}
	for _, ip := range pod.IPs {
		status.IPs = append(status.IPs, ip.String())
	}
	for i := range pod.Sandboxes {
		status.SandboxStatuses = append(status.SandboxStatuses, kubeletSandboxStatus(&pod.Sandboxes[i]))
	}
	newest, _ := pod.NewestSandbox()
	for i := range pod.Containers {
		c := kubeletContainerStatus(&pod.Containers[i])
		status.ContainerStatuses = append(status.ContainerStatuses, c)
		if newest.Ready && pod.Containers[i].SandboxID == newest.ID {
			status.ActiveContainerStatuses = append(status.ActiveContainerStatuses, c)
		}
	}
	return status
}

func kubeletSandboxStatus(sandbox *observed.Sandbox) *runtimeapi.PodSandboxStatus {
	options := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_POD}
	if sandbox.HostNetwork {
		options.Network = runtimeapi.NamespaceMode_NODE
	}
	status := &runtimeapi.PodSandboxStatus{
		Id: sandbox.ID, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: sandbox.Attempt},
		State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}},
	}
	if sandbox.Ready {
		status.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	if sandbox.Network != nil {
		status.Network = &runtimeapi.PodSandboxNetworkStatus{}
		for _, ip := range sandbox.Network.IPs {
			status.Network.Ip = ip.String()
		}
	}
	return status
}

func kubeletContainerStatus(c *observed.Container) *kubecontainer.Status {
	status := &kubecontainer.Status{
		ID: kubecontainer.ContainerID{Type: c.ID.Runtime, ID: c.ID.ID}, Name: c.Name, RestartCount: c.RestartCount,
		CreatedAt: c.CreatedAt, StartedAt: c.StartedAt, Image: c.Image.Name, ImageRef: c.Image.Ref, ImageID: "not shown",
		State: map[observed.State]kubecontainer.State{
			observed.Unknown: kubecontainer.ContainerStateUnknown, observed.Created: kubecontainer.ContainerStateCreated,
			observed.Running: kubecontainer.ContainerStateRunning, observed.Exited: kubecontainer.ContainerStateExited,
		}[c.State],
	}
	if c.Exit != nil {
		status.ExitCode, status.Reason, status.Message, status.FinishedAt = c.Exit.Code, c.Exit.Reason, c.Exit.Message, c.Exit.FinishedAt
	}
	if r := c.Resources; r != nil {
		status.Resources = &kubecontainer.ContainerResources{
			CPURequest: milliQuantity(r.MilliCPURequest), CPULimit: milliQuantity(r.MilliCPULimit),
			MemoryRequest: byteQuantity(r.MemoryRequestBytes), MemoryLimit: byteQuantity(r.MemoryLimitBytes),
		}
	}
	if u := c.User; u != nil {
		status.User = &kubecontainer.ContainerUser{
			Linux: &kubecontainer.LinuxContainerUser{UID: u.UID, GID: u.GID, SupplementalGroups: u.SupplementalGroups},
		}
	}
	return status
}

func milliQuantity(value *int64) *resource.Quantity {
	if value == nil {
		return nil
	}
	return resource.NewMilliQuantity(*value, resource.DecimalSI)
}

func byteQuantity(value *int64) *resource.Quantity {
	if value == nil {
		return nil
	}
	return resource.NewQuantity(*value, resource.BinarySI)
}

// kubeletCgroup returns a cgroup configuration from which the kubelet reads these resources.
func kubeletCgroup(r *observed.Resources) *cm.ResourceConfig {
	if r == nil {
		return nil
	}
	config := &cm.ResourceConfig{CPUShares: new(uint64(0)), CPUQuota: new(int64(-1)), CPUPeriod: new(uint64(100_000)), Memory: new(int64(0))}
	if r.MilliCPURequest != nil {
		config.CPUShares = new(uint64(*r.MilliCPURequest * 1024 / 1000))
	}
	if r.MilliCPULimit != nil {
		config.CPUQuota = new(*r.MilliCPULimit * 100)
	}
	if r.MemoryLimitBytes != nil {
		config.Memory = r.MemoryLimitBytes
	}
	return config
}

// forEachContainer calls f for the statuses of init and regular containers that are in the spec.
func forEachContainer(pod *v1.Pod, status *v1.PodStatus, f func(spec *v1.Container, status *v1.ContainerStatus)) {
	for _, lists := range []struct {
		specs    []v1.Container
		statuses []v1.ContainerStatus
	}{
		{pod.Spec.InitContainers, status.InitContainerStatuses}, {pod.Spec.Containers, status.ContainerStatuses},
	} {
		for i := range lists.specs {
			for j := range lists.statuses {
				if lists.statuses[j].Name == lists.specs[i].Name {
					f(&lists.specs[i], &lists.statuses[j])
				}
			}
		}
	}
}

func isSandboxReady(sandbox *runtimeapi.PodSandboxStatus) bool {
	return sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY
}

// newestInstance returns the newest instance of the container, or nil.
func newestInstance(input *kubelet.StatusInput, name string) *kubecontainer.Status {
	for _, c := range input.RuntimeStatus.ContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// cachedStatusLists returns the cached lists of init, regular and ephemeral container statuses.
func cachedStatusLists(input *kubelet.StatusInput) []*[]v1.ContainerStatus {
	return []*[]v1.ContainerStatus{
		&input.Cached.InitContainerStatuses, &input.Cached.ContainerStatuses, &input.Cached.EphemeralContainerStatuses,
	}
}

// cachedStatus returns the cached status of the container, or nil.
func cachedStatus(input *kubelet.StatusInput, name string) *v1.ContainerStatus {
	for _, list := range cachedStatusLists(input) {
		if status := findContainerStatus(*list, name); status != nil {
			return status
		}
	}
	return nil
}

func findContainerStatus(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func canRestartAll(pod *v1.Pod) bool {
	_, ok := derive.AllContainersRestartingCondition(pod, &observed.Pod{}, &v1.PodStatus{}, "")
	return ok
}

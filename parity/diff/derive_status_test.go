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

func TestPH22BothMakeTheSameStatusOfWhatTheySee(t *testing.T) { compareStatus.run(t) }

// statusCase is [derive.Input] in parts that can be drawn, written and made smaller.
type statusCase struct {
	Pod         *v1.Pod
	Previous    *v1.PodStatus
	Observed    *observed.Pod
	Probes      derive.ProbeResults `json:"-"`
	Waiting     map[string]derive.Waiting
	Resize      []v1.PodCondition
	Evict       *derive.Eviction
	Terminating bool
	// Addresses are the Node object's; nil without an API server.
	Addresses               []v1.NodeAddress
	IPv6First, PodResources bool
}

func drawStatusCase(d *drawer) statusCase {
	pod := drawPod(d)
	c := statusCase{Pod: pod, Waiting: map[string]derive.Waiting{}, Terminating: d.chance(30), PodResources: d.chance(70)}
	if d.chance(70) {
		pod.Status = *drawStatus(d, pod)
	}
	switch d.IntN(5) {
	case 0:
	case 1:
		c.Previous = pod.Status.DeepCopy()
	default:
		c.Previous = drawStatus(d, pod)
	}
	c.Observed = drawObserved(d, pod)
	c.Probes = drawProbes(d, pod, c.Observed)
	for _, name := range containerNames(pod) {
		if d.chance(30) {
			c.Waiting[name] = derive.Waiting{Reason: "CrashLoopBackOff", Message: "back-off"}
		}
	}
	if d.chance(20) {
		c.Resize = []v1.PodCondition{drawCondition(d, v1.PodResizePending), drawCondition(d, v1.PodResizeInProgress)}[d.IntN(2):]
	}
	if d.chance(10) {
		c.Evict = &derive.Eviction{Reason: "Evicted", Message: "out of memory"}
	}
	c.Addresses = oneOf(d, nil, nil, nodeAddresses("10.9.9.9"), nodeAddresses("10.9.9.9", "2001:db8::9"),
		nodeAddresses("2001:db8::9", "2001:db8::8", "10.9.9.9"), nodeAddresses("none"))
	c.IPv6First = d.chance(30)
	return c
}

// nodeAddresses are external, but for the last.
func nodeAddresses(written ...string) []v1.NodeAddress {
	var addresses []v1.NodeAddress
	for _, address := range written {
		addresses = append(addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: address})
	}
	addresses[len(addresses)-1].Type = v1.NodeInternalIP
	return addresses
}

func (c statusCase) herald() v1.PodStatus {
	return derive.Status(derive.Input{
		Pod: c.Pod, Previous: c.Previous, Observed: c.Observed, Probes: c.Probes, Waiting: c.Waiting,
		Resize: derive.ResizeFromConditions(c.Resize), Eviction: c.Evict, Terminating: c.Terminating, Now: heraldNow,
		Node: derive.NodeInfo{HostIPs: derive.HostIPs(c.Addresses), IPv6First: c.IPv6First, PodResources: c.PodResources},
	})
}

// before is the status that the new one continues.
func (c statusCase) before() *v1.PodStatus {
	if c.Previous != nil {
		return c.Previous
	}
	return &c.Pod.Status
}

var compareStatus = compared(drawStatusCase, func(c statusCase) string {
	theirs, ok := expected(c)
	if !ok {
		return ""
	}
	ours := c.herald()
	ours.ObservedGeneration, ours.StartTime = 0, nil // the kubelet sets them later: compareContinue
	if unfixed := isTerminal(c.before().Phase) && c.Pod.Status.Phase == v1.PodRunning; unfixed {
		ours.Resources, theirs.Resources = nil, nil // the kubelet was given another phase
	}
	untimed(&ours)
	untimed(&theirs)
	if !equality.Semantic.DeepEqual(theirs, ours) {
		return unlike(theirs, ours)
	}
	return ""
})

// untimed takes the times from conditions whose times are set later in the kubelet: compareContinue.
func untimed(status *v1.PodStatus) {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		resize := condition.Type == v1.PodResizePending || condition.Type == v1.PodResizeInProgress
		if derive.IsOwnedCondition(condition.Type) && !resize || condition.Type == v1.DisruptionTarget {
			condition.LastTransitionTime = metav1.Time{}
		}
	}
}

// generator is one for all: comparisons do not run side by side.
var generator = kubelet.NewStatusGenerator()

// TestTheCasesOfAStatusAreOfAllKinds sees to it that what is drawn proves something.
func TestTheCasesOfAStatusAreOfAllKinds(t *testing.T) {
	const cases = 2_000
	counted := map[string]int{}
	for seed := range uint64(cases) {
		c := drawStatusCase(newDrawer(seed))
		theirs, ok := expected(c)
		if !ok {
			counted["not comparable"]++
			continue
		}
		counted[string(theirs.Phase)]++
		for _, condition := range theirs.Conditions {
			counted[string(condition.Type)+" "+string(condition.Status)]++
		}
	}
	t.Log(counted)
	if counted["not comparable"] > cases/10 {
		t.Errorf("%d of %d cases cannot be compared", counted["not comparable"], cases)
	}
	for _, kind := range []string{
		"Pending", "Running", "Succeeded", "Failed", "Ready True", "Ready False", "Initialized True", "Initialized False",
		"PodReadyToStartContainers True", "AllContainersRestarting True", "DisruptionTarget True", "gate/a True",
	} {
		if counted[kind] < cases/100 {
			t.Errorf("%s: only %d of %d cases", kind, counted[kind], cases)
		}
	}
}

// lookOf is Herald's input as the kubelet would meet it. What the status before says is copied, pointers to the spec
// are not.
func lookOf(c statusCase) kubelet.StatusInput {
	pod := *c.Pod
	look := kubelet.StatusInput{
		Pod: &pod, Cached: pod.Status.DeepCopy(), RuntimeStatus: runtimeView(c.Observed), Reasons: map[string]kubelet.Reason{},
		Startup: map[kubecontainer.ContainerID]results.Result{}, Readiness: map[kubecontainer.ContainerID]results.Result{},
		ResizeConditions: c.Resize, NodeAddresses: c.Addresses, Cgroup: cgroupView(c.Observed.Resources), Terminal: c.Terminating,
	}
	if c.Previous != nil {
		look.Cached = c.Previous.DeepCopy()
	}
	for id, facts := range c.Probes {
		id := kubecontainer.ContainerID{Type: id.Runtime, ID: id.ID}
		setVerdict(look.Startup, id, facts.Startup)
		setVerdict(look.Readiness, id, facts.Readiness)
	}
	for name, why := range c.Waiting {
		look.Reasons[name] = kubelet.Reason{Reason: why.Reason, Message: why.Message}
	}
	if c.Evict != nil {
		look.Eviction = &lifecycle.ShouldEvictResponse{Evict: true, Reason: c.Evict.Reason, Message: c.Evict.Message}
	}
	if c.IPv6First {
		look.NodeIPs = []net.IP{net.ParseIP("2001:db8::99")}
	}
	return look
}

func setVerdict(known map[kubecontainer.ContainerID]results.Result, id kubecontainer.ContainerID, verdict derive.ProbeResult) {
	switch verdict {
	case derive.ProbeSuccess:
		known[id] = results.Success
	case derive.ProbeFailure:
		known[id] = results.Failure
	}
}

// runtimeView is what the kubelet's runtime manager would report.
func runtimeView(seen *observed.Pod) *kubecontainer.PodStatus {
	view := &kubecontainer.PodStatus{}
	for _, ip := range seen.IPs {
		view.IPs = append(view.IPs, ip.String())
	}
	for i := range seen.Sandboxes {
		view.SandboxStatuses = append(view.SandboxStatuses, sandboxView(&seen.Sandboxes[i]))
	}
	newest, _ := seen.NewestSandbox()
	for i := range seen.Containers {
		c := containerView(&seen.Containers[i])
		view.ContainerStatuses = append(view.ContainerStatuses, c)
		if newest.Ready && seen.Containers[i].SandboxID == newest.ID {
			view.ActiveContainerStatuses = append(view.ActiveContainerStatuses, c)
		}
	}
	return view
}

func sandboxView(box *observed.Sandbox) *runtimeapi.PodSandboxStatus {
	options := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_POD}
	if box.HostNetwork {
		options.Network = runtimeapi.NamespaceMode_NODE
	}
	view := &runtimeapi.PodSandboxStatus{
		Id: box.ID, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: box.Attempt},
		State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}},
	}
	if box.Ready {
		view.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	if box.Network != nil {
		view.Network = &runtimeapi.PodSandboxNetworkStatus{}
		for _, ip := range box.Network.IPs {
			view.Network.Ip = ip.String()
		}
	}
	return view
}

func containerView(c *observed.Container) *kubecontainer.Status {
	view := &kubecontainer.Status{
		ID: kubecontainer.ContainerID{Type: c.ID.Runtime, ID: c.ID.ID}, Name: c.Name, RestartCount: c.RestartCount,
		CreatedAt: c.CreatedAt, StartedAt: c.StartedAt, Image: c.Image.Name, ImageRef: c.Image.Ref, ImageID: "not shown",
		State: map[observed.State]kubecontainer.State{
			observed.Unknown: kubecontainer.ContainerStateUnknown, observed.Created: kubecontainer.ContainerStateCreated,
			observed.Running: kubecontainer.ContainerStateRunning, observed.Exited: kubecontainer.ContainerStateExited,
		}[c.State],
	}
	if c.Exit != nil {
		view.ExitCode, view.Reason, view.Message, view.FinishedAt = c.Exit.Code, c.Exit.Reason, c.Exit.Message, c.Exit.FinishedAt
	}
	if r := c.Resources; r != nil {
		view.Resources = &kubecontainer.ContainerResources{
			CPURequest: milli(r.MilliCPURequest), CPULimit: milli(r.MilliCPULimit),
			MemoryRequest: bytes(r.MemoryRequestBytes), MemoryLimit: bytes(r.MemoryLimitBytes),
		}
	}
	if u := c.User; u != nil {
		view.User = &kubecontainer.ContainerUser{
			Linux: &kubecontainer.LinuxContainerUser{UID: u.UID, GID: u.GID, SupplementalGroups: u.SupplementalGroups},
		}
	}
	return view
}

func milli(value *int64) *resource.Quantity {
	if value == nil {
		return nil
	}
	return resource.NewMilliQuantity(*value, resource.DecimalSI)
}

func bytes(value *int64) *resource.Quantity {
	if value == nil {
		return nil
	}
	return resource.NewQuantity(*value, resource.BinarySI)
}

// cgroupView is a cgroup that enforces this, so that the kubelet reads the same numbers from it.
func cgroupView(r *observed.Resources) *cm.ResourceConfig {
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

// eachContainer calls f for the statuses of init and of regular containers that the spec knows.
func eachContainer(pod *v1.Pod, status *v1.PodStatus, f func(spec *v1.Container, status *v1.ContainerStatus)) {
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

func isReady(box *runtimeapi.PodSandboxStatus) bool {
	return box.State == runtimeapi.PodSandboxState_SANDBOX_READY
}

// newestSeen is the newest instance of that name, or nil.
func newestSeen(look *kubelet.StatusInput, name string) *kubecontainer.Status {
	for _, c := range look.RuntimeStatus.ContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// cachedLists are the lists of init, regular and ephemeral containers before.
func cachedLists(look *kubelet.StatusInput) []*[]v1.ContainerStatus {
	return []*[]v1.ContainerStatus{
		&look.Cached.InitContainerStatuses, &look.Cached.ContainerStatuses, &look.Cached.EphemeralContainerStatuses,
	}
}

// cachedStatus is the status before of the pod's container of that name, or nil.
func cachedStatus(look *kubelet.StatusInput, name string) *v1.ContainerStatus {
	for _, list := range cachedLists(look) {
		if status := statusNamed(*list, name); status != nil {
			return status
		}
	}
	return nil
}

func statusNamed(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
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

package diff_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	Probes      derive.Probes `json:"-"`
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
		Resize: derive.ResizeOf(c.Resize), Evict: c.Evict, Terminating: c.Terminating, Now: heraldNow,
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
		if derive.IsOwned(condition.Type) && !resize || condition.Type == derive.SharedCondition {
			condition.LastTransitionTime = metav1.Time{}
		}
	}
}

// generator is one for all: comparisons do not run side by side.
var generator = kubelet.NewGenerator()

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

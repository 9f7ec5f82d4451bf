package diff_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/preemption"
	"k8s.io/kubernetes/pkg/kubelet/sysctl"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/heraldnode/herald/admission"
)

// admissionCase is the input of both admissions.
type admissionCase struct {
	pod    *v1.Pod
	node   *v1.Node
	others []*v1.Pod
}

var allowedSysctls = []string{"net.core.*"}

// kubeletAdmission returns the kubelet's verdict: its reason and message, or "" if the pod is admitted.
func (c admissionCase) kubeletAdmission(t *testing.T) (reason, message string) {
	t.Helper()
	allowlist, err := sysctl.NewAllowlist(append(sysctl.SafeSysctlAllowlist(t.Context()), allowedSysctls...))
	if err != nil {
		t.Fatal(err)
	}
	getNode := func(context.Context, bool) (*v1.Node, error) { return c.node.DeepCopy(), nil }
	noPlugins := func(*schedulerframework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil }
	preempting := preemption.NewCriticalPodAdmissionHandler(
		func() []*v1.Pod { return nil }, nil, record.NewFakeRecorder(1))
	for _, handler := range []lifecycle.PodAdmitHandler{allowlist, lifecycle.NewPredicateAdmitHandler(getNode, preempting, noPlugins)} {
		result := handler.Admit(&lifecycle.PodAdmitAttributes{Pod: c.pod.DeepCopy(), OtherPods: c.others})
		if !result.Admit {
			return result.Reason, result.Message
		}
	}
	return "", ""
}

// heraldAdmission is kubeletAdmission of Herald.
func (c admissionCase) heraldAdmission() (reason, message string) {
	rejection := admission.Check(c.pod, admission.Node{
		Object: c.node, Allocatable: c.node.Status.Allocatable, AllowedUnsafeSysctls: allowedSysctls, AppArmor: true,
	}, c.others)
	if rejection == nil {
		return "", ""
	}
	return rejection.Reason, rejection.Message
}

func generateAdmissionNode(g *generator) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{v1.LabelOSStable: "linux", "disk": oneOf(g, "ssd", "hdd")}}}
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourcePods: resource.MustParse(oneOf(g, "2", "3", "110")), v1.ResourceCPU: resource.MustParse(oneOf(g, "10m", "1", "4")),
		v1.ResourceMemory: resource.MustParse(oneOf(g, "1Mi", "3Mi", "1Gi")), v1.ResourceEphemeralStorage: resource.MustParse("1Gi"),
		"hugepages-2Mi": resource.MustParse(oneOf(g, "0", "4Mi")),
	}
	if g.chance(50) {
		node.Status.Allocatable["example.com/dongle"] = resource.MustParse("1")
	}
	if g.chance(20) {
		node.Spec.Taints = []v1.Taint{{Key: "gone", Value: "a", Effect: oneOf(g, v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule)}}
	}
	return node
}

// generateAdmissionPod generates a pod that asks for a few things that a node may not have. At most one resource is not among
// those that the kubelet checks in a fixed order.
func generateAdmissionPod(g *generator) *v1.Pod {
	pod := generatePod(g)
	special := oneOf(g, v1.ResourceName("hugepages-2Mi"), "example.com/dongle", "example.com/licence")
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			list := containers[i].Resources.Requests
			delete(list, "hugepages-2Mi")
			if list != nil && g.chance(5) {
				list[special] = resource.MustParse("2")
			}
			if g.chance(15) {
				containers[i].Ports = []v1.ContainerPort{{
					HostPort: int32(g.IntN(3)), HostIP: oneOf(g, "", "", "10.0.0.1", "10.0.0.2"), Protocol: oneOf(g, "", v1.ProtocolTCP, v1.ProtocolUDP),
				}}
			}
		}
	}
	if pod.Spec.Resources != nil {
		delete(pod.Spec.Resources.Requests, "hugepages-2Mi")
	}
	delete(pod.Spec.Overhead, "hugepages-2Mi")
	pod.Annotations, pod.Spec.Priority = nil, nil // neither static nor critical
	pod.Spec.NodeName = oneOf(g, "", "n1", "n1", "n1", "n1", "n2")
	if g.chance(15) {
		pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	if g.chance(15) {
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{oneOf(g, "n1", "n2")},
			}}}},
		}}}
	}
	if g.chance(30) {
		pod.Spec.Tolerations = []v1.Toleration{{
			Key: oneOf(g, "", "gone"), Operator: oneOf(g, v1.TolerationOpExists, v1.TolerationOpEqual, ""), Value: oneOf(g, "", "a", "b"),
		}}
	}
	if g.chance(10) {
		pod.Spec.OS = &v1.PodOS{Name: oneOf(g, v1.Linux, v1.Windows)}
	}
	if g.chance(5) {
		pod.Labels = map[string]string{v1.LabelOSStable: oneOf(g, "linux", "windows")}
	}
	if g.chance(15) {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(oneOf(g, v1.SupplementalGroupsPolicyStrict, v1.SupplementalGroupsPolicyMerge))}
		pod.Spec.SecurityContext.Sysctls = []v1.Sysctl{{
			Name: oneOf(g, "kernel.msgmax", "net.core.somaxconn", "net/ipv4/tcp_syncookies", "kernel.shm_rmid_forced"),
		}}
	}
	pod.Spec.HostNetwork, pod.Spec.HostIPC = g.chance(20), g.chance(20)
	return pod
}

// TestADM_SameVerdicts compares the verdicts on random pods: ADM-2, ADM-7, ADM-9, ADM-10, ADM-13, ADM-14, ADM-15, ADM-16, ADM-17,
// ADM-18, ADM-19.
func TestADM_SameVerdicts(t *testing.T) {
	const cases = 20_000
	reasons := map[string]int{}
	for seed := range uint64(cases) {
		g := newGenerator(seed)
		c := admissionCase{pod: generateAdmissionPod(g), node: generateAdmissionNode(g)}
		for range g.IntN(4) {
			c.others = append(c.others, generateAdmissionPod(g))
		}
		theirReason, theirMessage := c.kubeletAdmission(t)
		ourReason, ourMessage := c.heraldAdmission()
		if theirReason != ourReason || theirMessage != ourMessage {
			t.Fatalf("seed %d: the kubelet says %q: %s; Herald says %q: %s", seed, theirReason, theirMessage, ourReason, ourMessage)
		}
		reasons[ourReason]++
	}
	t.Log(reasons)
	for _, reason := range []string{
		"", "OutOfpods", "OutOfcpu", "OutOfmemory", "OutOfhugepages-2Mi", "OutOfexample.com/dongle", "NodeAffinity", "NodeName", "NodePorts",
		"TaintToleration", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden",
	} {
		if reasons[reason] < cases/2000 {
			t.Errorf("got %d pods with reason %q, want at least %d", reasons[reason], reason, cases/2000)
		}
	}
}

// TestADM26_SameVictims compares which pods end for a critical one, and the error if none suffice (ADM-28).
func TestADM26_SameVictims(t *testing.T) {
	const cases = 20_000
	counts := map[string]int{}
	for seed := range uint64(cases) {
		g := newGenerator(seed)
		node := generateAdmissionNode(g)
		node.Spec.Taints = nil
		newPod := func() *v1.Pod {
			pod := podWith(v1.RestartPolicyAlways, "main")
			list := v1.ResourceList{}
			for name, values := range map[v1.ResourceName][]string{
				v1.ResourceCPU: {"", "5m", "10m", "500m", "1", "2"}, v1.ResourceMemory: {"", "1Mi", "2Mi", "500Mi"},
				v1.ResourceEphemeralStorage: {"", "", "100Mi"},
			} {
				if value := values[g.IntN(len(values))]; value != "" {
					list[name] = resource.MustParse(value)
				}
			}
			pod.Spec.Containers[0].Resources.Requests = list
			if g.chance(30) {
				pod.Spec.Containers[0].Resources.Limits = list.DeepCopy()
			}
			return pod
		}
		pod := newPod()
		pod.Spec.Priority = new(oneOf(g, int32(2_000_000_000), 2_000_001_000))
		var others []*v1.Pod
		for range g.IntN(6) {
			other := newPod()
			other.UID = types.UID(fmt.Sprint(len(others)))
			other.Name = fmt.Sprint("other-", len(others))
			other.Spec.Priority = oneOf(g, nil, new(int32(0)), new(int32(100)), new(int32(2_000_000_000)))
			others = append(others, other)
		}
		theirs, ours := kubeletVictims(pod, node, others), heraldVictims(pod, node, others)
		if theirs != ours {
			t.Fatalf("seed %d: the kubelet says %s, Herald %s", seed, theirs, ours)
		}
		kind, _, _ := strings.Cut(ours, " ")
		counts[kind]++
	}
	t.Log(counts)
	for _, kind := range []string{"admitted", "preempts", "UnexpectedAdmissionError"} {
		if counts[kind] < cases/100 {
			t.Errorf("got %d cases of %q, want at least %d", counts[kind], kind, cases/100)
		}
	}
}

func kubeletVictims(pod *v1.Pod, node *v1.Node, others []*v1.Pod) string {
	var victims []string
	kill := func(victim *v1.Pod, _ bool, _ *int64, _ func(*v1.PodStatus)) error {
		victims = append(victims, victim.Name)
		return nil
	}
	preempting := preemption.NewCriticalPodAdmissionHandler(
		func() []*v1.Pod { return slices.Clone(others) }, kill, record.NewFakeRecorder(len(others)))
	getNode := func(context.Context, bool) (*v1.Node, error) { return node.DeepCopy(), nil }
	noPlugins := func(*schedulerframework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil }
	result := lifecycle.NewPredicateAdmitHandler(getNode, preempting, noPlugins).
		Admit(&lifecycle.PodAdmitAttributes{Pod: pod.DeepCopy(), OtherPods: others})
	switch {
	case !result.Admit:
		return result.Reason + " " + result.Message
	case len(victims) == 0:
		return "admitted"
	default:
		return "preempts " + strings.Join(victims, ", ")
	}
}

// heraldVictims is kubeletVictims of Herald.
func heraldVictims(pod *v1.Pod, node *v1.Node, others []*v1.Pod) string {
	rejection := admission.Check(pod, admission.Node{Object: node, Allocatable: node.Status.Allocatable, AppArmor: true}, others)
	if rejection == nil {
		return "admitted"
	}
	victims, err := admission.Victims(pod, rejection.Shortages, others)
	if err != nil { // the text; the reason is OutOf... (see differences)
		return "UnexpectedAdmissionError Unexpected error while attempting to recover from admission failure: " + err.Error()
	}
	var names []string
	for _, victim := range victims {
		names = append(names, victim.Name)
	}
	return "preempts " + strings.Join(names, ", ")
}

// The kubelet decides on every pod anew when it starts. Herald does not ask for a pod that runs: see the worker's tests.
func TestADM29_RestartAfterLabelChange(t *testing.T) {
	node := generateAdmissionNode(newGenerator(1))
	node.Spec.Taints = nil
	pod := podWith(v1.RestartPolicyAlways, "main")
	pod.Spec.NodeSelector, pod.Status.Phase = map[string]string{"removed": "label"}, v1.PodRunning
	theirs, _ := admissionCase{pod: pod, node: node}.kubeletAdmission(t)
	if theirs != "NodeAffinity" {
		t.Errorf("got reason %q, want NodeAffinity", theirs)
	}
}

package admission_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/admission"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
)

// newNode returns a node with four CPUs, 8 GiB, 4 MiB of huge pages, a licence and a label.
func newNode() admission.Node {
	return admission.Node{
		Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"disk": "ssd"}}},
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("3"),
			v1.ResourceEphemeralStorage: resource.MustParse("10Gi"), "hugepages-2Mi": resource.MustParse("4Mi"), "example.com/dongle": resource.MustParse("1"),
		},
		SupplementalGroupsPolicy: true, AppArmor: true,
	}
}

func requests(values ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		list := v1.ResourceList{}
		for i := 0; i < len(values); i += 2 {
			list[v1.ResourceName(values[i])] = resource.MustParse(values[i+1])
		}
		pod.Spec.Containers[0].Resources.Requests = list
	}
}

func hostPort(port int32, protocol v1.Protocol, ip string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port, Protocol: protocol, HostIP: ip}}
	}
}

func asSidecar(pod *v1.Pod) {
	sidecar := pod.Spec.Containers[0]
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers, pod.Spec.Containers[0].Ports = []v1.Container{sidecar}, nil
}

func sysctl(name string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: name, Value: "1"}}}
	}
}

func onHostNetwork(pod *v1.Pod) { pod.Spec.HostNetwork = true }
func onHostIPC(pod *v1.Pod)     { pod.Spec.HostIPC = true }
func critical(pod *v1.Pod)      { pod.Spec.Priority = new(int32(2_000_000_000)) }

func underPressure(conditions ...v1.NodeConditionType) func(*admission.Node) {
	return func(node *admission.Node) { node.Pressures = conditions }
}

func tainted(effect v1.TaintEffect) func(*admission.Node) {
	return func(node *admission.Node) {
		node.Object.Spec.Taints = []v1.Taint{{Key: "gone", Value: "5", Effect: effect}}
	}
}

func tolerating(toleration v1.Toleration) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Tolerations = []v1.Toleration{toleration} }
}

// The reasons and messages are compared with the kubelet's in parity/diff.
func TestCheck(t *testing.T) {
	type mutations = []func(*v1.Pod)
	tests := map[string]struct {
		pod    mutations
		node   func(*admission.Node)
		others []mutations
		reason string // "" if the pod is admitted
		field  string
	}{
		"plain": {},
		"ADM-7, too many pods": {
			others: []mutations{{}, {}, {}}, reason: "OutOfpods", field: "spec.nodeName",
		},
		"ADM-7, CPU": {
			pod: mutations{requests("cpu", "2")}, others: []mutations{{requests("cpu", "2500m")}},
			reason: "OutOfcpu", field: "spec.containers[*].resources.requests",
		},
		"ADM-7, CPU that is left": {pod: mutations{requests("cpu", "2")}, others: []mutations{{requests("cpu", "2")}}},
		"ADM-7, memory before storage": {
			pod: mutations{requests("ephemeral-storage", "1Ti", "memory", "1Ti")}, reason: "OutOfmemory", field: "requests",
		},
		"ADM-2, sysctl before resources":    {pod: mutations{requests("cpu", "100"), sysctl("kernel.msgmax")}, reason: "SysctlForbidden", field: "sysctls[0]"},
		"ADM-16, resources before the name": {pod: mutations{requests("cpu", "100"), heraldtest.OnNode("n2")}, reason: "OutOfcpu", field: "requests"},
		"ADM-7, overcommitted node":         {others: []mutations{{requests("cpu", "100")}}},
		"ADM-9, huge pages":                 {pod: mutations{requests("hugepages-2Mi", "4Mi")}},
		"ADM-9, too many huge pages":        {pod: mutations{requests("hugepages-2Mi", "6Mi")}, reason: "OutOfhugepages-2Mi", field: "requests"},
		"ADM-9, huge pages of another size": {pod: mutations{requests("hugepages-1Gi", "1Gi")}, reason: "OutOfhugepages-1Gi", field: "requests"},
		"ADM-9, cluster-level resource":     {pod: mutations{requests("example.com/licence", "5")}},
		"ADM-9, resource of the node": {
			pod: mutations{requests("example.com/dongle", "1")}, others: []mutations{{requests("example.com/dongle", "1")}},
			reason: "OutOfexample.com/dongle", field: "requests",
		},
		"ADM-26, critical": {pod: mutations{requests("cpu", "100", "memory", "1Ti"), critical}, reason: "OutOfcpu", field: "requests"},
		"ADM-28, critical, other reasons first": {
			pod: mutations{requests("cpu", "100"), critical, heraldtest.OnNode("n2")}, reason: "NodeName", field: "spec.nodeName",
		},
		"ADM-26, critical, huge pages":    {pod: mutations{requests("hugepages-2Mi", "6Mi"), critical}, reason: "OutOfhugepages-2Mi", field: "requests"},
		"ADM-26, static":                  {pod: mutations{requests("cpu", "100"), heraldtest.Static(podid.File)}, reason: "OutOfcpu", field: "requests"},
		"ADM-10, selector":                {pod: mutations{func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"disk": "ssd"} }}},
		"ADM-10, selector does not match": {pod: mutations{func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"disk": "hdd"} }}, reason: "NodeAffinity", field: "spec.nodeSelector"},
		"ADM-13, other node":              {pod: mutations{heraldtest.OnNode("n2")}, reason: "NodeName", field: "spec.nodeName"},
		"ADM-14, port": {
			pod: mutations{hostPort(80, "", "")}, others: []mutations{{hostPort(80, v1.ProtocolTCP, "10.0.0.1")}},
			reason: "NodePorts", field: "hostPort",
		},
		"ADM-14, port of a sidecar": {
			pod: mutations{hostPort(80, "", "10.0.0.1")}, others: []mutations{{hostPort(80, "", ""), asSidecar}}, reason: "NodePorts", field: "hostPort",
		},
		"ADM-14, other address":  {pod: mutations{hostPort(80, "", "10.0.0.2")}, others: []mutations{{hostPort(80, "", "10.0.0.1")}}},
		"ADM-14, other protocol": {pod: mutations{hostPort(80, v1.ProtocolUDP, "")}, others: []mutations{{hostPort(80, "", "")}}},
		"ADM-15, taint":          {node: tainted(v1.TaintEffectNoExecute), reason: "TaintToleration", field: "spec.tolerations"},
		"ADM-15, NoSchedule":     {node: tainted(v1.TaintEffectNoSchedule)},
		"ADM-15, static":         {node: tainted(v1.TaintEffectNoExecute), pod: mutations{heraldtest.Static(podid.File)}},
		"ADM-15, tolerated": {
			node: tainted(v1.TaintEffectNoExecute), pod: mutations{tolerating(v1.Toleration{Operator: v1.TolerationOpExists})},
		},
		"ADM-15, other value tolerated": {
			node: tainted(v1.TaintEffectNoExecute), pod: mutations{tolerating(v1.Toleration{Key: "gone", Value: "6"})},
			reason: "TaintToleration", field: "spec.tolerations",
		},
		"ADM-15, less tolerated": {
			node: tainted(v1.TaintEffectNoExecute),
			pod:  mutations{tolerating(v1.Toleration{Key: "gone", Operator: v1.TolerationOpLt, Value: "6"})},
		},
		"ADM-15, equal is not greater": {
			node: tainted(v1.TaintEffectNoExecute), reason: "TaintToleration", field: "spec.tolerations",
			pod: mutations{tolerating(v1.Toleration{Key: "gone", Operator: v1.TolerationOpGt, Value: "5"})},
		},
		"ADM-17, OS":       {pod: mutations{func(pod *v1.Pod) { pod.Spec.OS = &v1.PodOS{Name: v1.Windows} }}, reason: "PodOSNotSupported", field: "spec.os.name"},
		"ADM-17, OS label": {pod: mutations{func(pod *v1.Pod) { pod.Labels = map[string]string{v1.LabelOSStable: "windows"} }}, reason: "PodOSSelectorNodeLabelDoesNotMatch", field: "metadata.labels"},
		"ADM-18, groups policy": {
			node: func(node *admission.Node) { node.SupplementalGroupsPolicy = false },
			pod: mutations{func(pod *v1.Pod) {
				pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
			}},
			reason: "SupplementalGroupsPolicyNotSupported", field: "supplementalGroupsPolicy",
		},
		"ADM-19, safe":               {pod: mutations{sysctl("net/ipv4/tcp_syncookies")}},
		"ADM-19, unsafe":             {pod: mutations{sysctl("kernel.msgmax")}, reason: "SysctlForbidden", field: "spec.securityContext.sysctls[0]"},
		"ADM-19, allowed":            {pod: mutations{sysctl("net.core.somaxconn")}, node: func(node *admission.Node) { node.AllowedUnsafeSysctls = []string{"net.core.*"} }},
		"ADM-19, host network":       {pod: mutations{sysctl("net.ipv4.tcp_syncookies"), onHostNetwork}, reason: "SysctlForbidden", field: "sysctls[0]"},
		"ADM-19, host IPC":           {pod: mutations{sysctl("kernel.shm_rmid_forced"), onHostIPC}, reason: "SysctlForbidden", field: "sysctls[0]"},
		"ADM-19, other namespace":    {pod: mutations{sysctl("kernel.shm_rmid_forced"), onHostNetwork}},
		"ADM-21, AppArmor":           {pod: mutations{withAppArmor(v1.AppArmorProfileTypeRuntimeDefault)}, node: withoutAppArmor, reason: "AppArmor", field: "spec.containers[0].securityContext.appArmorProfile"},
		"ADM-21, unconfined":         {pod: mutations{withAppArmor(v1.AppArmorProfileTypeUnconfined)}, node: withoutAppArmor},
		"ADM-21, has been running":   {pod: mutations{withAppArmor(v1.AppArmorProfileTypeRuntimeDefault), func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning }}, node: withoutAppArmor},
		"ADM-22, memory, BestEffort": {node: underPressure(v1.NodeMemoryPressure), reason: "Evicted", field: "spec.nodeName"},
		"ADM-22, memory, Burstable":  {node: underPressure(v1.NodeMemoryPressure), pod: mutations{requests("cpu", "1m")}},
		"ADM-22, memory, tolerated": {
			node: underPressure(v1.NodeMemoryPressure),
			pod:  mutations{tolerating(v1.Toleration{Key: "node.kubernetes.io/memory-pressure", Operator: v1.TolerationOpExists})},
		},
		"ADM-22, disk": {
			node: underPressure(v1.NodeDiskPressure), reason: "Evicted", field: "spec.nodeName",
			pod: mutations{requests("cpu", "1m"), tolerating(v1.Toleration{Operator: v1.TolerationOpExists})},
		},
		"ADM-22, both, Burstable": {
			node: underPressure(v1.NodeMemoryPressure, v1.NodeDiskPressure), pod: mutations{requests("cpu", "1m")}, reason: "Evicted", field: "spec.nodeName",
		},
		"ADM-22, critical":     {node: underPressure(v1.NodeDiskPressure), pod: mutations{critical}},
		"ADM-22, static":       {node: underPressure(v1.NodePIDPressure), pod: mutations{heraldtest.Static(podid.File)}},
		"ADM-2, ADM-22, first": {node: underPressure(v1.NodeDiskPressure), pod: mutations{sysctl("kernel.msgmax")}, reason: "Evicted", field: "spec.nodeName"},
		"no node known":        {pod: mutations{heraldtest.OnNode("n2")}, node: func(node *admission.Node) { node.Object = nil }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := newNode()
			if test.node != nil {
				test.node(&node)
			}
			var others []*v1.Pod
			for _, other := range test.others {
				others = append(others, heraldtest.NewPod("other", other...))
			}
			rejection := admission.Check(heraldtest.NewPod("web", test.pod...), node, others)
			switch {
			case test.reason == "" && rejection == nil:
			case test.reason == "" || rejection == nil || rejection.Reason != test.reason:
				t.Errorf("got rejection %+v, want reason %q", rejection, test.reason)
			case !strings.Contains(rejection.Field, test.field) || rejection.Remedy == "" || rejection.Message == "":
				t.Errorf("got rejection %+v, want field %q, a message and a remedy", rejection, test.field)
			}
		})
	}
}

func withAppArmor(profile v1.AppArmorProfileType) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: profile}}
	}
}

func withoutAppArmor(node *admission.Node) { node.AppArmor = false }

func TestADM22_Message(t *testing.T) {
	node := newNode()
	node.Pressures = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}
	rejection := admission.Check(heraldtest.NewPod("web"), node, nil)
	if rejection == nil || rejection.Message != "The node had condition: [MemoryPressure DiskPressure]. " ||
		!strings.HasPrefix(rejection.Error(), rejection.Message+"spec.nodeName: use another node") {
		t.Errorf("got %v", rejection)
	}
}

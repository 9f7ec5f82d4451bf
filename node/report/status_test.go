package report_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/node/report"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// healthy returns a machine without pressure.
func healthy() report.MachineInfo {
	return report.MachineInfo{
		Hostname:  "host-a",
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")},
		System: v1.NodeSystemInfo{
			MachineID: "m", BootID: "b", KernelVersion: "6.1", KubeletVersion: "v1.36.3+herald", OperatingSystem: "linux", Architecture: "amd64",
		},
		CPUs:    4,
		Memory:  report.Amount{Total: 8 << 30, Available: 6 << 30},
		Storage: report.Amount{Total: 1000, Available: 500},
		Inodes:  report.Amount{Total: 1000, Available: 500},
		PIDs:    report.Amount{Total: 1000, Available: 500},
	}
}

func input() report.StatusInput {
	return report.StatusInput{Machine: healthy(), Eviction: eviction.DefaultPolicy(), MaxPods: 110, Now: noon}
}

func condition(conditionType v1.NodeConditionType, status v1.ConditionStatus, since time.Time) v1.NodeCondition {
	return v1.NodeCondition{Type: conditionType, Status: status, LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.NewTime(since)}
}

func find(conditions []v1.NodeCondition, conditionType v1.NodeConditionType) v1.NodeCondition {
	for _, c := range conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return v1.NodeCondition{}
}

func TestPressures_Thresholds(t *testing.T) {
	tests := map[string]struct {
		change func(*report.MachineInfo)
		want   v1.NodeConditionType
	}{
		"memory at threshold": {change: func(m *report.MachineInfo) { m.Memory.Available = 100 << 20 }},
		"memory below":        {func(m *report.MachineInfo) { m.Memory.Available = 100<<20 - 1 }, v1.NodeMemoryPressure},
		"disk at threshold":   {change: func(m *report.MachineInfo) { m.Storage.Available = 100 }},
		"disk below":          {func(m *report.MachineInfo) { m.Storage.Available = 99 }, v1.NodeDiskPressure},
		"inodes at threshold": {change: func(m *report.MachineInfo) { m.Inodes.Available = 50 }},
		"inodes below":        {func(m *report.MachineInfo) { m.Inodes.Available = 49 }, v1.NodeDiskPressure},
		"inodes unknown":      {change: func(m *report.MachineInfo) { m.Inodes = report.Amount{} }},
		"logs at threshold":   {change: func(m *report.MachineInfo) { m.Logs.Storage = report.Amount{Total: 1000, Available: 100} }},
		"logs below":          {func(m *report.MachineInfo) { m.Logs.Storage = report.Amount{Total: 1000, Available: 99} }, v1.NodeDiskPressure},
		"log inodes below":    {func(m *report.MachineInfo) { m.Logs.Inodes = report.Amount{Total: 1000, Available: 49} }, v1.NodeDiskPressure},
		"images at threshold": {change: func(m *report.MachineInfo) {
			m.ImageFS = report.FileSystem{Storage: report.Amount{Total: 1000, Available: 150}, Inodes: report.Amount{Total: 1000, Available: 50}}
		}},
		"images below": {func(m *report.MachineInfo) {
			m.ImageFS = report.FileSystem{Storage: report.Amount{Total: 1000, Available: 149}}
		}, v1.NodeDiskPressure},
		"image inodes below": {func(m *report.MachineInfo) {
			m.ImageFS = report.FileSystem{Inodes: report.Amount{Total: 1000, Available: 49}}
		}, v1.NodeDiskPressure},
		"containers at threshold": {change: func(m *report.MachineInfo) { // EVI-7: not with the images
			m.ContainerFS = report.FileSystem{Storage: report.Amount{Total: 1000, Available: 100}, Inodes: report.Amount{Total: 1000, Available: 50}}
		}},
		"containers below": {func(m *report.MachineInfo) {
			m.ContainerFS = report.FileSystem{Storage: report.Amount{Total: 1000, Available: 99}}
		}, v1.NodeDiskPressure},
		"PIDs below":    {func(m *report.MachineInfo) { m.PIDs.Available = 49 }, v1.NodePIDPressure},
		"nothing known": {change: func(m *report.MachineInfo) { *m = report.MachineInfo{} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			machine := healthy()
			test.change(&machine)
			var want []v1.NodeConditionType
			if test.want != "" {
				want = append(want, test.want)
			}
			policy := eviction.DefaultPolicy()
			_, verdict := policy.Observe(eviction.State{}, eviction.Input{Observations: report.Observations(machine), Now: noon})
			if diff := cmp.Diff(want, verdict.Conditions); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestF14_TransitionTime(t *testing.T) {
	earlier, later := noon.Add(-time.Hour), noon.Add(time.Hour)
	tests := map[string]struct {
		before []v1.NodeCondition
		want   time.Time
	}{
		"no condition":      {nil, noon},
		"same status":       {[]v1.NodeCondition{condition(v1.NodeReady, v1.ConditionTrue, earlier)}, earlier},
		"opposite status":   {[]v1.NodeCondition{condition(v1.NodeReady, v1.ConditionFalse, earlier)}, noon},
		"set by controller": {[]v1.NodeCondition{condition(v1.NodeReady, v1.ConditionUnknown, earlier)}, noon},
		"clock was ahead":   {[]v1.NodeCondition{condition(v1.NodeReady, v1.ConditionFalse, later)}, later},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := input()
			in.Previous = &v1.NodeStatus{Conditions: test.before}
			ready := find(report.Status(in).Conditions, v1.NodeReady)
			if !ready.LastTransitionTime.Time.Equal(test.want) || !ready.LastHeartbeatTime.Time.Equal(noon) || ready.Status != v1.ConditionTrue {
				t.Errorf("got %+v, want a transition at %s", ready, test.want)
			}
		})
	}
}

func TestStatus_Allocatable(t *testing.T) {
	in := input()
	in.Reserved = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("200")}
	got := map[v1.ResourceName]string{}
	for name, quantity := range report.Status(in).Allocatable {
		got[name] = quantity.String()
	}
	want := map[v1.ResourceName]string{"cpu": "3500m", "memory": "7068Mi", "ephemeral-storage": "900", "pods": "0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCGR32_CheckReserved(t *testing.T) {
	machine := report.MachineInfo{
		CPUs: 2, Memory: report.Amount{Total: 1 << 30}, Storage: report.Amount{Total: 1000},
	}
	tests := map[string]struct {
		resource v1.ResourceName
		reserved string
		want     string
	}{
		"all CPUs":                {v1.ResourceCPU, "2", ""},
		"too many CPUs":           {v1.ResourceCPU, "2001m", "cpu: 2001m reserved and 0 kept free are more than the machine's 2; reserve less"},
		"memory":                  {v1.ResourceMemory, "924Mi", ""},
		"memory of the threshold": {v1.ResourceMemory, "925Mi", "memory: 925Mi reserved and 100Mi kept free are more than the machine's 1Gi; reserve less"},
		"storage":                 {v1.ResourceEphemeralStorage, "900", ""},
		"too much storage":        {v1.ResourceEphemeralStorage, "901", "ephemeral-storage: 901 reserved and 100 kept free are more than the machine's 1k; reserve less"},
		"nothing":                 {v1.ResourceMemory, "0", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := report.CheckReserved(machine, v1.ResourceList{test.resource: resource.MustParse(test.reserved)}, new(eviction.DefaultPolicy()))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// apply applies the patch as the API server does.
func apply(t *testing.T, node *v1.Node, patch []byte) *v1.Node {
	t.Helper()
	before, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Node{})
	if err != nil {
		t.Fatal(err, string(patch))
	}
	var got v1.Node
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

// existingNode returns a node with content of others.
func existingNode() *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{"zone": "z"}},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{
			Capacity: v1.ResourceList{"example.test/gpu": resource.MustParse("2")},
			Conditions: []v1.NodeCondition{
				condition(v1.NodeNetworkUnavailable, v1.ConditionFalse, noon), condition(v1.NodeReady, v1.ConditionUnknown, noon),
			},
			Addresses: []v1.NodeAddress{
				{Type: v1.NodeExternalIP, Address: "198.51.100.1"}, {Type: v1.NodeInternalIP, Address: "192.0.2.99"},
			},
			NodeInfo: v1.NodeSystemInfo{Swap: &v1.NodeSwapStatus{}},
		},
	}
}

func TestI7_StatusPatch(t *testing.T) {
	node, in := existingNode(), input()
	in.Previous = &node.Status
	desired := report.Status(in)
	if !report.StatusChanged(&node.Status, desired) {
		t.Fatal("StatusChanged: got false, want true")
	}
	patch, err := report.StatusPatch(node, desired)
	if err != nil {
		t.Fatal(err)
	}
	got := apply(t, node, patch)
	if report.StatusChanged(&got.Status, desired) {
		t.Errorf("patched status differs from the desired one: %s", patch)
	}
	if diff := cmp.Diff(node.Status.Conditions[0], find(got.Status.Conditions, v1.NodeNetworkUnavailable)); diff != "" {
		t.Errorf("foreign condition (-before +after):\n%s", diff)
	}
	if gpus := got.Status.Capacity["example.test/gpu"]; gpus.Value() != 2 {
		t.Errorf("foreign resource: got %v", got.Status.Capacity)
	}
	addresses := []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeInternalIP, Address: "2001:db8::7"},
		{Type: v1.NodeHostName, Address: "host-a"}, {Type: v1.NodeExternalIP, Address: "198.51.100.1"},
	}
	if diff := cmp.Diff(addresses, got.Status.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	got.Status = node.Status
	if diff := cmp.Diff(node, got); diff != "" {
		t.Errorf("outside the status (-before +after):\n%s", diff)
	}
}

func TestStatusPatch_ResourceVersion(t *testing.T) {
	version := func(node *v1.Node, wanted *v1.NodeStatus) string {
		patch, err := report.StatusPatch(node, wanted)
		if err != nil {
			t.Fatal(err)
		}
		var got v1.Node
		if err := json.Unmarshal(patch, &struct{ Metadata *metav1.ObjectMeta }{&got.ObjectMeta}); err != nil {
			t.Fatal(err)
		}
		return got.ResourceVersion
	}
	node, wanted := existingNode(), report.Status(input())
	if got := version(node, wanted); got != "7" {
		t.Errorf("replaced addresses: got version %q, want 7", got)
	}
	node.Status.Addresses = wanted.Addresses
	if got := version(node, wanted); got != "" {
		t.Errorf("same addresses: got version %q, want none", got)
	}
}

func TestStatusChanged(t *testing.T) {
	in := input()
	reported := report.Status(in)
	in.Previous, in.Now = reported, noon.Add(time.Minute)
	tests := map[string]struct {
		change func(*report.StatusInput)
		want   bool
	}{
		"later time":            {change: func(*report.StatusInput) {}},
		"not ready":             {func(in *report.StatusInput) { in.NotReady = "the runtime is down" }, true},
		"pressure":              {func(in *report.StatusInput) { in.Pressures = []v1.NodeConditionType{v1.NodePIDPressure} }, true},
		"other address":         {func(in *report.StatusInput) { in.Machine.Addresses = in.Machine.Addresses[:1] }, true},
		"other boot":            {func(in *report.StatusInput) { in.Machine.System.BootID = "c" }, true},
		"more memory":           {func(in *report.StatusInput) { in.Machine.Memory.Total++ }, true},
		"less memory available": {change: func(in *report.StatusInput) { in.Machine.Memory.Available-- }},
		"other port":            {func(in *report.StatusInput) { in.Port = 10250 }, true},
		"handlers known":        {func(in *report.StatusInput) { in.Machine.RuntimeHandlers = handlers(true) }, true},
		"no handlers":           {change: func(in *report.StatusInput) { in.Machine.RuntimeHandlers = handlers() }},
		"features known":        {func(in *report.StatusInput) { in.Machine.Features = &v1.NodeFeatures{} }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := in
			test.change(&in)
			if got := report.StatusChanged(reported, report.Status(in)); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// handlers returns the default handler, or none. It supports recursive read-only mounts or not.
func handlers(recursiveReadOnly ...bool) []v1.NodeRuntimeHandler {
	all := []v1.NodeRuntimeHandler{}
	for i := range recursiveReadOnly {
		features := &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursiveReadOnly[i], UserNamespaces: new(false)}
		all = append(all, v1.NodeRuntimeHandler{Features: features})
	}
	return all
}

func TestStatusPatch_RuntimeHandlers(t *testing.T) {
	supported := &v1.NodeFeatures{SupplementalGroupsPolicy: new(true)}
	tests := map[string]struct {
		previous, reported, want []v1.NodeRuntimeHandler
		features, wantFeatures   *v1.NodeFeatures
	}{
		"first report":       {nil, handlers(true), handlers(true), supported, supported},
		"changed":            {handlers(false), handlers(true), handlers(true), supported, supported},
		"runtime downgraded": {handlers(true), handlers(), nil, nil, nil},
		"not known":          {handlers(true), nil, handlers(true), nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node, in := existingNode(), input()
			node.Status.RuntimeHandlers = test.previous
			in.Previous, in.Machine.RuntimeHandlers, in.Machine.Features = &node.Status, test.reported, test.features
			desired := report.Status(in)
			patch, err := report.StatusPatch(node, desired)
			if err != nil {
				t.Fatal(err)
			}
			got := apply(t, node, patch)
			if diff := cmp.Diff(test.want, got.Status.RuntimeHandlers, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("handlers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantFeatures, got.Status.Features); diff != "" {
				t.Errorf("features (-want +got):\n%s", diff)
			}
			if report.StatusChanged(&got.Status, desired) {
				t.Errorf("patched status differs from the desired one: %s", patch)
			}
		})
	}
}

func TestRuntimeVersion(t *testing.T) {
	for reported, want := range map[string]string{
		"2.4.2": "containerd://2.4.2", "v2.4.2": "containerd://2.4.2", "v2.0.0-rc.1+meta": "containerd://2.0.0-rc.1+meta",
		"1.6.20~ds1": "containerd://1.6.20", "1.7": "containerd://1.7", "devel": "containerd://devel", "": "containerd://",
	} {
		if got := report.RuntimeVersion("containerd", reported); got != want {
			t.Errorf("%q: got %s, want %s", reported, got, want)
		}
	}
}

// A node that serves web sockets says so: the API server passes them on only then.
func TestSRV44_DeclaredFeatures(t *testing.T) {
	for name, test := range map[string]struct{ features, want []string }{
		"no server": {nil, []string{"RestartAllContainersOnContainerExits"}},
		"server": {
			[]string{"ExtendWebSocketsToKubelet"}, []string{"ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := report.Status(report.StatusInput{Features: test.features})
			if !slices.Equal(got.DeclaredFeatures, test.want) {
				t.Errorf("got %v, want %v", got.DeclaredFeatures, test.want)
			}
		})
	}
}

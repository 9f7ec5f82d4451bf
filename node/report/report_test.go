package report_test

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/heraldnode/herald/node/report"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// healthy is a machine with enough of everything.
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
	return report.StatusInput{Machine: healthy(), Pressures: report.Pressures{}, MaxPods: 110, Now: noon}
}

func condition(kind v1.NodeConditionType, status v1.ConditionStatus, since time.Time) v1.NodeCondition {
	return v1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.NewTime(since)}
}

func find(conditions []v1.NodeCondition, kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{}
}

func TestPressureBeginsAtOnceAndEndsFiveMinutesAfterItWasLastSeen(t *testing.T) {
	short := healthy()
	short.Memory.Available = 99 << 20
	minutes := func(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Minute))) }
	var p report.Pressures
	for _, step := range []struct {
		facts report.MachineInfo
		at    time.Time
		want  bool
	}{
		{healthy(), minutes(0), false},
		{short, minutes(1), true},
		{healthy(), minutes(2), true},
		{short, minutes(4), true},
		{healthy(), minutes(8.9), true},
		{healthy(), minutes(9), false},
		{healthy(), minutes(10), false},
	} {
		p = p.Next(step.facts, nil, step.at)
		if _, got := p[v1.NodeMemoryPressure]; got != step.want {
			t.Fatalf("at %s: pressure is %t, want %t", step.at.Format(time.TimeOnly), got, step.want)
		}
	}
}

func TestWhatAnEarlierAgentToldOfPressureCountsAsJustSeen(t *testing.T) {
	told := []v1.NodeCondition{condition(v1.NodeDiskPressure, v1.ConditionTrue, noon.Add(-time.Hour))}
	p := report.Pressures(nil).Next(healthy(), told, noon)
	if _, holds := p[v1.NodeDiskPressure]; !holds {
		t.Fatal("the pressure ended with the agent that had told it")
	}
	if p = p.Next(healthy(), told, noon.Add(5*time.Minute)); len(p) != 0 {
		t.Fatalf("five minutes later there still is %v", p)
	}
}

func TestEachShortageHasItsThreshold(t *testing.T) {
	tests := map[string]struct {
		change func(*report.MachineInfo)
		want   v1.NodeConditionType
	}{
		"memory at the threshold": {change: func(f *report.MachineInfo) { f.Memory.Available = 100 << 20 }},
		"memory below it":         {func(f *report.MachineInfo) { f.Memory.Available = 100<<20 - 1 }, v1.NodeMemoryPressure},
		"disk at the threshold":   {change: func(f *report.MachineInfo) { f.Storage.Available = 100 }},
		"disk below it":           {func(f *report.MachineInfo) { f.Storage.Available = 99 }, v1.NodeDiskPressure},
		"inodes at the threshold": {change: func(f *report.MachineInfo) { f.Inodes.Available = 50 }},
		"inodes below it":         {func(f *report.MachineInfo) { f.Inodes.Available = 49 }, v1.NodeDiskPressure},
		"inodes are not counted":  {change: func(f *report.MachineInfo) { f.Inodes = report.Amount{} }},
		"process IDs below it":    {func(f *report.MachineInfo) { f.PIDs.Available = 49 }, v1.NodePIDPressure},
		"nothing is known":        {change: func(f *report.MachineInfo) { *f = report.MachineInfo{} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			facts := healthy()
			test.change(&facts)
			want := report.Pressures{}
			if test.want != "" {
				want[test.want] = noon
			}
			if diff := cmp.Diff(want, report.Pressures(nil).Next(facts, nil, noon)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestF14ATransitionTimeMovesOnlyWithTheStatusAndNeverBack(t *testing.T) {
	earlier, later := noon.Add(-time.Hour), noon.Add(time.Hour)
	tests := map[string]struct {
		before []v1.NodeCondition
		want   time.Time
	}{
		"nothing was told":           {nil, noon},
		"the same was told":          {[]v1.NodeCondition{condition(v1.NodeReady, v1.ConditionTrue, earlier)}, earlier},
		"the opposite was told":      {[]v1.NodeCondition{condition(v1.NodeReady, v1.ConditionFalse, earlier)}, noon},
		"a controller had given up":  {[]v1.NodeCondition{condition(v1.NodeReady, v1.ConditionUnknown, earlier)}, noon},
		"the clock was ahead before": {[]v1.NodeCondition{condition(v1.NodeReady, v1.ConditionFalse, later)}, later},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := input()
			in.Before = &v1.NodeStatus{Conditions: test.before}
			ready := find(report.Status(in).Conditions, v1.NodeReady)
			if !ready.LastTransitionTime.Time.Equal(test.want) || !ready.LastHeartbeatTime.Time.Equal(noon) || ready.Status != v1.ConditionTrue {
				t.Errorf("%+v; want a transition at %s", ready, test.want)
			}
		})
	}
}

func TestAllocatableIsWhatNeitherTheSystemNorTheThresholdsTake(t *testing.T) {
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

// apply does what the API server does with the patch.
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

// theirs is a node of which others have told something.
func theirs() *v1.Node {
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

func TestI7WhatOthersToldSurvivesAReport(t *testing.T) {
	node, in := theirs(), input()
	in.Before = &node.Status
	wanted := report.Status(in)
	if !report.Changed(&node.Status, wanted) {
		t.Fatal("there is nothing to tell")
	}
	patch, err := report.StatusPatch(node, wanted)
	if err != nil {
		t.Fatal(err)
	}
	got := apply(t, node, patch)
	if report.Changed(&got.Status, wanted) {
		t.Errorf("the patch does not say what is wanted: %s", patch)
	}
	if diff := cmp.Diff(node.Status.Conditions[0], find(got.Status.Conditions, v1.NodeNetworkUnavailable)); diff != "" {
		t.Errorf("another's condition (-was +is):\n%s", diff)
	}
	if gpus := got.Status.Capacity["example.test/gpu"]; gpus.Value() != 2 {
		t.Errorf("another's resource: %v", got.Status.Capacity)
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
		t.Errorf("outside of the status (-was +is):\n%s", diff)
	}
}

func TestOnlyAReportThatReplacesAddressesDependsOnTheVersion(t *testing.T) {
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
	node, wanted := theirs(), report.Status(input())
	if got := version(node, wanted); got != "7" {
		t.Errorf("the list is replaced whatever others wrote meanwhile: version %q", got)
	}
	node.Status.Addresses = wanted.Addresses
	if got := version(node, wanted); got != "" {
		t.Errorf("nothing is replaced, and yet version %q is asked for", got)
	}
}

func TestANodeThatSaysTheSameNeedsNoReport(t *testing.T) {
	in := input()
	told := report.Status(in)
	in.Before, in.Now = told, noon.Add(time.Minute)
	tests := map[string]struct {
		change func(*report.StatusInput)
		want   bool
	}{
		"a later time":     {change: func(*report.StatusInput) {}},
		"not ready":        {func(in *report.StatusInput) { in.NotReady = "the runtime is down" }, true},
		"a pressure":       {func(in *report.StatusInput) { in.Pressures = report.Pressures{v1.NodePIDPressure: noon} }, true},
		"another address":  {func(in *report.StatusInput) { in.Machine.Addresses = in.Machine.Addresses[:1] }, true},
		"another boot":     {func(in *report.StatusInput) { in.Machine.System.BootID = "c" }, true},
		"more memory":      {func(in *report.StatusInput) { in.Machine.Memory.Total++ }, true},
		"less memory left": {change: func(in *report.StatusInput) { in.Machine.Memory.Available-- }},
		"another port":     {func(in *report.StatusInput) { in.Port = 10250 }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := in
			test.change(&in)
			if got := report.Changed(told, report.Status(in)); got != test.want {
				t.Errorf("changed: %t", got)
			}
		})
	}
}

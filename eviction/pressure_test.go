package eviction_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/load"
)

var noon = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)

// node is a node over time.
type node struct {
	policy *eviction.Policy
	state  eviction.State
	layout eviction.Layout
	now    time.Time
}

func newNode(t *testing.T, settings eviction.Settings) *node {
	t.Helper()
	return &node{policy: newPolicy(t, settings), layout: eviction.OneDisk, now: noon}
}

// observe is a pass some time after the last one, with figures of that moment.
func (n *node) observe(after time.Duration, figures map[eviction.Signal]int64) eviction.Verdict {
	n.now = n.now.Add(after)
	return n.observeAt(n.now, figures)
}

func (n *node) observeAt(measured time.Time, figures map[eviction.Signal]int64) (verdict eviction.Verdict) {
	observations := eviction.Observations{}
	for signal, available := range figures {
		observations[signal] = eviction.Observation{Available: available, Capacity: 1000, At: measured}
	}
	n.state, verdict = n.policy.Observe(n.state, eviction.Input{Observations: observations, Layout: n.layout, Now: n.now})
	return verdict
}

func starved(verdict eviction.Verdict) eviction.Signal {
	if verdict.Starved == nil {
		return ""
	}
	return verdict.Starved.Threshold.Signal
}

type figures = map[eviction.Signal]int64

func TestEVI2_Signals(t *testing.T) {
	known := load.Known
	sample := &eviction.Sample{
		At: noon, Data: "data", Images: "images", Containers: "layers",
		Machine: load.MachineSample{
			MemoryAvailable: known(5), MemoryTotal: known(100), WorkingSet: known(99), PIDs: known(30), MaxPIDs: known(40),
			FileSystems: []load.FileSystem{
				{Name: "data", Available: known(1), Capacity: known(2), Inodes: known(10), InodeUsed: known(4)},
				{Name: "images", Available: known(3), Capacity: known(4)}, {Name: "layers", Available: known(1), Inodes: known(0)},
				{Name: "logs", Available: known(1), Capacity: known(1)},
			},
		},
		AllPods: load.Usage{At: noon.Add(time.Second), Available: known(0), WorkingSet: known(50)},
	}
	want := eviction.Observations{
		eviction.MemoryAvailable:            {Available: 5, Capacity: 100, At: noon}, // BUG-141: not 1
		eviction.AllocatableMemoryAvailable: {Available: 0, Capacity: 50, At: noon.Add(time.Second)},
		eviction.NodeFSAvailable:            {Available: 1, Capacity: 2, At: noon},
		eviction.NodeFSInodesFree:           {Available: 6, Capacity: 10, At: noon},
		eviction.ImageFSAvailable:           {Available: 3, Capacity: 4, At: noon},
		eviction.PIDAvailable:               {Available: 10, Capacity: 40, At: noon},
	}
	if diff := cmp.Diff(want, eviction.Observe(sample)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sample.Logs = "logs"
	if got := eviction.Observe(sample)[eviction.LogFSAvailable]; got.Capacity != 1 {
		t.Errorf("logs on their own disk: got %+v", got)
	}
}

// More in use than the limit allows is nothing available, not endlessly much.
func TestBUG145_WorkingSetAboveLimit(t *testing.T) {
	sample := &eviction.Sample{At: noon, Machine: load.MachineSample{PIDs: load.Known(50), MaxPIDs: load.Known(40)}}
	sample.AllPods = load.Usage{Available: load.Known(-10), WorkingSet: load.Known(60)}
	observed := eviction.Observe(sample)
	if got := observed[eviction.AllocatableMemoryAvailable]; got.Available != 0 || got.At != noon {
		t.Errorf("got %+v", got)
	}
	if got := observed[eviction.PIDAvailable]; got.Available != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestEVI5_MetBelowThresholdUntilMinimumReclaim(t *testing.T) {
	n := newNode(t, eviction.Settings{
		Hard: map[string]string{"nodefs.available": "100"}, MinimumReclaim: map[string]string{"nodefs.available": "5%"},
	})
	for i, step := range []struct {
		available int64
		want      eviction.Signal
	}{
		{100, ""}, {99, eviction.NodeFSAvailable}, {100, eviction.NodeFSAvailable}, {149, eviction.NodeFSAvailable}, {150, ""}, {149, ""},
	} {
		if got := starved(n.observe(time.Second, figures{eviction.NodeFSAvailable: step.available})); got != step.want {
			t.Errorf("step %d, %d available: got %q, want %q", i, step.available, got, step.want)
		}
	}
}

func TestEVI9_EVI28_UnknownFigures(t *testing.T) {
	n := newNode(t, eviction.Settings{Hard: map[string]string{"memory.available": "100", "imagefs.available": "100"}, IgnoreAllocatable: true})
	n.observe(0, figures{eviction.MemoryAvailable: 1, eviction.ImageFSAvailable: 1})
	verdict := n.observe(time.Minute, figures{eviction.ImageFSAvailable: 500})
	want := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}
	if diff := cmp.Diff(want, verdict.Conditions); diff != "" || starved(verdict) != "" {
		t.Errorf("got starved %q, conditions (-want +got):\n%s", starved(verdict), diff)
	}
	if diff := cmp.Diff([]eviction.Signal{eviction.MemoryAvailable}, verdict.Unobserved); diff != "" {
		t.Errorf("unobserved (-want +got):\n%s", diff)
	}
}

func TestEVI10_OldFigures(t *testing.T) {
	n := newNode(t, eviction.Settings{Hard: map[string]string{"memory.available": "100"}})
	if got := starved(n.observe(0, figures{eviction.MemoryAvailable: 1})); got != eviction.MemoryAvailable {
		t.Fatalf("got %q", got)
	}
	n.now = n.now.Add(10 * time.Second)
	verdict := n.observeAt(noon, figures{eviction.MemoryAvailable: 1})
	if starved(verdict) != "" || len(verdict.Conditions) != 1 {
		t.Errorf("figures of the last pass: got %+v, want the condition only", verdict)
	}
	if got := starved(n.observe(time.Second, figures{eviction.MemoryAvailable: 1})); got != eviction.MemoryAvailable {
		t.Errorf("new figures: got %q", got)
	}
}

func TestEVI11_SoftGracePeriod(t *testing.T) {
	n := newNode(t, eviction.Settings{
		Hard: map[string]string{}, Soft: map[string]string{"memory.available": "100"}, SoftGracePeriod: map[string]string{"memory.available": "30s"},
	})
	for i, step := range []struct {
		after     time.Duration
		available int64
		want      bool
	}{
		{0, 99, false}, {29 * time.Second, 99, false}, {time.Second, 99, true}, {time.Second, 100, false}, // a break starts over
		{time.Second, 99, false}, {29 * time.Second, 99, false}, {time.Second, 99, true},
	} {
		verdict := n.observe(step.after, figures{eviction.MemoryAvailable: step.available})
		if got := starved(verdict) != ""; got != step.want {
			t.Errorf("step %d: got %v, want %v", i, got, step.want)
		}
		if len(verdict.Conditions) != 1 { // EVI-12: at once
			t.Errorf("step %d: got conditions %v", i, verdict.Conditions)
		}
	}
}

func TestEVI12_ConditionsHold(t *testing.T) {
	n := newNode(t, eviction.Settings{})
	for i, step := range []struct {
		after     time.Duration
		available int64
		want      bool
	}{
		{0, 900, false}, {time.Second, 49, true}, {5*time.Minute - time.Second, 900, true}, {time.Second, 900, false}, {time.Second, 49, true},
		{time.Minute, 49, true}, {5*time.Minute - time.Second, 900, true}, {time.Second, 900, false},
	} {
		verdict := n.observe(step.after, figures{eviction.NodeFSInodesFree: step.available})
		if got := len(verdict.Conditions) == 1 && len(verdict.Enforced) == 1; got != step.want {
			t.Errorf("step %d: got %v, want %v", i, verdict.Conditions, step.want)
		}
	}
}

// A transition period of zero seconds is the default; the condition holds while it is observed, however short the period is.
func TestEVI12_ShortPeriod(t *testing.T) {
	n := newNode(t, eviction.Settings{PressureTransitionPeriod: 1})
	if got := n.observe(0, figures{eviction.NodeFSAvailable: 1}).Conditions; len(got) != 1 {
		t.Errorf("observed: got %v", got)
	}
	if got := n.observe(time.Second, figures{eviction.NodeFSAvailable: 900}).Conditions; len(got) != 0 {
		t.Errorf("over: got %v", got)
	}
}

func TestEVI13_MemoryFirst(t *testing.T) {
	n := newNode(t, eviction.Settings{Hard: map[string]string{
		"pid.available": "100", "memory.available": "100", "nodefs.available": "100", "nodefs.inodesFree": "100", "imagefs.available": "100",
	}})
	all := figures{
		eviction.MemoryAvailable: 1, eviction.AllocatableMemoryAvailable: 1, eviction.NodeFSAvailable: 1, eviction.ImageFSAvailable: 1,
		eviction.ContainerFSAvailable: 1, eviction.NodeFSInodesFree: 1, eviction.PIDAvailable: 1,
	}
	for _, want := range []eviction.Signal{
		eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable, eviction.NodeFSAvailable, eviction.ImageFSAvailable,
		eviction.ContainerFSAvailable, eviction.NodeFSInodesFree, eviction.PIDAvailable, "",
	} {
		verdict := n.observe(time.Second, all)
		if got := starved(verdict); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if len(verdict.Conditions) != 3 {
			t.Errorf("got conditions %v", verdict.Conditions)
		}
		delete(all, want)
	}
}

func TestEVI30_RestoredConditions(t *testing.T) {
	n := newNode(t, eviction.Settings{})
	n.state = n.state.Restore([]v1.NodeCondition{
		{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}, {Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse},
		{Type: v1.NodeReady, Status: v1.ConditionTrue},
	}, noon)
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{5*time.Minute - time.Second, 1}, {time.Second, 0}} {
		if got := n.observe(step.after, figures{eviction.NodeFSAvailable: 900}).Conditions; len(got) != step.want {
			t.Errorf("got %v, want %d", got, step.want)
		}
	}
}

// The default threshold of PIDs, and the disk of logs, are reported only.
func TestEVI3_ReportOnly(t *testing.T) {
	for _, signal := range []eviction.Signal{eviction.PIDAvailable, eviction.LogFSAvailable, eviction.LogFSInodesFree} {
		n := newNode(t, eviction.Settings{})
		verdict := n.observe(0, figures{signal: 1})
		if len(verdict.Conditions) != 1 || len(verdict.Enforced) != 0 || verdict.Starved != nil {
			t.Errorf("%s: got %+v", signal, verdict)
		}
	}
}

func TestEVI8_Layout(t *testing.T) {
	for want, devices := range map[eviction.Layout][][3]uint64{
		eviction.OneDisk: {{1, 1, 1}}, eviction.ImagesApart: {{1, 2, 2}}, eviction.OnlyImagesApart: {{1, 2, 1}, {1, 2, 3}},
	} {
		for _, d := range devices {
			if got := eviction.NewLayout(d[0], d[1], d[2]); got != want {
				t.Errorf("%v: got %q, want %q", d, got, want)
			}
		}
	}
	n := newNode(t, eviction.Settings{})
	n.layout = eviction.LayoutUnknown
	if verdict := n.observe(0, figures{eviction.NodeFSAvailable: 1}); verdict.Starved != nil || len(verdict.Conditions) != 1 {
		t.Errorf("unknown layout: got %+v, want the condition only", verdict)
	}
	if got := starved(n.observe(time.Second, figures{eviction.MemoryAvailable: 1})); got != eviction.MemoryAvailable {
		t.Errorf("unknown layout, memory: got %q", got)
	}
}

func TestEVI7_EVI14_ContainersAndReclaim(t *testing.T) {
	const c, i = eviction.ReclaimContainers, eviction.ReclaimImages
	for _, test := range []struct {
		layout    eviction.Layout
		signal    eviction.Signal
		available int64 // 100 is the threshold of data, 150 that of images
		want      string
	}{
		{eviction.OneDisk, eviction.NodeFSAvailable, 99, fmt.Sprint([]eviction.Reclaim{c, i})},
		{eviction.OneDisk, eviction.ImageFSAvailable, 149, fmt.Sprint([]eviction.Reclaim{c, i})},
		{eviction.OneDisk, eviction.ContainerFSAvailable, 99, fmt.Sprint([]eviction.Reclaim{c, i})},
		{eviction.OneDisk, eviction.ContainerFSAvailable, 149, "none"},
		{eviction.ImagesApart, eviction.NodeFSAvailable, 99, "[]"},
		{eviction.ImagesApart, eviction.ImageFSInodesFree, 49, fmt.Sprint([]eviction.Reclaim{c, i})},
		{eviction.ImagesApart, eviction.ContainerFSAvailable, 149, fmt.Sprint([]eviction.Reclaim{c, i})},
		{eviction.OnlyImagesApart, eviction.NodeFSInodesFree, 49, fmt.Sprint([]eviction.Reclaim{c})},
		{eviction.OnlyImagesApart, eviction.ImageFSAvailable, 149, fmt.Sprint([]eviction.Reclaim{i})},
		{eviction.OnlyImagesApart, eviction.ContainerFSAvailable, 99, fmt.Sprint([]eviction.Reclaim{c})},
		{eviction.OnlyImagesApart, eviction.ContainerFSAvailable, 149, "none"},
		{eviction.OneDisk, eviction.MemoryAvailable, 1, "[]"},
	} {
		n := newNode(t, eviction.Settings{})
		n.layout = test.layout
		got := "none"
		if verdict := n.observe(0, figures{test.signal: test.available}); verdict.Starved != nil {
			got = fmt.Sprint(verdict.Starved.Reclaim)
		}
		if got != test.want {
			t.Errorf("%s, %s: got %s, want %s", test.layout, test.signal, got, test.want)
		}
	}
}

// After a reclaim only the reclaimed resource matters, with its minimum reclaim.
func TestBUG144_EVI14_Resolved(t *testing.T) {
	n := newNode(t, eviction.Settings{
		Hard:           map[string]string{"nodefs.available": "100", "nodefs.inodesFree": "100"},
		MinimumReclaim: map[string]string{"nodefs.available": "50"},
	})
	low := n.observe(0, figures{eviction.NodeFSAvailable: 99, eviction.NodeFSInodesFree: 1}).Starved
	for available, want := range map[int64]bool{100: false, 149: false, 150: true} {
		after := eviction.Observations{
			eviction.NodeFSAvailable: {Available: available, Capacity: 1000}, eviction.NodeFSInodesFree: {Available: 1, Capacity: 1000},
		}
		if got := low.IsResolved(after); got != want {
			t.Errorf("%d available: got %v, want %v", available, got, want)
		}
	}
	if !low.IsResolved(nil) {
		t.Error("without a figure: a pod would be evicted")
	}
}

func TestIsNear(t *testing.T) {
	policy := newPolicy(t, eviction.Settings{})
	for available, want := range map[int64]bool{99: true, 149: true, 150: false} {
		got := policy.IsNear(eviction.Observations{eviction.NodeFSAvailable: {Available: available, Capacity: 1000}}, eviction.OneDisk)
		if got != want {
			t.Errorf("%d available: got %v, want %v", available, got, want)
		}
	}
	if policy.IsNear(eviction.Observations{eviction.PIDAvailable: {Available: 1, Capacity: 1000}}, eviction.OneDisk) {
		t.Error("near a threshold that is only reported")
	}
}

package transition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
}

func running(id string) v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(len(id))}}
}

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func terminated(id string, code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ContainerID: id, ExitCode: code, Reason: "Error", StartedAt: at(0), FinishedAt: at(2),
	}}
}

func withContainer(status v1.ContainerStatus) *v1.PodStatus {
	status.Name = "web"
	return &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{status}}
}

func TestAppendPod(t *testing.T) {
	runningStatus := withContainer(v1.ContainerStatus{State: running("1"), ContainerID: "1", Ready: true})
	for name, test := range map[string]struct {
		before, after *v1.PodStatus
		want          []transition.Change
	}{
		"first status": {
			after: &v1.PodStatus{Phase: v1.PodPending, ObservedGeneration: 1},
			want:  []transition.Change{{Field: "phase", To: "Pending"}},
		},
		"container ended": {
			before: runningStatus,
			after:  withContainer(v1.ContainerStatus{State: terminated("1", 3), ContainerID: "1", RestartCount: 0}),
			want: []transition.Change{
				{Container: "web", Field: "state", From: "running", To: "terminated", Reason: "Error", Exit: &transition.Exit{Code: 3, RanMs: 2000}},
				{Container: "web", Field: "ready", From: "true", To: "false"},
			},
		},
		"container ended and waits": {
			before: runningStatus,
			after: withContainer(v1.ContainerStatus{
				State: waiting("CrashLoopBackOff"), LastTerminationState: terminated("1", 3), ContainerID: "1",
			}),
			want: []transition.Change{
				{Container: "web", Field: "lastState", From: "running", To: "terminated", Reason: "Error", Exit: &transition.Exit{Code: 3, RanMs: 2000}},
				{Container: "web", Field: "state", From: "running", To: "waiting", Reason: "CrashLoopBackOff"},
				{Container: "web", Field: "ready", From: "true", To: "false"},
			},
		},
		"container ended and was started again": {
			before: runningStatus,
			after: withContainer(v1.ContainerStatus{
				State: running("22"), LastTerminationState: terminated("1", 3), ContainerID: "2", RestartCount: 1, Ready: true,
			}),
			want: []transition.Change{
				{Container: "web", Field: "lastState", From: "running", To: "terminated", Reason: "Error", Exit: &transition.Exit{Code: 3, RanMs: 2000}},
				{Container: "web", Field: "state", From: "running", To: "running"},
				{Container: "web", Field: "restartCount", From: "0", To: "1"},
			},
		},
		"known end becomes the last state": {
			before: withContainer(v1.ContainerStatus{State: terminated("1", 3), ContainerID: "1"}),
			after: withContainer(v1.ContainerStatus{
				State: waiting("CrashLoopBackOff"), LastTerminationState: terminated("1", 3), ContainerID: "1",
			}),
			want: []transition.Change{{Container: "web", Field: "state", From: "terminated", To: "waiting", Reason: "CrashLoopBackOff"}},
		},
		"condition": {
			before: &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
			after: &v1.PodStatus{Conditions: []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: strings.Repeat("é", 200)},
			}},
			want: []transition.Change{{
				Field: "Ready", From: "True", To: "False", Reason: "ContainersNotReady", Message: strings.Repeat("é", 128),
			}},
		},
		"resources": {
			before: runningStatus,
			after: withContainer(v1.ContainerStatus{
				State: running("1"), ContainerID: "1", Ready: true,
				Resources: &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			}),
			want: []transition.Change{{Container: "web", Field: "resources"}},
		},
		"container is gone": {
			before: runningStatus, after: &v1.PodStatus{Phase: v1.PodRunning},
			want: []transition.Change{{Container: "web", Field: "state", From: "running"}},
		},
		"transition time": {
			before: &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, LastTransitionTime: at(1)}}},
			after:  &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, LastTransitionTime: at(2)}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := transition.AppendPod(nil, test.before, test.after)
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(transition.Exit{}, "ContainerID")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// drawStatus draws a status from few values, so that two of them often share some.
func drawStatus(t *rapid.T) *v1.PodStatus {
	pick := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
	status := &v1.PodStatus{
		Phase: v1.PodPhase(pick("phase", "Pending", "Running", "Failed")), Reason: pick("reason", "", "Evicted"),
		Message: pick("message", "", "x"), PodIP: pick("ip", "", "10.0.0.1"), HostIP: pick("host", "", "10.0.0.2"),
		ObservedGeneration: int64(rapid.IntRange(0, 1).Draw(t, "generation")),
	}
	if rapid.Bool().Draw(t, "started") {
		status.StartTime = new(at(rapid.IntRange(0, 1).Draw(t, "start")))
	}
	for _, conditionType := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.DisruptionTarget} {
		if rapid.Bool().Draw(t, "has condition") {
			status.Conditions = append(status.Conditions, v1.PodCondition{
				Type: conditionType, Status: v1.ConditionStatus(pick("status", "True", "False")), Reason: pick("why", "", "R"),
			})
		}
	}
	status.InitContainerStatuses = drawContainers(t, "init")
	status.ContainerStatuses = drawContainers(t, "web", "log")
	status.EphemeralContainerStatuses = drawContainers(t, "debug")
	return status
}

func drawContainers(t *rapid.T, names ...string) []v1.ContainerStatus {
	var statuses []v1.ContainerStatus
	for _, name := range names {
		if !rapid.Bool().Draw(t, "has "+name) {
			continue
		}
		state := func(label string) v1.ContainerState {
			id := fmt.Sprint(rapid.IntRange(1, 3).Draw(t, label+" instance"))
			return rapid.SampledFrom([]v1.ContainerState{
				{}, waiting("ContainerCreating"), waiting("CrashLoopBackOff"), running(id), terminated(id, 0), terminated(id, 3),
			}).Draw(t, label)
		}
		statuses = append(statuses, v1.ContainerStatus{
			Name: name, State: state("state"), LastTerminationState: state("last state"), Ready: rapid.Bool().Draw(t, "ready"),
			RestartCount: int32(rapid.IntRange(0, 2).Draw(t, "restarts")), ContainerID: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "id"),
			Image:   rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "image"),
			Started: rapid.SampledFrom([]*bool{nil, new(false), new(true)}).Draw(t, "started"),
		})
	}
	return statuses
}

func TestAppendPod_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawStatus(t), drawStatus(t)
		changes := transition.AppendPod(nil, before, after)
		if !derive.Equal(before, after) && len(changes) == 0 {
			t.Error("the statuses differ, but there is no change")
		}
		if same := transition.AppendPod(nil, before, before.DeepCopy()); len(same) != 0 {
			t.Errorf("equal statuses have changes %v", same)
		}
		for i, change := range changes {
			if change.Field == "" || len(change.Message) > transition.MaxMessage || !utf8.ValidString(change.Message) {
				t.Errorf("invalid change %+v", change)
			}
			if slices.ContainsFunc(changes[:i], func(other transition.Change) bool {
				return other.Field == change.Field && other.Container == change.Container
			}) {
				t.Errorf("two changes of %s %s", change.Container, change.Field)
			}
		}
		checkReverse(t, changes, transition.AppendPod(nil, after, before))
		prefix := []transition.Change{{Field: "kept"}}
		if appended := transition.AppendPod(prefix, before, after); len(appended) != len(changes)+1 || appended[0].Field != "kept" {
			t.Errorf("got %v, want the prefix and the changes", appended)
		}
	})
}

// checkReverse checks that the way back swaps From and To of each value. States have no single way back: an end is reported only once.
func checkReverse(t *rapid.T, changes, reverse []transition.Change) {
	for _, change := range changes {
		switch change.Field {
		case transition.FieldState, transition.FieldLastState, transition.FieldOther, transition.FieldResources, transition.FieldReason,
			transition.FieldPhase:
			continue
		}
		isGone := func(other transition.Change) bool {
			return other.Container == change.Container && other.Field == transition.FieldState && other.To == ""
		}
		if change.Container != "" && slices.ContainsFunc(reverse, isGone) {
			continue
		}
		if !slices.ContainsFunc(reverse, func(other transition.Change) bool {
			return other.Container == change.Container && other.Field == change.Field && other.From == change.To && other.To == change.From
		}) {
			t.Errorf("%+v has no way back in %+v", change, reverse)
		}
	}
}

func TestAppendPod_Allocations(t *testing.T) {
	before := withContainer(v1.ContainerStatus{State: running("1"), ContainerID: "1", Ready: true})
	after := withContainer(v1.ContainerStatus{State: running("1"), ContainerID: "1"})
	changes := make([]transition.Change, 0, 16)
	if allocations := testing.AllocsPerRun(100, func() { changes = transition.AppendPod(changes[:0], before, after) }); allocations > 0 {
		t.Errorf("got %v allocations, want 0", allocations)
	}
}

func TestPodSummary(t *testing.T) {
	pod := heraldtest.NewPod("web")
	for want, status := range map[string]*v1.PodStatus{
		"Pending 0/1":                        {Phase: v1.PodPending},
		"Evicted 0/1":                        {Phase: v1.PodFailed, Reason: "Evicted"},
		"Running 1/1":                        withContainer(v1.ContainerStatus{State: running("1"), Ready: true}),
		"Running 1/1 (1 restart)":            withContainer(v1.ContainerStatus{State: running("1"), Ready: true, RestartCount: 1}),
		"CrashLoopBackOff 0/1 (13 restarts)": withContainer(v1.ContainerStatus{State: waiting("CrashLoopBackOff"), RestartCount: 13}),
		"Error 0/1":                          withContainer(v1.ContainerStatus{State: terminated("1", 3)}),
	} {
		if got := transition.PodSummary(pod, status); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	restored := &v1.Pod{ObjectMeta: pod.ObjectMeta}
	status := withContainer(v1.ContainerStatus{State: running("1"), Ready: true})
	if got := transition.PodSummary(restored, status); got != "Running 1/1" {
		t.Errorf("without a spec: got %q, want Running 1/1", got)
	}
}

func TestPodCause(t *testing.T) {
	api := heraldtest.NewPod("web")
	static := heraldtest.NewPod("web", heraldtest.Static(podid.File))
	deleted := heraldtest.NewPod("web", func(pod *v1.Pod) { pod.DeletionTimestamp = new(at(0)) })
	gated := heraldtest.NewPod("web", func(pod *v1.Pod) { pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}} })
	exit := func(reason plan.StopReason) []transition.Change {
		return []transition.Change{{Container: "web", Field: "state", To: "terminated", Exit: &transition.Exit{Code: 137, StoppedBy: string(reason)}}}
	}
	one := func(change transition.Change) []transition.Change { return []transition.Change{change} }
	state := func(to, reason string) []transition.Change {
		return one(transition.Change{Container: "web", Field: "state", To: to, Reason: reason})
	}
	for name, test := range map[string]struct {
		facts transition.PodFacts
		want  transition.Cause
	}{
		"restored":                   {transition.PodFacts{Via: "restore", Pod: api}, "restart"},
		"first version of a run":     {transition.PodFacts{Via: "worker", Pod: api, Resumed: true, Changes: exit("")}, "restart"},
		"earlier start time":         {transition.PodFacts{Via: "adopt", Pod: api}, "api"},
		"deletion requested":         {transition.PodFacts{Via: "worker", Pod: deleted, Changes: one(transition.Change{Field: "deletion"})}, "api"},
		"removed":                    {transition.PodFacts{Via: "remove", Pod: api, Changes: one(transition.Change{Field: "removed"})}, "api"},
		"manifest removed":           {transition.PodFacts{Via: "remove", Pod: static, Changes: one(transition.Change{Field: "removed"})}, "spec"},
		"evicted":                    {transition.PodFacts{Via: "worker", Pod: api, After: &v1.PodStatus{Reason: "Evicted"}, Changes: append(exit("PodTerminating"), transition.Change{Field: "phase"})}, "node"},
		"liveness probe":             {transition.PodFacts{Via: "worker", Pod: api, Changes: exit(plan.StopLivenessProbe)}, "probe"},
		"startup probe":              {transition.PodFacts{Via: "worker", Pod: api, Changes: exit(plan.StopStartupProbe)}, "probe"},
		"definition changed":         {transition.PodFacts{Via: "worker", Pod: api, Changes: exit(plan.StopDefinitionChanged)}, "spec"},
		"stopped with a deleted pod": {transition.PodFacts{Via: "worker", Pod: deleted, Changes: exit(plan.StopPodTerminating)}, "api"},
		"stopped with a static pod":  {transition.PodFacts{Via: "worker", Pod: static, Changes: exit(plan.StopPodTerminating)}, "spec"},
		"stopped by a deadline":      {transition.PodFacts{Via: "worker", Pod: api, Changes: exit(plan.StopPodTerminating)}, "agent"},
		"stopped by an action":       {transition.PodFacts{Via: "worker", Pod: api, Changes: exit(plan.StopAction)}, "action"},
		"stopped by a user":          {transition.PodFacts{Via: "worker", Pod: api, Changes: exit(plan.StopUser)}, "user"},
		"restart of all containers":  {transition.PodFacts{Via: "worker", Pod: api, Changes: exit(plan.StopRestartAll)}, "agent"},
		"ended by itself":            {transition.PodFacts{Via: "worker", Pod: api, Changes: exit("")}, "runtime"},
		"probe result":               {transition.PodFacts{Via: "probe", Pod: api, Changes: one(transition.Change{Field: "ready"})}, "probe"},
		"rejected":                   {transition.PodFacts{Via: "worker", Pod: api, After: &v1.PodStatus{Reason: "OutOfpods"}, Changes: one(transition.Change{Field: "phase"})}, "agent"},
		"started":                    {transition.PodFacts{Via: "worker", Pod: api, Changes: state("running", "")}, "agent"},
		"back-off":                   {transition.PodFacts{Via: "worker", Pod: api, Changes: state("waiting", "CrashLoopBackOff")}, "agent"},
		"pull failed":                {transition.PodFacts{Via: "worker", Pod: api, Changes: state("waiting", "ErrImagePull")}, "runtime"},
		"readiness gate":             {transition.PodFacts{Via: "worker", Pod: gated, Changes: one(transition.Change{Field: "Ready", To: "True"})}, "api"},
		"generation":                 {transition.PodFacts{Via: "worker", Pod: api, Changes: one(transition.Change{Field: "generation"})}, "spec"},
		"address":                    {transition.PodFacts{Via: "worker", Pod: api, Changes: one(transition.Change{Field: "address"})}, "agent"},
		"no change":                  {transition.PodFacts{Via: "terminate", Pod: api}, "agent"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.facts.After == nil {
				test.facts.After = &v1.PodStatus{}
			}
			if got := transition.PodCause(test.facts); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAppendNode(t *testing.T) {
	node := func(change func(*v1.Node)) *v1.Node {
		n := &v1.Node{Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{
				{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: at(0)},
				{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse},
			},
			Addresses:   []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}, {Type: v1.NodeHostName, Address: "n1"}},
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")},
			NodeInfo:    v1.NodeSystemInfo{BootID: "a"},
		}}
		if change != nil {
			change(n)
		}
		return n
	}
	for name, test := range map[string]struct {
		change  func(*v1.Node)
		want    []transition.Change
		summary string
	}{
		"heartbeat": {func(n *v1.Node) { n.Status.Conditions[0].LastHeartbeatTime = at(10) }, nil, "Ready"},
		"not ready": {
			func(n *v1.Node) {
				n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = v1.ConditionFalse, "KubeletNotReady"
			},
			[]transition.Change{{Field: "Ready", From: "True", To: "False", Reason: "KubeletNotReady"}}, "NotReady",
		},
		"pressure": {
			func(n *v1.Node) { n.Status.Conditions[1].Status = v1.ConditionTrue },
			[]transition.Change{{Field: "DiskPressure", From: "False", To: "True"}}, "Ready DiskPressure",
		},
		"cordoned": {
			func(n *v1.Node) { n.Spec.Unschedulable = true },
			[]transition.Change{{Field: "unschedulable", From: "false", To: "true"}}, "Ready,SchedulingDisabled",
		},
		"tainted": {
			func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}} },
			[]transition.Change{{Field: "taints", To: "k:NoSchedule"}}, "Ready",
		},
		"address": {
			func(n *v1.Node) { n.Status.Addresses[0].Address = "10.0.0.3" },
			[]transition.Change{{Field: "address", From: "10.0.0.2", To: "10.0.0.3"}}, "Ready",
		},
		"more CPUs": {
			func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("4") },
			[]transition.Change{{Field: "allocatable", From: "cpu=2", To: "cpu=4"}}, "Ready",
		},
		"rebooted": {
			func(n *v1.Node) { n.Status.NodeInfo.BootID = "b" }, []transition.Change{{Field: "bootID", From: "a", To: "b"}}, "Ready",
		},
		"condition is gone": {
			func(n *v1.Node) { n.Status.Conditions = n.Status.Conditions[:1] },
			[]transition.Change{{Field: "DiskPressure", From: "False"}}, "Ready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			after := node(test.change)
			if diff := cmp.Diff(test.want, transition.AppendNode(nil, node(nil), after)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if summary := transition.NodeSummary(after); summary != test.summary {
				t.Errorf("got summary %q, want %q", summary, test.summary)
			}
		})
	}
	if first := transition.AppendNode(nil, nil, node(nil)); len(first) != 5 {
		t.Errorf("first version: got %v, want conditions, address, allocatable and boot ID", first)
	}
}

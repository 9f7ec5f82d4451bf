package patch_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/heraldnode/herald/status/patch"
)

var noon = metav1.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// apply does what the API server does with the patch.
func apply(t interface {
	Helper()
	Fatal(args ...any)
}, r patch.Request, to *v1.Pod) *v1.Pod {
	t.Helper()
	body, err := patch.Build(r)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, body, v1.Pod{})
	if err != nil {
		t.Fatal(err, string(body))
	}
	var got v1.Pod
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

func condition(kind v1.PodConditionType, status v1.ConditionStatus, reason string) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: noon}
}

func byType(conditions []v1.PodCondition) map[v1.PodConditionType]v1.PodCondition {
	m := map[v1.PodConditionType]v1.PodCondition{}
	for _, c := range conditions {
		m[c.Type] = c
	}
	return m
}

func TestSM60ThePatchNamesTheObjectItIsMeantFor(t *testing.T) {
	tests := map[string]struct {
		version string
		want    string
	}{
		"always by UID":                     {want: `{"uid":"u1"}`},
		"and by version where it must hold": {version: "42", want: `{"uid":"u1","resourceVersion":"42"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := patch.Build(patch.Request{UID: "u1", ResourceVersion: test.version, Status: &v1.PodStatus{}})
			if err != nil {
				t.Fatal(err)
			}
			var sent struct{ Metadata json.RawMessage }
			if err := json.Unmarshal(body, &sent); err != nil {
				t.Fatal(err)
			}
			if string(sent.Metadata) != test.want {
				t.Fatalf("metadata is %s, want %s", sent.Metadata, test.want)
			}
		})
	}
}

func TestSM63ForeignConditionsAndFieldsSurviveAnyPatch(t *testing.T) {
	object := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1", Labels: map[string]string{"team": "shop"}},
		Status: v1.PodStatus{
			NominatedNodeName: "n2", QOSClass: v1.PodQOSBurstable,
			ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "gpu"}},
			Conditions:            []v1.PodCondition{condition("example.com/gate", v1.ConditionTrue, "Theirs"), condition(v1.PodReady, v1.ConditionTrue, "")},
		},
	}
	want := object.DeepCopy()
	want.Status.Phase = v1.PodRunning
	want.Status.Conditions[1] = condition(v1.PodReady, v1.ConditionFalse, "ContainersNotReady")

	got := apply(t, patch.Request{UID: "u1", Status: &v1.PodStatus{
		Phase:      v1.PodRunning,
		Conditions: []v1.PodCondition{condition(v1.PodReady, v1.ConditionFalse, "ContainersNotReady")},
	}}, object)

	if diff := cmp.Diff(byType(want.Status.Conditions), byType(got.Status.Conditions)); diff != "" {
		t.Error(diff)
	}
	want.Status.Conditions, got.Status.Conditions = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSM64AnOwnedConditionThatIsGoneDisappears(t *testing.T) {
	object := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{
		condition(v1.PodResizePending, v1.ConditionTrue, "Deferred"), condition("example.com/gate", v1.ConditionTrue, ""),
	}}}
	got := apply(t, patch.Request{
		Status: &v1.PodStatus{}, Absent: []v1.PodConditionType{v1.PodResizePending, v1.PodResizeInProgress},
	}, object)
	if kept := byType(got.Status.Conditions); len(kept) != 1 || kept["example.com/gate"].Status != v1.ConditionTrue {
		t.Fatalf("conditions are %v", got.Status.Conditions)
	}
}

func TestAConditionThatTurnsLeavesNoOldReasonBehind(t *testing.T) {
	object := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{condition(v1.PodReady, v1.ConditionFalse, "ContainersNotReady")}}}
	got := apply(t, patch.Request{Status: &v1.PodStatus{Conditions: []v1.PodCondition{condition(v1.PodReady, v1.ConditionTrue, "")}}}, object)
	if c := got.Status.Conditions[0]; c.Status != v1.ConditionTrue || c.Reason != "" {
		t.Fatalf("condition is %+v", c)
	}
}

func TestAddressesAreReplacedNeverAddedTo(t *testing.T) {
	object := &v1.Pod{Status: v1.PodStatus{
		PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, HostIP: "192.0.2.1", HostIPs: []v1.HostIP{{IP: "192.0.2.1"}},
	}}
	got := apply(t, patch.Request{Status: &v1.PodStatus{PodIP: "10.0.0.2", PodIPs: []v1.PodIP{{IP: "10.0.0.2"}}}}, object)
	want := v1.PodStatus{PodIP: "10.0.0.2", PodIPs: []v1.PodIP{{IP: "10.0.0.2"}}}
	if got.Status.PodIP != want.PodIP || !cmp.Equal(got.Status.PodIPs, want.PodIPs) || len(got.Status.HostIPs) != 0 || got.Status.HostIP != "" {
		t.Fatalf("addresses are %v %v %v %v", got.Status.PodIP, got.Status.PodIPs, got.Status.HostIP, got.Status.HostIPs)
	}
}

func TestAMessageOfAnyBytesIsValidJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := rapid.String().Draw(t, "message")
		got := apply(t, patch.Request{UID: "u", Status: &v1.PodStatus{Message: message, Reason: "x\u2028\"\\\x01"}}, &v1.Pod{})
		if got.Status.Message != message {
			t.Fatalf("%q became %q", message, got.Status.Message)
		}
	})
}

// The base never matters: whatever the object said before, afterwards it says what the patch states.
func TestBUG2TheSamePatchIsRightOnAnyBase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		desired := status(t, "desired")
		owned := []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodScheduled}
		var absent []v1.PodConditionType
		for _, kind := range owned {
			if _, has := byType(desired.Conditions)[kind]; !has {
				absent = append(absent, kind)
			}
		}
		base := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u")}, Status: *status(t, "base")}
		base.Status.Conditions = append(base.Status.Conditions, condition("example.com/gate", v1.ConditionTrue, "Theirs"))

		got := apply(t, patch.Request{UID: "u", Status: desired, Absent: absent}, base)

		want := byType(append(desired.DeepCopy().Conditions, condition("example.com/gate", v1.ConditionTrue, "Theirs")))
		if diff := cmp.Diff(want, byType(got.Status.Conditions)); diff != "" {
			t.Fatal(diff)
		}
		got.Status.Conditions = desired.Conditions
		if desired.ObservedGeneration == 0 {
			got.Status.ObservedGeneration = 0
		}
		if diff := cmp.Diff(desired, &got.Status); diff != "" {
			t.Fatal(diff)
		}
	})
}

func status(t *rapid.T, label string) *v1.PodStatus {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label+"."+name) }
	s := &v1.PodStatus{
		Phase: v1.PodPhase(pick("phase", "Pending", "Running", "Failed")), Reason: pick("reason", "", "Evicted"),
		Message: pick("message", "", "é\n"), ObservedGeneration: rapid.Int64Range(0, 3).Draw(t, label+".generation"),
	}
	if ip := pick("ip", "", "10.0.0.1", "10.0.0.2"); ip != "" {
		s.PodIP, s.PodIPs = ip, []v1.PodIP{{IP: ip}}
	}
	if rapid.Bool().Draw(t, label+".started") {
		s.StartTime = &noon
	}
	for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodInitialized} {
		if state := pick(string(kind), "", "True", "False"); state != "" {
			s.Conditions = append(s.Conditions, condition(kind, v1.ConditionStatus(state), pick(string(kind)+".reason", "", "X")))
		}
	}
	for _, name := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(t, label+".containers")] {
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{
			Name: name, Ready: rapid.Bool().Draw(t, label+"."+name), State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: noon}},
		})
	}
	return s
}

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

// apply applies the patch as the API server does.
func apply(t interface {
	Helper()
	Fatal(args ...any)
}, request patch.Request, object *v1.Pod) *v1.Pod {
	t.Helper()
	body, err := patch.Build(request)
	if err != nil {
		t.Fatal(err)
	}
	base, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(base, body, v1.Pod{})
	if err != nil {
		t.Fatal(err, string(body))
	}
	var got v1.Pod
	if err := json.Unmarshal(patched, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

func newCondition(conditionType v1.PodConditionType, status v1.ConditionStatus, reason string) v1.PodCondition {
	return v1.PodCondition{Type: conditionType, Status: status, Reason: reason, LastTransitionTime: noon}
}

func byType(conditions []v1.PodCondition) map[v1.PodConditionType]v1.PodCondition {
	byType := map[v1.PodConditionType]v1.PodCondition{}
	for _, condition := range conditions {
		byType[condition.Type] = condition
	}
	return byType
}

func TestSM60_ObjectIdentity(t *testing.T) {
	tests := map[string]struct {
		resourceVersion string
		want            string
	}{
		"UID":                      {want: `{"uid":"u1"}`},
		"UID and resource version": {resourceVersion: "42", want: `{"uid":"u1","resourceVersion":"42"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := patch.Build(patch.Request{UID: "u1", ResourceVersion: test.resourceVersion, Status: &v1.PodStatus{}})
			if err != nil {
				t.Fatal(err)
			}
			var sent struct{ Metadata json.RawMessage }
			if err := json.Unmarshal(body, &sent); err != nil {
				t.Fatal(err)
			}
			if string(sent.Metadata) != test.want {
				t.Fatalf("got metadata %s, want %s", sent.Metadata, test.want)
			}
		})
	}
}

func TestSM63_ForeignFieldsSurvive(t *testing.T) {
	object := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1", Labels: map[string]string{"team": "shop"}},
		Status: v1.PodStatus{
			NominatedNodeName: "n2", QOSClass: v1.PodQOSBurstable,
			ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "gpu"}},
			Conditions:            []v1.PodCondition{newCondition("example.com/gate", v1.ConditionTrue, "Theirs"), newCondition(v1.PodReady, v1.ConditionTrue, "")},
		},
	}
	want := object.DeepCopy()
	want.Status.Phase = v1.PodRunning
	want.Status.Conditions[1] = newCondition(v1.PodReady, v1.ConditionFalse, "ContainersNotReady")

	got := apply(t, patch.Request{UID: "u1", Status: &v1.PodStatus{
		Phase:      v1.PodRunning,
		Conditions: []v1.PodCondition{newCondition(v1.PodReady, v1.ConditionFalse, "ContainersNotReady")},
	}}, object)

	if diff := cmp.Diff(byType(want.Status.Conditions), byType(got.Status.Conditions)); diff != "" {
		t.Error(diff)
	}
	want.Status.Conditions, got.Status.Conditions = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSM64_AbsentCondition(t *testing.T) {
	object := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{
		newCondition(v1.PodResizePending, v1.ConditionTrue, "Deferred"), newCondition("example.com/gate", v1.ConditionTrue, ""),
	}}}
	got := apply(t, patch.Request{
		Status: &v1.PodStatus{}, Absent: []v1.PodConditionType{v1.PodResizePending, v1.PodResizeInProgress},
	}, object)
	if left := byType(got.Status.Conditions); len(left) != 1 || left["example.com/gate"].Status != v1.ConditionTrue {
		t.Fatalf("got conditions %v, want only example.com/gate", got.Status.Conditions)
	}
}

func TestBuild_ConditionReasonIsCleared(t *testing.T) {
	object := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{newCondition(v1.PodReady, v1.ConditionFalse, "ContainersNotReady")}}}
	got := apply(t, patch.Request{Status: &v1.PodStatus{Conditions: []v1.PodCondition{newCondition(v1.PodReady, v1.ConditionTrue, "")}}}, object)
	if ready := got.Status.Conditions[0]; ready.Status != v1.ConditionTrue || ready.Reason != "" {
		t.Fatalf("got %+v, want True without a reason", ready)
	}
}

func TestBuild_AddressesAreReplaced(t *testing.T) {
	object := &v1.Pod{Status: v1.PodStatus{
		PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, HostIP: "192.0.2.1", HostIPs: []v1.HostIP{{IP: "192.0.2.1"}},
	}}
	got := apply(t, patch.Request{Status: &v1.PodStatus{PodIP: "10.0.0.2", PodIPs: []v1.PodIP{{IP: "10.0.0.2"}}}}, object)
	want := v1.PodStatus{PodIP: "10.0.0.2", PodIPs: []v1.PodIP{{IP: "10.0.0.2"}}}
	if got.Status.PodIP != want.PodIP || !cmp.Equal(got.Status.PodIPs, want.PodIPs) || len(got.Status.HostIPs) != 0 || got.Status.HostIP != "" {
		t.Fatalf("got addresses %v %v %v %v, want only 10.0.0.2", got.Status.PodIP, got.Status.PodIPs, got.Status.HostIP, got.Status.HostIPs)
	}
}

func TestBuild_AnyMessageIsValidJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := rapid.String().Draw(t, "message")
		got := apply(t, patch.Request{UID: "u", Status: &v1.PodStatus{Message: message, Reason: "x\u2028\"\\\x01"}}, &v1.Pod{})
		if got.Status.Message != message {
			t.Fatalf("got %q, want %q", got.Status.Message, message)
		}
	})
}

// TestBUG2_AnyBase checks that the result does not depend on the status that the object had before.
func TestBUG2_AnyBase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		desired := drawStatus(t, "desired")
		owned := []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodScheduled}
		var absent []v1.PodConditionType
		for _, conditionType := range owned {
			if _, found := byType(desired.Conditions)[conditionType]; !found {
				absent = append(absent, conditionType)
			}
		}
		base := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u")}, Status: *drawStatus(t, "base")}
		base.Status.Conditions = append(base.Status.Conditions, newCondition("example.com/gate", v1.ConditionTrue, "Theirs"))

		got := apply(t, patch.Request{UID: "u", Status: desired, Absent: absent}, base)

		want := byType(append(desired.DeepCopy().Conditions, newCondition("example.com/gate", v1.ConditionTrue, "Theirs")))
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

func drawStatus(t *rapid.T, label string) *v1.PodStatus {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label+"."+name) }
	status := &v1.PodStatus{
		Phase: v1.PodPhase(pick("phase", "Pending", "Running", "Failed")), Reason: pick("reason", "", "Evicted"),
		Message: pick("message", "", "é\n"), ObservedGeneration: rapid.Int64Range(0, 3).Draw(t, label+".generation"),
	}
	if ip := pick("ip", "", "10.0.0.1", "10.0.0.2"); ip != "" {
		status.PodIP, status.PodIPs = ip, []v1.PodIP{{IP: ip}}
	}
	if rapid.Bool().Draw(t, label+".started") {
		status.StartTime = &noon
	}
	for _, conditionType := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodInitialized} {
		if state := pick(string(conditionType), "", "True", "False"); state != "" {
			status.Conditions = append(status.Conditions, newCondition(conditionType, v1.ConditionStatus(state), pick(string(conditionType)+".reason", "", "X")))
		}
	}
	for _, name := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(t, label+".containers")] {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: name, Ready: rapid.Bool().Draw(t, label+"."+name), State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: noon}},
		})
	}
	return status
}

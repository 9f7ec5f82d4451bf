package report_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/node/report"
)

func registration() report.Registration {
	return report.Registration{
		Name: "a", Labels: map[string]string{"pool": "edge"}, ProviderID: "cloud://1",
		Taints: []v1.Taint{{Key: "new", Effect: v1.TaintEffectNoSchedule}},
	}
}

var machineLabels = map[string]string{
	"kubernetes.io/hostname": "host-a", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
	"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
}

func TestNewNode(t *testing.T) {
	node := report.NewNode(registration(), "host-a", report.Status(input()))
	want := map[string]string{"pool": "edge"}
	for name, value := range machineLabels {
		want[name] = value
	}
	if diff := cmp.Diff(want, node.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if node.Name != "a" || node.Spec.ProviderID != "cloud://1" || len(node.Spec.Taints) != 1 || len(node.Status.Conditions) != 4 {
		t.Errorf("got %+v", node)
	}
}

func TestAdoptionPatch(t *testing.T) {
	node := existingNode()
	node.Labels["kubernetes.io/arch"] = "arm64"
	patch, err := report.AdoptionPatch(node, registration(), "host-a", healthy().System)
	if err != nil {
		t.Fatal(err)
	}
	want := node.DeepCopy()
	want.Spec.ProviderID = "cloud://1"
	for name, value := range machineLabels {
		want.Labels[name] = value
	}
	adopted := apply(t, node, patch)
	if diff := cmp.Diff(want, adopted); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if patch, err := report.AdoptionPatch(adopted, registration(), "host-a", healthy().System); patch != nil || err != nil {
		t.Errorf("second adoption: got patch %s, error %v, want none", patch, err)
	}
	adopted.Spec.ProviderID = "cloud://other"
	if patch, err := report.AdoptionPatch(adopted, registration(), "host-a", healthy().System); patch != nil || err != nil {
		t.Errorf("other provider ID: got patch %s, error %v, want none", patch, err)
	}
}

func TestStatusEvents(t *testing.T) {
	first := report.Status(input())
	worse := input()
	worse.NotReady, worse.Pressures = "the runtime is down", []v1.NodeConditionType{v1.NodeDiskPressure}
	worse.Machine.System.BootID = "c"
	tests := map[string]struct {
		previous, current *v1.NodeStatus
		want              []string
	}{
		"first report": {
			&v1.NodeStatus{}, first, []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"},
		},
		"no change":         {first, first, nil},
		"worse":             {first, report.Status(worse), []string{"Rebooted", "NodeHasDiskPressure", "NodeNotReady"}},
		"foreign condition": {&v1.NodeStatus{}, &v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: "Theirs"}}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, event := range report.StatusEvents("a", test.previous, test.current) {
				got = append(got, event.Reason)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchedulingEvents(t *testing.T) {
	schedulable := existingNode()
	cordoned := schedulable.DeepCopy()
	cordoned.Spec.Unschedulable = true
	other := cordoned.DeepCopy()
	other.UID = "another"
	if got := report.SchedulingEvents(schedulable, cordoned); len(got) != 1 || got[0].Reason != "NodeNotSchedulable" {
		t.Errorf("cordoned: got %v", got)
	}
	if got := report.SchedulingEvents(cordoned, schedulable); len(got) != 1 || got[0].Reason != "NodeSchedulable" {
		t.Errorf("uncordoned: got %v", got)
	}
	if got := report.SchedulingEvents(schedulable, other); got != nil {
		t.Errorf("other object: got %v, want none", got)
	}
}

func TestF14_LeaseClockSetBack(t *testing.T) {
	node := existingNode()
	lease := report.RenewedLease(nil, node, 40*time.Second, noon)
	if *lease.Spec.HolderIdentity != "a" || *lease.Spec.LeaseDurationSeconds != 40 || lease.Namespace != "kube-node-lease" || lease.Name != "a" {
		t.Errorf("new lease: got %+v", lease)
	}
	lease.ResourceVersion = "5"
	back := report.RenewedLease(lease, node, 40*time.Second, noon.Add(-time.Hour))
	if !back.Spec.RenewTime.After(lease.Spec.RenewTime.Time) || back.ResourceVersion != "5" {
		t.Errorf("got renew time %s after %s, version %q", back.Spec.RenewTime, lease.Spec.RenewTime, back.ResourceVersion)
	}
	forward := report.RenewedLease(back, node, 40*time.Second, noon.Add(time.Minute))
	if !forward.Spec.RenewTime.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("got renew time %s", forward.Spec.RenewTime)
	}
}

func TestRenewedLease_Owner(t *testing.T) {
	node := existingNode()
	lease := report.RenewedLease(nil, node, 40*time.Second, noon)
	node.UID = "another"
	lease = report.RenewedLease(lease, node, 40*time.Second, noon)
	want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: types.UID("another")}}
	if diff := cmp.Diff(want, lease.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

func TestHostIPs(t *testing.T) {
	parse := func(texts ...string) []netip.Addr {
		var list []netip.Addr
		for _, text := range texts {
			list = append(list, netip.MustParseAddr(text))
		}
		return list
	}
	tests := map[string]struct{ addresses, want []netip.Addr }{
		"none":              {},
		"one":               {parse("192.0.2.1"), parse("192.0.2.1")},
		"two of one family": {parse("192.0.2.1", "192.0.2.2"), parse("192.0.2.1")},
		"IPv6 first":        {parse("2001:db8::1", "192.0.2.1", "192.0.2.2"), parse("2001:db8::1", "192.0.2.1")},
		"IPv6 last":         {parse("192.0.2.1", "192.0.2.2", "2001:db8::1"), parse("192.0.2.1", "2001:db8::1")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, report.HostIPs(test.addresses), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

package admission_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/admission"
	"github.com/heraldnode/herald/heraldtest"
)

// More than the node has is refused like more than others leave: the reason is the kubelet's, and nothing else tells them apart.
func TestRSZ8_MoreThanTheNode(t *testing.T) {
	other := heraldtest.NewPod("other", requests("cpu", "1"))
	critical := func(pod *v1.Pod) { pod.Spec.Priority = new(int32(2_000_000_000)) }
	tests := map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"fits":               {heraldtest.NewPod("web", requests("cpu", "3")), ""},
		"beside the other":   {heraldtest.NewPod("web", requests("cpu", "3500m")), "Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000"},
		"more than the node": {heraldtest.NewPod("web", requests("cpu", "5")), "Node didn't have enough resource: cpu, requested: 5000, used: 1000, capacity: 4000"},
		"nothing is preempted for a critical pod": {
			heraldtest.NewPod("web", requests("cpu", "3500m"), critical), "Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if rejection := admission.Check(test.pod, newNode(), []*v1.Pod{other}); rejection != nil {
				got = rejection.Message
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

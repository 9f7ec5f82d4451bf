package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/admission"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
)

func prioritized(priority int32) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Priority = &priority }
}

// guaranteed makes the limits equal to the requests.
func guaranteed(pod *v1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = pod.Spec.Containers[0].Resources.Requests.DeepCopy()
}

func named(name string, mutations ...func(*v1.Pod)) *v1.Pod {
	return heraldtest.NewPod(name, mutations...)
}

// The choice is compared with the kubelet's in parity/diff.
func TestADM26_Victims(t *testing.T) {
	big := named("big", requests("cpu", "3", "memory", "1Gi"))
	small := named("small", requests("cpu", "1", "memory", "1Gi"))
	smaller := named("smaller", requests("cpu", "1", "memory", "512Mi"))
	important := named("important", requests("cpu", "3", "memory", "1Gi"), critical)
	solid := named("solid", requests("cpu", "1", "memory", "1Gi"), guaranteed)
	idle := named("idle")
	tests := map[string]struct {
		pod    []func(*v1.Pod)
		others []*v1.Pod
		want   string // names of victims, or a part of the error
	}{
		"fits":                          {pod: []func(*v1.Pod){requests("cpu", "1"), critical}, others: []*v1.Pod{big}},
		"not critical":                  {pod: []func(*v1.Pod){requests("cpu", "4")}, others: []*v1.Pod{big}},
		"the one that leaves nothing":   {pod: []func(*v1.Pod){requests("cpu", "3"), critical}, others: []*v1.Pod{small, big}, want: "big"},
		"the smaller one of two":        {pod: []func(*v1.Pod){requests("cpu", "3"), critical}, others: []*v1.Pod{small, smaller}, want: "smaller"},
		"burstable before guaranteed":   {pod: []func(*v1.Pod){requests("cpu", "3"), critical}, others: []*v1.Pod{solid, small}, want: "small"},
		"guaranteed if nothing else":    {pod: []func(*v1.Pod){requests("cpu", "4"), critical}, others: []*v1.Pod{solid, small}, want: "small solid"},
		"best effort does not help":     {pod: []func(*v1.Pod){requests("cpu", "3"), critical}, others: []*v1.Pod{idle, small, smaller}, want: "smaller"},
		"not a critical one":            {pod: []func(*v1.Pod){requests("cpu", "2"), critical}, others: []*v1.Pod{important, idle}, want: "q: 1000"},
		"a critical one of less weight": {pod: []func(*v1.Pod){requests("cpu", "2"), prioritized(2_000_001_000)}, others: []*v1.Pod{important, idle}, want: "important"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := named("pod", test.pod...)
			var lacks []admission.Shortage
			if rejection := admission.Check(pod, newNode(), test.others); rejection != nil {
				lacks = rejection.Shortages
			}
			victims, err := admission.Victims(pod, lacks, test.others)
			var names []string
			for _, victim := range victims {
				names = append(names, victim.Name)
			}
			if err != nil {
				names = []string{err.Error()}
			}
			if got := strings.Join(names, " "); got != test.want && (err == nil || !strings.Contains(got, test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestADM26_Enough checks that the victims free enough, that no critical pod of the same priority is among them, and that none of a class
// could stay.
func TestADM26_Enough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var others []*v1.Pod
		for i := range rapid.IntRange(0, 6).Draw(t, "others") {
			mutations := []func(*v1.Pod){}
			if cpu := rapid.IntRange(0, 3).Draw(t, "cpu"); cpu > 0 {
				mutations = append(mutations, requests("cpu", fmt.Sprint(cpu), "memory", fmt.Sprintf("%dGi", rapid.IntRange(1, 3).Draw(t, "memory"))))
			}
			if rapid.Bool().Draw(t, "guaranteed") {
				mutations = append(mutations, guaranteed)
			}
			if rapid.IntRange(0, 4).Draw(t, "critical") == 0 {
				mutations = append(mutations, critical)
			}
			others = append(others, named(fmt.Sprint("other-", i), mutations...))
		}
		node := newNode()
		pod := named("pod", critical, requests("cpu", fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "wanted")), "memory", "2Gi"))
		rejection := admission.Check(pod, node, others)
		if rejection == nil {
			return
		}
		victims, err := admission.Victims(pod, rejection.Shortages, others)
		if err != nil {
			return
		}
		isVictim := func(other *v1.Pod) bool { return slices.Contains(victims, other) }
		for _, victim := range victims {
			if derive.IsCritical(victim) {
				t.Fatalf("%s is critical", victim.Name)
			}
		}
		if rejection := admission.Check(pod, node, slices.DeleteFunc(slices.Clone(others), isVictim)); rejection != nil {
			t.Fatalf("not enough: %v", rejection)
		}
	})
}

func TestADM4_WaitsForEndingPods(t *testing.T) {
	pod, big := named("pod", requests("cpu", "4")), named("big", requests("cpu", "3"))
	rejection, victims := admission.CheckWithPreemption(pod, newNode(), admission.Others{Ending: []*v1.Pod{big}})
	if rejection == nil || !rejection.IsTemporary() || !strings.Contains(rejection.Error(), "it waits for ") || len(victims) != 0 {
		t.Errorf("got %v, victims %v; want a pod that waits", rejection, victims)
	}
	rejection, _ = admission.CheckWithPreemption(pod, newNode(), admission.Others{Ending: []*v1.Pod{named("other")}, Staying: []*v1.Pod{big}})
	if rejection == nil || rejection.IsTemporary() {
		t.Errorf("got %v; want a rejection, since the end of the other does not help", rejection)
	}
}

func TestADM27_OverduePods(t *testing.T) {
	overdue := admission.Others{Overdue: []*v1.Pod{named("big", requests("cpu", "3"))}}
	if rejection, victims := admission.CheckWithPreemption(named("pod", requests("cpu", "4"), critical), newNode(), overdue); rejection != nil || victims != nil {
		t.Errorf("got %v, victims %v; want a critical pod admitted although the other has not ended", rejection, victims)
	}
	if rejection, _ := admission.CheckWithPreemption(named("pod", requests("cpu", "4")), newNode(), overdue); rejection == nil || rejection.IsTemporary() {
		t.Errorf("got %v; want a rejection", rejection)
	}
}

func TestADM28_NoVictims(t *testing.T) {
	others := admission.Others{Staying: []*v1.Pod{named("important", requests("cpu", "3"), critical)}}
	rejection, victims := admission.CheckWithPreemption(named("pod", requests("cpu", "4"), critical), newNode(), others)
	if rejection == nil || rejection.Reason != "OutOfcpu" || rejection.IsTemporary() || len(victims) != 0 ||
		!strings.Contains(rejection.Error(), "no set of running pods found to reclaim resources: [(res: cpu, q: 3000), ]") {
		t.Errorf("got %v, victims %v", rejection, victims)
	}
}

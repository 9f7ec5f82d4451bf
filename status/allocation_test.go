package status_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestSM87APodIsAllocatedAllThatItAskedFor(t *testing.T) {
	m, _ := openManager(t, t.TempDir())
	asked := podWithRequests("u")
	asked.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	if got, known := m.Allocated(asked); known || got != asked {
		t.Fatalf("before anything was granted: %v, %v", got, known)
	}
	if err := m.SetPodAllocation(asked); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*v1.PodSpec){
		"nothing":                func(*v1.PodSpec) {},
		"a number's spelling":    func(s *v1.PodSpec) { s.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("0.1") },
		"a request":              func(s *v1.PodSpec) { s.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("2") },
		"a limit":                func(s *v1.PodSpec) { s.Containers[1].Resources.Limits = askFor("1") },
		"an init container's":    func(s *v1.PodSpec) { s.InitContainers[0].Resources.Requests = nil },
		"those of the whole pod": func(s *v1.PodSpec) { s.Resources.Requests = askFor("3") },
	} {
		wants := asked.DeepCopy()
		change(&wants.Spec)
		got, known := m.Allocated(wants)
		same := what == "nothing" || what == "a number's spelling"
		if !known || (got == wants) != same {
			t.Errorf("changed %s: known %v, the pod itself %v", what, known, got == wants)
		}
		if back, _ := m.Allocated(got); back != got {
			t.Errorf("changed %s: what was allocated is not what it is allocated", what)
		}
	}
}

func askFor(cpu string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
}

package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// newResourceList parses name and quantity pairs: "cpu", "100m", "memory", "1Gi".
func newResourceList(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func requireQuantities(t *testing.T, got, want v1.ResourceList) {
	t.Helper()
	if !derive.Equal(&v1.PodStatus{AllocatedResources: got}, &v1.PodStatus{AllocatedResources: want}) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// An API server that has stored what another agent sent stores it again.
func TestPH39_PodResourcesKept(t *testing.T) {
	pod := newPod(always, newContainer("a"))
	pod.Spec.Containers[0].Resources.Requests = newResourceList("cpu", "50m", "memory", "1Mi")
	pod.Status.Phase = v1.PodRunning
	published := &v1.PodStatus{Phase: v1.PodRunning, Resources: &v1.ResourceRequirements{
		Requests: newResourceList("cpu", "50m", "memory", "1Mi"), Limits: newResourceList("memory", "7Mi"),
	}, AllocatedResources: newResourceList("cpu", "50m", "memory", "1Mi")}
	in := derive.Input{Pod: pod, Observed: newRuntimePod(newInstance("a", 1, observed.Running)), Previous: published}
	status := computeStatus(in)
	requireQuantities(t, status.AllocatedResources, published.AllocatedResources)
	requireQuantities(t, status.Resources.Requests, published.Resources.Requests)
	requireQuantities(t, status.Resources.Limits, published.Resources.Limits)
	in.Previous = &v1.PodStatus{Phase: v1.PodRunning}
	if status := computeStatus(in); status.Resources != nil || status.AllocatedResources != nil {
		t.Errorf("nothing published: got %v, %v", status.Resources, status.AllocatedResources)
	}
}

func TestPH39_ContainerResources(t *testing.T) {
	type resources = v1.ResourceRequirements
	whole := resources{Requests: newResourceList("cpu", "100m", "memory", "1Mi"), Limits: newResourceList("cpu", "200m", "memory", "2Mi")}
	tiny := resources{Requests: newResourceList("cpu", "1m"), Limits: newResourceList("cpu", "5m")}
	before := func(id int) statuses {
		return statuses{{
			Name: "a", ContainerID: containerID("a", id).String(), State: runningState(),
			Resources: &resources{Requests: newResourceList("cpu", "70m", "memory", "3Mi"), Limits: newResourceList("cpu", "170m", "memory", "4Mi")},
		}}
	}
	tests := map[string]struct {
		allocated resources
		state     observed.State
		says      *observed.Resources
		before    statuses
		want      resources
	}{
		"not running":                    {allocated: whole, state: observed.Created, says: &observed.Resources{MilliCPULimit: new(int64(50))}, want: whole},
		"nothing reported":               {allocated: whole, state: observed.Running, want: whole},
		"reported":                       {allocated: whole, state: observed.Running, says: &observed.Resources{MilliCPURequest: new(int64(50)), MilliCPULimit: new(int64(60)), MemoryRequestBytes: new(int64(5)), MemoryLimitBytes: new(int64(6))}, want: resources{Requests: newResourceList("cpu", "50m", "memory", "5"), Limits: newResourceList("cpu", "60m", "memory", "6")}},
		"both below the minimum":         {allocated: tiny, state: observed.Running, says: &observed.Resources{MilliCPURequest: new(int64(2)), MilliCPULimit: new(int64(10))}, want: tiny},
		"just above the minimum":         {allocated: tiny, state: observed.Running, says: &observed.Resources{MilliCPURequest: new(int64(3)), MilliCPULimit: new(int64(11))}, want: resources{Requests: newResourceList("cpu", "3m"), Limits: newResourceList("cpu", "11m")}},
		"not reported, published before": {allocated: whole, state: observed.Running, before: before(1), want: *before(1)[0].Resources},
		"published by another instance":  {allocated: whole, state: observed.Running, before: before(9), want: whole},
		"nothing allocated":              {state: observed.Running, says: &observed.Resources{MilliCPULimit: new(int64(50))}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec, c := newContainer("a"), newInstance("a", 1, test.state)
			spec.Resources, c.Resources = *test.allocated.DeepCopy(), test.says
			in := derive.Input{Pod: newPod(always, spec), Observed: newRuntimePod(c), Previous: &v1.PodStatus{ContainerStatuses: test.before}}
			got := computeStatus(in).ContainerStatuses[0]
			requireQuantities(t, got.Resources.Requests, test.want.Requests)
			requireQuantities(t, got.Resources.Limits, test.want.Limits)
			requireQuantities(t, got.AllocatedResources, test.allocated.Requests)
			requireQuantities(t, in.Pod.Spec.Containers[0].Resources.Requests, test.allocated.Requests)
		})
	}
}

func TestStatus_PodResourcesDisabled(t *testing.T) {
	got := computeStatus(derive.Input{Pod: newPod(always, newContainer("a"))})
	if got.Resources != nil || got.AllocatedResources != nil {
		t.Fatalf("got %v and %v, want none", got.Resources, got.AllocatedResources)
	}
}

func TestStatus_PodResourcesPending(t *testing.T) {
	needs := func(c v1.Container, cpu string) v1.Container {
		c.Resources = v1.ResourceRequirements{Requests: newResourceList("cpu", cpu), Limits: newResourceList("cpu", cpu)}
		return c
	}
	whole := &v1.ResourceRequirements{Requests: newResourceList("cpu", "9", "example.com/gpu", "4"), Limits: newResourceList("cpu", "10", "hugepages-2Mi", "2Mi")}
	tests := map[string]struct {
		init             []v1.Container
		whole            *v1.ResourceRequirements
		overhead         v1.ResourceList
		requests, limits v1.ResourceList
	}{
		"regular containers":              {requests: newResourceList("cpu", "3"), limits: newResourceList("cpu", "3")},
		"large init container":            {init: []v1.Container{needs(newContainer("i"), "5")}, requests: newResourceList("cpu", "5"), limits: newResourceList("cpu", "5")},
		"small init container":            {init: []v1.Container{needs(newContainer("i"), "1")}, requests: newResourceList("cpu", "3"), limits: newResourceList("cpu", "3")},
		"sidecar":                         {init: []v1.Container{needs(newSidecar("s"), "1")}, requests: newResourceList("cpu", "4"), limits: newResourceList("cpu", "4")},
		"init container after a sidecar":  {init: []v1.Container{needs(newSidecar("s"), "2"), needs(newContainer("i"), "4")}, requests: newResourceList("cpu", "6"), limits: newResourceList("cpu", "6")},
		"init container before a sidecar": {init: []v1.Container{needs(newContainer("i"), "4"), needs(newSidecar("s"), "2")}, requests: newResourceList("cpu", "5"), limits: newResourceList("cpu", "5")},
		"pod level":                       {whole: whole, requests: newResourceList("cpu", "9"), limits: newResourceList("cpu", "10", "hugepages-2Mi", "2Mi")},
		"overhead":                        {overhead: newResourceList("cpu", "1", "memory", "1Mi"), requests: newResourceList("cpu", "4", "memory", "1Mi"), limits: newResourceList("cpu", "4")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(always, needs(newContainer("a"), "1"), needs(newContainer("b"), "2")), test.init...)
			pod.Spec.Resources, pod.Spec.Overhead = test.whole, test.overhead
			got := computeStatus(derive.Input{Pod: pod, Node: derive.NodeInfo{PodResources: true}})
			requireQuantities(t, got.AllocatedResources, test.requests)
			requireQuantities(t, got.Resources.Requests, test.requests)
			requireQuantities(t, got.Resources.Limits, test.limits)
		})
	}
}

func TestStatus_PodResourcesRunning(t *testing.T) {
	spec := newContainer("a")
	spec.Resources.Requests = newResourceList("cpu", "100m", "memory", "1Mi")
	pod := newPod(always, spec)
	pod.Status.Phase = v1.PodRunning
	in := derive.Input{Pod: pod, Observed: newRuntimePod(), Node: derive.NodeInfo{PodResources: true}}

	in.Observed.Resources = &observed.Resources{MilliCPURequest: new(int64(50)), MilliCPULimit: new(int64(60)), MemoryLimitBytes: new(int64(7))}
	spoken := computeStatus(in)
	requireQuantities(t, spoken.Resources.Requests, newResourceList("cpu", "50m", "memory", "1Mi"))
	requireQuantities(t, spoken.Resources.Limits, newResourceList("cpu", "60m", "memory", "7"))

	in.Observed.Resources = nil
	in.Previous = &spoken
	in.Previous.Phase = v1.PodRunning
	silent := computeStatus(in)
	requireQuantities(t, silent.Resources.Requests, spoken.Resources.Requests)
	requireQuantities(t, silent.Resources.Limits, spoken.Resources.Limits)
}

func TestPH48_QOSClass(t *testing.T) {
	const guaranteed, burstable, bestEffort = v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort
	with := func(requests, limits v1.ResourceList) v1.Container {
		c := newContainer("a")
		c.Resources = v1.ResourceRequirements{Requests: requests, Limits: limits}
		return c
	}
	full := newResourceList("cpu", "1", "memory", "1Gi")
	fixed := newPod(always, with(full, full))
	fixed.Status.QOSClass = burstable
	ofWhole := func(requests, limits v1.ResourceList) *v1.Pod {
		pod := newPod(always, with(full, full))
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: requests, Limits: limits}
		return pod
	}
	tests := map[string]struct {
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		"set at creation":                   {fixed, burstable},
		"no resources":                      {newPod(always, newContainer("a")), bestEffort},
		"zero request":                      {newPod(always, with(newResourceList("cpu", "0"), nil)), bestEffort},
		"other resources":                   {newPod(always, with(newResourceList("example.com/gpu", "1"), nil)), bestEffort},
		"requests equal limits":             {newPod(always, with(full, full)), guaranteed},
		"requests below limits":             {newPod(always, with(newResourceList("cpu", "500m", "memory", "1Gi"), full)), burstable},
		"one limit missing":                 {newPod(always, with(full, newResourceList("cpu", "1"))), burstable},
		"one container without resources":   {newPod(always, with(full, full), newContainer("b")), burstable},
		"init container with requests only": {withInit(newPod(always, with(full, full)), with(newResourceList("cpu", "1"), nil)), burstable},
		"init container with equal limits":  {withInit(newPod(always, with(full, full)), with(full, full)), guaranteed},
		"pod level, requests equal limits":  {ofWhole(full, full), guaranteed},
		"pod level, requests only":          {ofWhole(full, nil), burstable},
		"pod level, one resource":           {ofWhole(newResourceList("cpu", "1"), newResourceList("cpu", "1")), burstable},
		"pod level, empty":                  {ofWhole(nil, nil), bestEffort},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := derive.QOSClass(test.pod); got != test.want {
				t.Fatalf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestPH49_RejectedStatus(t *testing.T) {
	requireEqual(t, derive.RejectedStatus(newPod(always, newContainer("a")), "OutOfcpu", "no room"), v1.PodStatus{
		ObservedGeneration: 7, QOSClass: v1.PodQOSBestEffort, Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: no room",
	})
}

func TestADM25_EVI18_CriticalPods(t *testing.T) {
	static := func(pod *v1.Pod) { pod.Annotations = map[string]string{podid.SourceAnnotation: "file"} }
	priority := func(value int32) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.Priority = &value } }
	for name, test := range map[string]struct {
		pod  func(*v1.Pod)
		want bool
	}{
		"regular": {func(*v1.Pod) {}, false}, "static": {static, true}, "high": {priority(1_999_999_999), false}, "critical": {priority(2_000_000_000), true},
	} {
		if got := derive.IsCritical(heraldtest.NewPod("web", test.pod)); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

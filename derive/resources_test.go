package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// quantities reads "cpu", "100m", "memory", "1Gi".
func quantities(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func sameQuantities(t *testing.T, got, want v1.ResourceList) {
	t.Helper()
	if !derive.Equal(&v1.PodStatus{AllocatedResources: got}, &v1.PodStatus{AllocatedResources: want}) {
		t.Fatalf("have %v, want %v", got, want)
	}
}

func TestPH39ResourcesAreTheAllocatedOnesUntilTheRuntimeSaysOtherwise(t *testing.T) {
	type resources = v1.ResourceRequirements
	whole := resources{Requests: quantities("cpu", "100m", "memory", "1Mi"), Limits: quantities("cpu", "200m", "memory", "2Mi")}
	tiny := resources{Requests: quantities("cpu", "1m"), Limits: quantities("cpu", "5m")}
	before := func(id int) statuses {
		return statuses{{
			Name: "a", ContainerID: idOf("a", id).String(), State: runState(),
			Resources: &resources{Requests: quantities("cpu", "70m", "memory", "3Mi"), Limits: quantities("cpu", "170m", "memory", "4Mi")},
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
		"the runtime is silent":          {allocated: whole, state: observed.Running, want: whole},
		"the runtime speaks":             {allocated: whole, state: observed.Running, says: &observed.Resources{MilliCPURequest: new(int64(50)), MilliCPULimit: new(int64(60)), MemoryRequestBytes: new(int64(5)), MemoryLimitBytes: new(int64(6))}, want: resources{Requests: quantities("cpu", "50m", "memory", "5"), Limits: quantities("cpu", "60m", "memory", "6")}},
		"both are below what can be set": {allocated: tiny, state: observed.Running, says: &observed.Resources{MilliCPURequest: new(int64(2)), MilliCPULimit: new(int64(10))}, want: tiny},
		"just above it":                  {allocated: tiny, state: observed.Running, says: &observed.Resources{MilliCPURequest: new(int64(3)), MilliCPULimit: new(int64(11))}, want: resources{Requests: quantities("cpu", "3m"), Limits: quantities("cpu", "11m")}},
		"silent, but spoke before":       {allocated: whole, state: observed.Running, before: before(1), want: *before(1)[0].Resources},
		"of another instance":            {allocated: whole, state: observed.Running, before: before(9), want: whole},
		"nothing is allocated":           {state: observed.Running, says: &observed.Resources{MilliCPULimit: new(int64(50))}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec, c := container("a"), seen("a", 1, test.state)
			spec.Resources, c.Resources = *test.allocated.DeepCopy(), test.says
			in := derive.Input{Pod: newPod(always, spec), Observed: world(c), Previous: &v1.PodStatus{ContainerStatuses: test.before}}
			got := status(in).ContainerStatuses[0]
			sameQuantities(t, got.Resources.Requests, test.want.Requests)
			sameQuantities(t, got.Resources.Limits, test.want.Limits)
			sameQuantities(t, got.AllocatedResources, test.allocated.Requests)
			sameQuantities(t, in.Pod.Spec.Containers[0].Resources.Requests, test.allocated.Requests)
		})
	}
}

func TestPodResourcesAreShownOnlyWhenAskedFor(t *testing.T) {
	got := status(derive.Input{Pod: newPod(always, container("a"))})
	if got.Resources != nil || got.AllocatedResources != nil {
		t.Fatalf("%v, %v", got.Resources, got.AllocatedResources)
	}
}

func TestPodResourcesAreTheMostThatThePodNeedsAtOneTime(t *testing.T) {
	needs := func(c v1.Container, cpu string) v1.Container {
		c.Resources = v1.ResourceRequirements{Requests: quantities("cpu", cpu), Limits: quantities("cpu", cpu)}
		return c
	}
	whole := &v1.ResourceRequirements{Requests: quantities("cpu", "9", "example.com/gpu", "4"), Limits: quantities("cpu", "10", "hugepages-2Mi", "2Mi")}
	tests := map[string]struct {
		init             []v1.Container
		whole            *v1.ResourceRequirements
		overhead         v1.ResourceList
		requests, limits v1.ResourceList
	}{
		"its containers":                    {requests: quantities("cpu", "3"), limits: quantities("cpu", "3")},
		"a hungry init container":           {init: []v1.Container{needs(container("i"), "5")}, requests: quantities("cpu", "5"), limits: quantities("cpu", "5")},
		"a modest one":                      {init: []v1.Container{needs(container("i"), "1")}, requests: quantities("cpu", "3"), limits: quantities("cpu", "3")},
		"a sidecar adds up":                 {init: []v1.Container{needs(sidecar("s"), "1")}, requests: quantities("cpu", "4"), limits: quantities("cpu", "4")},
		"an init container after a sidecar": {init: []v1.Container{needs(sidecar("s"), "2"), needs(container("i"), "4")}, requests: quantities("cpu", "6"), limits: quantities("cpu", "6")},
		"and before one":                    {init: []v1.Container{needs(container("i"), "4"), needs(sidecar("s"), "2")}, requests: quantities("cpu", "5"), limits: quantities("cpu", "5")},
		"of the pod as a whole":             {whole: whole, requests: quantities("cpu", "9"), limits: quantities("cpu", "10", "hugepages-2Mi", "2Mi")},
		"with overhead, where limited":      {overhead: quantities("cpu", "1", "memory", "1Mi"), requests: quantities("cpu", "4", "memory", "1Mi"), limits: quantities("cpu", "4")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(always, needs(container("a"), "1"), needs(container("b"), "2")), test.init...)
			pod.Spec.Resources, pod.Spec.Overhead = test.whole, test.overhead
			got := status(derive.Input{Pod: pod, Node: derive.NodeInfo{PodResources: true}})
			sameQuantities(t, got.AllocatedResources, test.requests)
			sameQuantities(t, got.Resources.Requests, test.requests)
			sameQuantities(t, got.Resources.Limits, test.limits)
		})
	}
}

func TestPodResourcesOfARunningPodAreThoseOfItsCgroup(t *testing.T) {
	spec := container("a")
	spec.Resources.Requests = quantities("cpu", "100m", "memory", "1Mi")
	pod := newPod(always, spec)
	pod.Status.Phase = v1.PodRunning
	in := derive.Input{Pod: pod, Observed: world(), Node: derive.NodeInfo{PodResources: true}}

	in.Observed.Resources = &observed.Resources{MilliCPURequest: new(int64(50)), MilliCPULimit: new(int64(60)), MemoryLimitBytes: new(int64(7))}
	spoken := status(in)
	sameQuantities(t, spoken.Resources.Requests, quantities("cpu", "50m", "memory", "1Mi"))
	sameQuantities(t, spoken.Resources.Limits, quantities("cpu", "60m", "memory", "7"))

	in.Observed.Resources = nil
	in.Previous = &spoken
	in.Previous.Phase = v1.PodRunning
	silent := status(in)
	sameQuantities(t, silent.Resources.Requests, spoken.Resources.Requests)
	sameQuantities(t, silent.Resources.Limits, spoken.Resources.Limits)
}

func TestPH48QOSClassIsFixedAtCreationElseComputed(t *testing.T) {
	const guaranteed, burstable, bestEffort = v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort
	with := func(requests, limits v1.ResourceList) v1.Container {
		c := container("a")
		c.Resources = v1.ResourceRequirements{Requests: requests, Limits: limits}
		return c
	}
	full := quantities("cpu", "1", "memory", "1Gi")
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
		"it was given":                        {fixed, burstable},
		"nothing asked":                       {newPod(always, container("a")), bestEffort},
		"zero is nothing":                     {newPod(always, with(quantities("cpu", "0"), nil)), bestEffort},
		"other resources are nothing":         {newPod(always, with(quantities("example.com/gpu", "1"), nil)), bestEffort},
		"all limited, and asked as much":      {newPod(always, with(full, full)), guaranteed},
		"asked for less":                      {newPod(always, with(quantities("cpu", "500m", "memory", "1Gi"), full)), burstable},
		"one limit is missing":                {newPod(always, with(full, quantities("cpu", "1"))), burstable},
		"one container asks for nothing":      {newPod(always, with(full, full), container("b")), burstable},
		"one init container asks for less":    {withInit(newPod(always, with(full, full)), with(quantities("cpu", "1"), nil)), burstable},
		"all init containers are like that":   {withInit(newPod(always, with(full, full)), with(full, full)), guaranteed},
		"as a whole, limited and asked":       {ofWhole(full, full), guaranteed},
		"as a whole, asked only":              {ofWhole(full, nil), burstable},
		"as a whole, one limited":             {ofWhole(quantities("cpu", "1"), quantities("cpu", "1")), burstable},
		"as a whole nothing, whatever inside": {ofWhole(nil, nil), bestEffort},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := derive.QOSClass(test.pod); got != test.want {
				t.Fatalf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestPH49ARejectedPodHasFailedAndSaysWhy(t *testing.T) {
	mustEqual(t, derive.RejectedStatus(newPod(always, container("a")), "OutOfcpu", "no room"), v1.PodStatus{
		ObservedGeneration: 7, QOSClass: v1.PodQOSBestEffort, Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: no room",
	})
}

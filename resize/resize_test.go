package resize_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/resize"
)

// requirements parses "cpu=100m memory=1Mi / cpu=1": requests and limits.
func requirements(text string) v1.ResourceRequirements {
	requests, limits, _ := strings.Cut(text, "/")
	return v1.ResourceRequirements{Requests: resourceList(requests), Limits: resourceList(limits)}
}

func resourceList(text string) v1.ResourceList {
	var list v1.ResourceList
	for _, word := range strings.Fields(text) {
		name, quantity, _ := strings.Cut(word, "=")
		if list == nil {
			list = v1.ResourceList{}
		}
		list[v1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

func newPod(containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1"}}
	for i, text := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: fmt.Sprintf("c%d", i+1), Resources: requirements(text)})
	}
	return pod
}

func TestRSZ1_Quantities(t *testing.T) {
	pod := newPod("cpu=100m memory=10 / cpu=1 memory=20", "/ memory=5")
	pod.Spec.InitContainers = []v1.Container{{Name: "init", Resources: requirements("cpu=500m")}}
	want := resize.State{
		"c1": {MilliCPURequest: 100, MilliCPULimit: 1000, MemoryRequest: 10, MemoryLimit: 20}, "c2": {MemoryLimit: 5}, "init": {MilliCPURequest: 500},
		resize.PodLevel: {MilliCPURequest: 500, MilliCPULimit: 1000, MemoryRequest: 10, MemoryLimit: 25},
	}
	if diff := cmp.Diff(want, resize.Of(pod)); diff != "" {
		t.Error(diff)
	}
}

// Containers without a limit follow that of the pod.
func TestRSZ25_PodLevel(t *testing.T) {
	pod := newPod("cpu=100m", "/ cpu=1")
	pod.Spec.Resources = new(requirements("cpu=2 / cpu=3 memory=100"))
	want := resize.State{
		"c1": {MilliCPURequest: 100, MilliCPULimit: 3000, MemoryLimit: 100}, "c2": {MilliCPULimit: 1000, MemoryLimit: 100},
		resize.PodLevel: {MilliCPURequest: 2000, MilliCPULimit: 3000, MemoryLimit: 100},
	}
	if diff := cmp.Diff(want, resize.Of(pod)); diff != "" {
		t.Error(diff)
	}
}

func TestRSZ6_Order(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	pending := func(name, allocated, desired string, change func(*resize.Pending)) resize.Pending {
		p := resize.Pending{Desired: newPod(desired), Allocated: newPod(allocated), Since: at(0)}
		p.Desired.Name = name
		change(&p)
		return p
	}
	none := func(*resize.Pending) {}
	ordered := []resize.Pending{
		pending("shrinks, high priority", "cpu=2", "cpu=1", func(p *resize.Pending) { p.Desired.Spec.Priority = new(int32(9)) }),
		pending("shrinks", "cpu=2", "cpu=1", none),
		pending("limit only", "cpu=1 / cpu=1", "cpu=1 / cpu=2", func(p *resize.Pending) { p.Since = at(1) }),
		pending("high priority", "cpu=1", "cpu=2", func(p *resize.Pending) { p.Desired.Spec.Priority = new(int32(10)) }),
		pending("guaranteed", "cpu=1 memory=1 / cpu=1 memory=1", "cpu=2 memory=1 / cpu=2 memory=1", none),
		pending("oldest", "cpu=1", "cpu=2", none),
		pending("memory up, cpu down", "cpu=2 memory=1", "cpu=1 memory=2", func(p *resize.Pending) { p.Since = at(1) }),
		pending("not decided yet", "cpu=1", "cpu=2", func(p *resize.Pending) { p.Since = time.Time{} }),
	}
	names := func(all []resize.Pending) (names []string) {
		for _, p := range all {
			names = append(names, p.Desired.Name)
		}
		return names
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		shuffled := slices.Clone(ordered)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		slices.SortFunc(shuffled, resize.Compare)
		if diff := cmp.Diff(names(ordered), names(shuffled)); diff != "" {
			t.Fatal(diff)
		}
	}
}

// The order is one: no two pods are each before the other.
func TestBUG126_Antisymmetric(t *testing.T) {
	a := resize.Pending{Desired: newPod("cpu=1"), Allocated: newPod("cpu=2"), Since: time.Unix(1, 0)}
	b := resize.Pending{Desired: newPod("cpu=1"), Allocated: newPod("cpu=2"), Since: time.Unix(2, 0)}
	if resize.Compare(a, b) >= 0 || resize.Compare(b, a) <= 0 || resize.Compare(a, a) != 0 {
		t.Errorf("got %d, %d, %d; want the older one first", resize.Compare(a, b), resize.Compare(b, a), resize.Compare(a, a))
	}
}

func TestRSZ3_Operations(t *testing.T) {
	tests := map[string]struct {
		before, after *v1.Pod
		want          []string
		isRequested   bool
	}{
		"none":        {newPod("cpu=1"), newPod("cpu=1000m"), nil, false},
		"kinds":       {newPod("cpu=1 memory=2 / memory=2"), newPod("cpu=2 memory=1 / cpu=2"), []string{"cpu limits add", "cpu requests increase", "memory limits remove", "memory requests decrease"}, true},
		"pod level":   {newPod("cpu=1"), func() *v1.Pod { p := newPod("cpu=1"); p.Spec.Resources = new(requirements("cpu=1")); return p }(), nil, true},
		"not resized": {newPod("ephemeral-storage=1"), newPod("ephemeral-storage=2"), nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			operations, isRequested := resize.Operations(test.before, test.after)
			var got []string
			for _, operation := range operations {
				got = append(got, fmt.Sprint(operation.Resource, " ", operation.Requirement, " ", operation.Kind))
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" || isRequested != test.isRequested {
				t.Errorf("got isRequested %t, %s", isRequested, diff)
			}
		})
	}
}

// An edited manifest with a fixed UID may rename or remove containers.
func TestBUG125_RenamedContainer(t *testing.T) {
	before, after := newPod("cpu=1", "cpu=1"), newPod("cpu=1")
	after.Spec.Containers[0].Name = "renamed"
	if operations, isRequested := resize.Operations(before, after); isRequested || len(operations) > 0 {
		t.Errorf("got %v, want no resize", operations)
	}
}

func TestRSZ11_Message(t *testing.T) {
	pod := newPod("cpu=1", "")
	want := `Pod resize error: {"containers":[{"name":"c1","resources":{"requests":{"cpu":"1"}}},{"name":"c2","resources":{}}],"generation":7,"error":"no"}`
	if got := resize.Message("error", pod, 7, "no"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	pod.Spec.Resources = new(requirements("cpu=2"))
	if got := resize.Message("started", pod, 7, ""); !strings.HasPrefix(got, `Pod resize started: {"resources":{"requests":{"cpu":"2"}},`) {
		t.Errorf("got %s, want the resources of the pod", got)
	}
}

func TestRSZ15_RequiresRestart(t *testing.T) {
	container := &v1.Container{ResizePolicy: []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired}, {ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer},
	}}
	before := resize.Quantities{MilliCPURequest: 1, MilliCPULimit: 2, MemoryRequest: 3, MemoryLimit: 4}
	tests := map[string]struct {
		change func(*resize.Quantities)
		want   bool
	}{
		"nothing":        {func(*resize.Quantities) {}, false},
		"cpu":            {func(q *resize.Quantities) { q.MilliCPULimit = 9 }, false},
		"memory limit":   {func(q *resize.Quantities) { q.MemoryLimit = 9 }, true},
		"memory request": {func(q *resize.Quantities) { q.MemoryRequest = 1 }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := before
			test.change(&after)
			if got := resize.RequiresRestart(container, before, after); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
			if resize.RequiresRestart(&v1.Container{}, before, after) {
				t.Error("a container without a policy requires a restart")
			}
		})
	}
}

func values(memory, quota, shares int64) cgroup.Resources {
	return cgroup.Resources{Memory: &memory, CPUQuota: &quota, CPUShares: &shares}
}

func format(steps []resize.Step) (lines []string) {
	for _, step := range steps {
		switch q := step.After; {
		case step.Container != nil:
			lines = append(lines, fmt.Sprintf("%s of %s: %d/%d %d/%d", step.Resource, step.Container.Spec.Name,
				q.MilliCPURequest, q.MilliCPULimit, q.MemoryRequest, q.MemoryLimit))
		case step.Pod.Memory != nil:
			lines = append(lines, fmt.Sprint("pod memory ", *step.Pod.Memory))
		case step.Pod.CPUQuota != nil:
			lines = append(lines, fmt.Sprint("pod quota ", *step.Pod.CPUQuota))
		case step.Pod.CPUShares != nil:
			lines = append(lines, fmt.Sprint("pod shares ", *step.Pod.CPUShares))
		}
	}
	return lines
}

func newContainer(name string, current, desired resize.Quantities) resize.Container {
	return resize.Container{Spec: &v1.Container{Name: name}, Current: current, Desired: desired}
}

func quantities(cpuRequest, cpuLimit, memoryRequest, memoryLimit int64) resize.Quantities {
	return resize.Quantities{MilliCPURequest: cpuRequest, MilliCPULimit: cpuLimit, MemoryRequest: memoryRequest, MemoryLimit: memoryLimit}
}

func TestRSZ16_Steps(t *testing.T) {
	up := newContainer("up", quantities(1, 1, 1, 1), quantities(2, 2, 2, 2))
	down := newContainer("down", quantities(2, 2, 2, 2), quantities(1, 1, 1, 1))
	tests := map[string]struct {
		current, desired cgroup.Resources
		containers       []resize.Container
		want             []string
	}{
		"grows": {values(1, 1, 1), values(2, 2, 2), []resize.Container{up, down}, []string{
			"pod memory 2", "memory of down: 2/2 1/1", "memory of up: 1/1 2/2",
			"pod quota 2", "pod shares 2", "cpu of down: 1/1 1/1", "cpu of up: 2/2 2/2",
		}},
		"shrinks": {values(2, 2, 2), values(1, 1, 1), []resize.Container{up, down}, []string{
			"memory of down: 2/2 1/1", "memory of up: 1/1 2/2", "pod memory 1",
			"cpu of down: 1/1 1/1", "cpu of up: 2/2 2/2", "pod shares 1", "pod quota 1",
		}},
		"memory request only (RSZ-17)": {
			values(1, 1, 1), values(1, 1, 1), []resize.Container{newContainer("c", quantities(1, 1, 1, 1), quantities(1, 1, 2, 1))},
			[]string{"memory of c: 1/1 2/1"},
		},
		"no limit any more (RSZ-22)": {values(1, 1, 1), cgroup.Resources{CPUShares: new(int64(1))}, nil, nil},
		"limit added is a decrease (BUG-122)": {
			values(-1, -1, 1), values(5, 5, 1), []resize.Container{newContainer("c", quantities(1, 0, 1, 0), quantities(1, 2, 1, 2)), up},
			[]string{"memory of c: 1/0 1/2", "memory of up: 1/1 2/2", "pod memory 5", "cpu of c: 1/2 1/2", "cpu of up: 2/2 2/2", "pod quota 5"},
		},
		"pod without a cgroup": {cgroup.Resources{}, cgroup.Resources{}, []resize.Container{down}, []string{"memory of down: 2/2 1/1", "cpu of down: 1/1 1/1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, format(resize.Steps(test.current, test.desired, test.containers))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRSZ19_MemoryBelowUsage(t *testing.T) {
	const prefix = "cannot decrease memory limits: "
	lower := newContainer("c", quantities(0, 0, 0, 100), quantities(0, 0, 0, 50))
	added := newContainer("c", resize.Quantities{}, quantities(0, 0, 0, 50))
	usage := func(pod, container int64) resize.Usage {
		return resize.Usage{Pod: &pod, Containers: map[string]int64{"c": container}}
	}
	tests := map[string]struct {
		current, desired int64 // of the pod
		containers       []resize.Container
		usage            resize.Usage
		want             string
	}{
		"fits":                            {100, 50, []resize.Container{lower}, usage(49, 49), ""},
		"container":                       {100, 100, []resize.Container{lower}, usage(70, 60), `attempting to set container "c" memory limit (50) below current usage (60)`},
		"equal":                           {100, 100, []resize.Container{lower}, usage(50, 50), `attempting to set container "c" memory limit (50) below current usage (50)`},
		"pod only (BUG-124)":              {100, 50, nil, usage(60, 0), "attempting to set pod memory limit (50) below current usage (60)"},
		"limit added (BUG-122)":           {-1, 50, nil, usage(60, 0), "attempting to set pod memory limit (50) below current usage (60)"},
		"limit of container added":        {100, 100, []resize.Container{added}, usage(70, 60), `attempting to set container "c" memory limit (50) below current usage (60)`},
		"both":                            {100, 50, []resize.Container{lower}, usage(60, 60), `[attempting to set container "c" memory limit (50) below current usage (60), attempting to set pod memory limit (50) below current usage (60)]`},
		"pod unknown":                     {100, 50, nil, resize.Usage{}, "missing pod memory usage"},
		"container unknown (BUG-123)":     {100, 100, []resize.Container{lower}, resize.Usage{Pod: new(int64(1))}, `missing container "c" memory usage`},
		"raised":                          {50, 100, nil, resize.Usage{}, ""},
		"limit of the container is taken": {100, 100, []resize.Container{newContainer("c", lower.Current, resize.Quantities{})}, resize.Usage{}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			current := cgroup.Resources{Memory: &test.current}
			steps := resize.Steps(current, cgroup.Resources{Memory: &test.desired}, test.containers)
			got := ""
			if err := resize.CheckMemory(steps, current, test.usage); err != nil {
				got = strings.TrimPrefix(err.Error(), prefix)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestActuated_Inverse(t *testing.T) {
	allocated := resize.State{"a": quantities(1, 1, 1, 1), "b": quantities(2, 2, 2, 2), "": quantities(3, 3, 3, 3)}
	actuated := resize.State{"a": quantities(1, 1, 1, 1), "b": quantities(9, 9, 9, 9), "": quantities(3, 3, 3, 3), "gone": {}}
	unactuated := resize.Unactuated(actuated, allocated)
	if diff := cmp.Diff(resize.State{"b": quantities(9, 9, 9, 9)}, unactuated); diff != "" {
		t.Error(diff)
	}
	delete(actuated, "gone")
	if diff := cmp.Diff(actuated, resize.Actuated(allocated, unactuated)); diff != "" {
		t.Error(diff)
	}
}

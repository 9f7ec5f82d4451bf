package criconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
)

func quantities(cpu, memory string) v1.ResourceList {
	list := v1.ResourceList{}
	if cpu != "" {
		list[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

func TestGenerator_ContainerResources(t *testing.T) {
	tests := map[string]struct {
		requests, limits           v1.ResourceList
		priority                   *int32
		class                      string
		shares, quota, memory, oom int64
	}{
		"best effort":             {shares: 2, oom: 1000},
		"guaranteed":              {requests: quantities("500m", "64Mi"), limits: quantities("500m", "64Mi"), shares: 512, quota: 50_000, memory: 64 << 20, oom: -997},
		"burstable":               {requests: quantities("250m", "256Mi"), limits: quantities("1", ""), shares: 256, quota: 100_000, oom: 750},
		"burstable, cpu only":     {requests: quantities("1", ""), shares: 1024, oom: 999},
		"whole machine":           {requests: quantities("1", "1Gi"), shares: 1024, oom: 3},
		"limit implies request":   {limits: quantities("2", ""), shares: 2048, quota: 200_000, oom: 999},
		"minimum quota":           {limits: quantities("1m", ""), shares: 2, quota: 1000, oom: 999},
		"maximum shares":          {requests: quantities("1000", ""), shares: 262144, oom: 999},
		"node critical priority":  {priority: new(int32(2_000_001_000)), shares: 2, oom: -997},
		"node critical class":     {class: "system-node-critical", shares: 2, oom: -997},
		"cluster critical is not": {priority: new(int32(2_000_000_000)), shares: 2, oom: 1000},
		"above capacity":          {requests: quantities("1", "2Gi"), shares: 1024, oom: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(func(pod *v1.Pod) {
				pod.Spec.Priority, pod.Spec.PriorityClassName = test.priority, test.class
				pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: test.requests, Limits: test.limits}
			})
			got := containerConfig(t, newGenerator(), pod, criconfig.ContainerInputs{}).Linux.Resources
			if got.CpuShares != test.shares || got.CpuQuota != test.quota || got.CpuPeriod != 100_000 ||
				got.MemoryLimitInBytes != test.memory || got.OomScoreAdj != test.oom {
				t.Errorf("got %v, want %+v", got, test)
			}
		})
	}
}

// A sidecar must not be killed before the containers that it serves.
func TestGenerator_SidecarOOMScore(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = quantities("", "512Mi")
		pod.Spec.InitContainers = []v1.Container{{
			Name: "proxy", Image: "web:1", RestartPolicy: new(v1.ContainerRestartPolicyAlways),
			Resources: v1.ResourceRequirements{Requests: quantities("", "64Mi")},
		}}
	})
	start := plan.Start{Container: &pod.Spec.InitContainers[0], Kind: derive.SidecarContainer}
	config, err := newGenerator().ContainerConfig(pod, start, criconfig.ContainerInputs{})
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Linux.Resources.OomScoreAdj; got != 500 {
		t.Errorf("got OOM score %d, want 500", got)
	}
}

func TestGenerator_SandboxOverhead(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) { pod.Spec.Overhead = quantities("250m", "64Mi") })
	got := sandboxConfig(t, newGenerator(), pod).Linux.Overhead
	if got.CpuShares != 256 || got.CpuQuota != 25_000 || got.MemoryLimitInBytes != 64<<20 {
		t.Errorf("got %v", got)
	}
}

func TestMilliCPU(t *testing.T) {
	for shares, want := range map[int64]int64{2: 2, 102: 100, 256: 250, 1024: 1000} {
		if got := criconfig.MilliCPU(shares); got != want {
			t.Errorf("%d shares: got %d, want %d", shares, got, want)
		}
	}
}

func TestGenerator_CgroupParent(t *testing.T) {
	burstable := func(pod *v1.Pod) { pod.UID = "a-b"; pod.Spec.Containers[0].Resources.Requests = quantities("1", "") }
	guaranteed := func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = quantities("1", "1Gi")
		pod.Spec.Containers[0].Resources.Requests = quantities("1", "1Gi")
	}
	tests := map[string]struct {
		parent, driver string
		mutate         func(*v1.Pod)
		want           string
	}{
		"no parent":       {mutate: burstable, want: ""},
		"best effort":     {parent: "/kubepods", driver: "cgroupfs", mutate: func(*v1.Pod) {}, want: "/kubepods/besteffort/poduid-1"},
		"burstable":       {parent: "/kubepods", driver: "cgroupfs", mutate: burstable, want: "/kubepods/burstable/poda-b"},
		"guaranteed":      {parent: "/kubepods", driver: "cgroupfs", mutate: guaranteed, want: "/kubepods/poduid-1"},
		"systemd":         {parent: "/kubepods", driver: "systemd", mutate: burstable, want: "kubepods-burstable-poda_b.slice"},
		"systemd, nested": {parent: "/a-b/kubepods", driver: "systemd", mutate: guaranteed, want: "a_b-kubepods-poduid_1.slice"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			generator := newGenerator(func(generator *criconfig.Generator) { generator.CgroupParent = test.parent })
			config, err := generator.SandboxConfig(newPod(test.mutate), 0, test.driver)
			if err != nil {
				t.Fatal(err)
			}
			if got := config.Linux.CgroupParent; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	generator := newGenerator(func(generator *criconfig.Generator) { generator.CgroupParent = "/kubepods" })
	want := []string{"/kubepods/podx", "/kubepods/burstable/podx", "/kubepods/besteffort/podx"}
	if diff := cmp.Diff(want, generator.PodCgroups("x", criconfig.CgroupfsDriver)); diff != "" {
		t.Error(diff)
	}
}

package criconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
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

// CGR-15, CGR-24, CGR-26
func TestCGR24_ContainerResources(t *testing.T) {
	tests := map[string]struct {
		requests, limits           v1.ResourceList
		priority                   *int32
		class                      string
		source                     podid.Source
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
		"node critical":           {priority: new(int32(2_000_001_000)), class: "system-node-critical", shares: 2, oom: -997},
		"node critical, static":   {source: podid.File, class: "system-node-critical", shares: 2, oom: -997},
		"class without priority":  {class: "system-node-critical", shares: 2, oom: 1000},
		"priority without class":  {priority: new(int32(2_000_001_000)), shares: 2, oom: 1000},
		"cluster critical is not": {priority: new(int32(2_000_000_000)), class: "system-cluster-critical", shares: 2, oom: 1000},
		"above capacity":          {requests: quantities("1", "2Gi"), shares: 1024, oom: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(func(pod *v1.Pod) {
				pod.Spec.Priority, pod.Spec.PriorityClassName = test.priority, test.class
				if test.source != "" {
					pod.Annotations = map[string]string{podid.SourceAnnotation: string(test.source)}
				}
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

// cpuCFSQuota: false
func TestCGR15_NoQuota(t *testing.T) {
	generator := newGenerator(func(generator *criconfig.Generator) { generator.NoCPUQuota = true })
	pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].Resources.Limits = quantities("2", "") })
	got := containerConfig(t, generator, pod, criconfig.ContainerInputs{}).Linux.Resources
	if got.CpuQuota != 0 || got.CpuPeriod != 0 || got.CpuShares != 2048 {
		t.Errorf("got %v, want shares only", got)
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

// CGR-25, CGR-27, CGR-28, CGR-29
func TestCGR27_UnifiedSettings(t *testing.T) {
	v1Host := cgroup.Host{SwapController: true, HugePageSizes: []int64{2 << 20, 1 << 30}}
	v2Host := v1Host
	v2Host.V2 = true
	limits := quantities("", "64Mi")
	limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	hugePages := []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB"}}
	tests := map[string]struct {
		host          cgroup.Host
		singleProcess bool
		unified       map[string]string
		memoryAndSwap int64
		hugePages     []*runtimeapi.HugepageLimit
	}{
		"unknown machine":    {},
		"version 1":          {host: v1Host, memoryAndSwap: 64 << 20, hugePages: hugePages},
		"version 2":          {host: v2Host, unified: map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"}, hugePages: hugePages},
		"single process":     {host: v2Host, singleProcess: true, unified: map[string]string{"memory.swap.max": "0"}, hugePages: hugePages},
		"no swap controller": {host: cgroup.Host{V2: true}, unified: map[string]string{"memory.oom.group": "1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			generator := newGenerator(func(generator *criconfig.Generator) {
				generator.CgroupHost, generator.SingleProcessOOMKill = test.host, test.singleProcess
			})
			pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].Resources.Limits = limits })
			got := containerConfig(t, generator, pod, criconfig.ContainerInputs{}).Linux.Resources
			if diff := cmp.Diff(test.unified, got.Unified); diff != "" {
				t.Errorf("unified (-want +got):\n%s", diff)
			}
			if got.MemorySwapLimitInBytes != test.memoryAndSwap {
				t.Errorf("got memory and swap %d, want %d", got.MemorySwapLimitInBytes, test.memoryAndSwap)
			}
			if diff := cmp.Diff(test.hugePages, got.HugepageLimits, protocmp.Transform()); diff != "" {
				t.Errorf("huge pages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCGR30_SandboxResources(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) { pod.Spec.Overhead = quantities("250m", "64Mi") })
	got := sandboxConfig(t, newGenerator(), pod).Linux.Overhead
	if got.CpuShares != 256 || got.CpuQuota != 25_000 || got.MemoryLimitInBytes != 64<<20 {
		t.Errorf("got overhead %v", got)
	}
	pod.Spec.Containers[0].Resources.Limits = quantities("1", "1Gi")
	got = sandboxConfig(t, newGenerator(), pod).Linux.Resources
	if got.CpuShares != 1024 || got.CpuQuota != 100_000 || got.MemoryLimitInBytes != 1<<30 {
		t.Errorf("got resources %v, want those of the containers", got)
	}
}

// The kubelet sends the whole path for both drivers. CGR-3, CGR-4, CGR-5
func TestCGR5_CgroupParent(t *testing.T) {
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
		"systemd":         {parent: "/kubepods", driver: "systemd", mutate: burstable, want: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"},
		"systemd, nested": {parent: "/a-b/kubepods", driver: "systemd", mutate: guaranteed, want: "/a_b.slice/a_b-kubepods.slice/a_b-kubepods-poduid_1.slice"},
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
}

package cgroup_test

import (
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/cgroup"
)

func TestCGR3_Names(t *testing.T) {
	tests := map[string]struct {
		root, uid         string
		class             v1.PodQOSClass
		cgroupfs, systemd string
	}{
		"guaranteed": {
			root: "/", uid: "1-a", class: v1.PodQOSGuaranteed,
			cgroupfs: "/kubepods/pod1-a", systemd: "/kubepods.slice/kubepods-pod1_a.slice",
		},
		"burstable": {
			root: "", uid: "1-a", class: v1.PodQOSBurstable, cgroupfs: "/kubepods/burstable/pod1-a",
			systemd: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_a.slice",
		},
		"best effort below a root": {
			root: "/my-node/", uid: "1", class: v1.PodQOSBestEffort, cgroupfs: "/my-node/kubepods/besteffort/pod1",
			systemd: "/my_node.slice/my_node-kubepods.slice/my_node-kubepods-besteffort.slice/my_node-kubepods-besteffort-pod1.slice",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			name := cgroup.PodName(cgroup.NodeName(cgroup.ParseName(test.root)), test.class, "")
			name[len(name)-1] += test.uid
			if got := name.Path(cgroup.DriverCgroupfs); got != test.cgroupfs {
				t.Errorf("cgroupfs: got %s, want %s", got, test.cgroupfs)
			}
			if got := name.Path(cgroup.DriverSystemd); got != test.systemd {
				t.Errorf("systemd: got %s, want %s", got, test.systemd)
			}
		})
	}
	if got := cgroup.ParseName("/").Path(cgroup.DriverSystemd); got != "/" {
		t.Errorf("root: got %s, want /", got)
	}
	if got := cgroup.ParseName("/").Slice(); got != "-.slice" {
		t.Errorf("root slice: got %s, want -.slice", got)
	}
}

// The pod of a cgroup is found in its name, and only pods are. (CGR-23)
func TestCGR23_PodUID(t *testing.T) {
	node := cgroup.NodeName(cgroup.ParseName("/my-node"))
	for _, driver := range []string{cgroup.DriverCgroupfs, cgroup.DriverSystemd} {
		for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
			parent := cgroup.QOSName(node, class)
			dir := path.Base(cgroup.PodName(node, class, "1-a-2").Path(driver))
			if uid, isPod := parent.PodUID(dir, driver); uid != "1-a-2" || !isPod {
				t.Errorf("%s: got %q, %t", dir, uid, isPod)
			}
			for _, other := range []string{
				"", "pod", "burstable", "cri-containerd-1.scope", "other-podx", path.Base(cgroup.QOSName(node, v1.PodQOSBurstable).Path(driver)),
			} {
				if uid, isPod := parent.PodUID(other, driver); isPod {
					t.Errorf("%s in %s is pod %q", other, parent.Path(driver), uid)
				}
			}
		}
	}
}

// Elements of one name must not share memory with those of another.
func TestName_ChildCopies(t *testing.T) {
	node := cgroup.NodeName(nil)
	names := cgroup.PodNames(node, "x")
	want := []cgroup.Name{{"kubepods", "podx"}, {"kubepods", "burstable", "podx"}, {"kubepods", "besteffort", "podx"}}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func list(cpu, memory string) v1.ResourceList {
	values := v1.ResourceList{}
	if cpu != "" {
		values[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		values[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return values
}

func podWith(requests, limits v1.ResourceList) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "a", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits},
	}}}}
}

// CGR-11, CGR-13, CGR-14, CGR-16, CGR-17
func TestCGR17_Settings(t *testing.T) {
	host := cgroup.Host{HugePageSizes: []int64{2 << 20}}
	hostV2 := cgroup.Host{V2: true}
	huge := list("1", "64Mi")
	huge["hugepages-2Mi"] = resource.MustParse("4Mi")
	tests := map[string]struct {
		host      cgroup.Host
		resources cgroup.Resources
		want      []cgroup.Setting
	}{
		"guaranteed, version 1": {host, cgroup.PodResources(podWith(huge, huge), 100), []cgroup.Setting{
			{"cpu", "cpu.shares", "1024"},
			{"cpu", "cpu.cfs_period_us", "100000"},
			{"cpu", "cpu.cfs_quota_us", "100000"},
			{"memory", "memory.limit_in_bytes", "67108864"},
			{"pids", "pids.max", "100"},
			{"hugetlb", "hugetlb.2MB.limit_in_bytes", "4194304"},
		}},
		"guaranteed, version 2": {hostV2, cgroup.PodResources(podWith(list("1", "64Mi"), list("1", "64Mi")), 0), []cgroup.Setting{
			{"cpu", "cpu.weight", "39"},
			{"cpu", "cpu.max", "100000 100000"},
			{"memory", "memory.max", "67108864"},
		}},
		"burstable without memory limit": {hostV2, cgroup.PodResources(podWith(list("500m", "1Mi"), list("1m", "")), 0), []cgroup.Setting{
			{"cpu", "cpu.weight", "20"},
			{"cpu", "cpu.max", "1000 100000"},
		}},
		"best effort": {host, cgroup.PodResources(podWith(nil, nil), 0), []cgroup.Setting{
			{"cpu", "cpu.shares", "2"},
			{"hugetlb", "hugetlb.2MB.limit_in_bytes", "0"},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.resources.Settings(test.host)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCGR9_QOSResources(t *testing.T) {
	pods := []*v1.Pod{
		podWith(list("250m", ""), nil), podWith(list("1", ""), nil), podWith(nil, nil), podWith(list("2", "1Mi"), list("2", "1Mi")),
	}
	got := cgroup.QOSResources(v1.PodQOSBurstable, pods, []int64{2 << 20})
	want := cgroup.Resources{CPUShares: new(int64(1280)), HugePages: map[int64]int64{2 << 20: 1 << 62}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("burstable (-want +got):\n%s", diff)
	}
	got = cgroup.QOSResources(v1.PodQOSBestEffort, pods, nil)
	if *got.CPUShares != 2 {
		t.Errorf("best effort: got %d shares, want 2", *got.CPUShares)
	}
}

func TestCGR8_NodeResources(t *testing.T) {
	available := list("1500m", "1Gi")
	available[cgroup.ResourcePIDs] = resource.MustParse("1000")
	available["ephemeral-storage"] = resource.MustParse("1Gi")
	want := cgroup.Resources{
		CPUShares: new(int64(1536)), Memory: new(int64(1 << 30)), PIDs: new(int64(1000)), HugePages: map[int64]int64{},
	}
	if diff := cmp.Diff(want, cgroup.NodeResources(available)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]cgroup.Setting(nil), cgroup.NodeResources(nil).Settings(cgroup.Host{})); diff != "" {
		t.Errorf("CGR-18: values that were not computed (-want +got):\n%s", diff)
	}
}

func TestSetting_IsApplied(t *testing.T) {
	tests := map[string]struct {
		setting cgroup.Setting
		current string
		want    bool
	}{
		"same":              {cgroup.Setting{"cpu", "cpu.shares", "2"}, "2\n", true},
		"other":             {cgroup.Setting{"cpu", "cpu.shares", "2"}, "1024\n", false},
		"rounded to pages":  {cgroup.Setting{"memory", "memory.max", "5000"}, "4096\n", true},
		"rounded too far":   {cgroup.Setting{"memory", "memory.max", "9000"}, "4096\n", false},
		"unlimited":         {cgroup.Setting{"memory", "memory.max", "5000"}, "max\n", false},
		"shares not bytes":  {cgroup.Setting{"cpu", "cpu.shares", "5000"}, "4096", false},
		"quota and period":  {cgroup.Setting{"cpu", "cpu.max", "max 100000"}, "max 100000\n", true},
		"huge page limit 0": {cgroup.Setting{"hugetlb", "hugetlb.2MB.max", "0"}, "0\n", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.setting.IsApplied(test.current, 4096); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// Systemd applies whole percents of a CPU, so a quota between two of them would be replaced whenever it writes its own.
func TestCGR15_SystemdCPUQuota(t *testing.T) {
	tests := map[string]struct{ quota, want int64 }{
		"removed":            {-1, -1},
		"no limit":           {0, 0},
		"smallest quota":     {1_000, 1_000},
		"one above":          {1_001, 2_000},
		"125m":               {12_500, 13_000},
		"one below":          {12_999, 13_000},
		"whole percent":      {20_000, 20_000},
		"more than one CPU":  {150_001, 151_000},
		"as many as allowed": {1 << 40, 1099511628000},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := cgroup.SystemdCPUQuota(test.quota); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestMilliCPU(t *testing.T) {
	for shares, want := range map[int64]int64{2: 2, 102: 100, 256: 250, 1024: 1000} {
		if got := cgroup.MilliCPU(shares); got != want {
			t.Errorf("%d shares: got %d, want %d", shares, got, want)
		}
	}
}

// What a cgroup has is read back as it was written, so that an equal value is no change.
func TestRSZ16_ParseResources(t *testing.T) {
	for name, host := range map[string]cgroup.Host{"v1": {}, "v2": {V2: true}} {
		t.Run(name, func(t *testing.T) {
			for _, milliCPU := range []int64{1, 2, 3, 10, 99, 100, 250, 1000, 1001, 3999, 64_000, 255_999, 300_000} {
				want := cgroup.Resources{
					CPUShares: new(cgroup.CPUShares(milliCPU)), CPUQuota: new(cgroup.CPUQuota(milliCPU)), Memory: new(milliCPU * 4096),
				}.Normalized(host)
				files := map[string]string{}
				for _, setting := range want.Settings(host) {
					files[setting.File] = setting.Value + "\n"
				}
				got := cgroup.ParseResources(host, func(_, file string) (string, bool) { content, found := files[file]; return content, found })
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%dm: %s", milliCPU, diff)
				}
				if again := got.Normalized(host); !cmp.Equal(got, again) {
					t.Errorf("%dm: got %d shares, then %d", milliCPU, *got.CPUShares, *again.CPUShares)
				}
			}
		})
	}
}

func TestBUG122_NoLimitRead(t *testing.T) {
	files := map[string]string{"memory.max": "max\n", "cpu.max": "max 100000\n", "memory.limit_in_bytes": "9223372036854771712\n", "cpu.cfs_quota_us": "-1\n"}
	for _, host := range []cgroup.Host{{}, {V2: true}} {
		got := cgroup.ParseResources(host, func(_, file string) (string, bool) { content, found := files[file]; return content, found })
		if got.Memory == nil || *got.Memory != -1 || got.CPUQuota == nil || *got.CPUQuota != -1 || got.CPUShares != nil {
			t.Errorf("got %+v, want no limits and unknown shares", got)
		}
	}
}

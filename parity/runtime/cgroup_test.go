package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/manager"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/podid"
)

// TestCGR17_KubeletCgroup lets the kubelet's cgroup manager and Herald's create the cgroups of the same pods on this machine,
// and compares the kernel's values. CGR-11, CGR-15, CGR-16, CGR-22
func TestCGR17_KubeletCgroup(t *testing.T) {
	needs.Containers(t)
	subsystems, err := cm.GetCgroupSubsystems()
	if err != nil {
		t.Fatal(err)
	}
	reference := cm.NewCgroupManager(klog.Logger{}, subsystems, cgroup.DriverCgroupfs)
	base := fmt.Sprintf("/herald-test-%d", os.Getpid())
	t.Cleanup(func() { removeCgroups(t, base+"-a"); removeCgroups(t, base+"-b") })
	cgroups, err := manager.New(manager.Config{
		Root: base + "-b", Driver: func(context.Context) (string, error) { return cgroup.DriverCgroupfs, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, resources := range map[string]v1.ResourceRequirements{
		"best effort":         {},
		"burstable":           {Requests: newList("100m", "")},
		"limited":             {Requests: newList("100m", "1Mi"), Limits: newList("1500m", "100000001")},
		"small":               {Requests: newList("1m", ""), Limits: newList("1m", "")},
		"guaranteed":          {Requests: newList("2", "64Mi"), Limits: newList("2", "64Mi")},
		"only a memory limit": {Limits: newList("", "64Mi")},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("pause")
			pod.Spec.Containers[0].Resources = resources
			kubeletName := cm.ParseCgroupfsToCgroupName(kubelet.PodCgroupParent(base+"-a", cgroup.DriverCgroupfs, derive.QOSClass(pod), pod))
			config := &cm.CgroupConfig{Name: kubeletName, ResourceParameters: kubelet.PodCgroup(pod)}
			if err := reference.Create(klog.Logger{}, config); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := reference.Destroy(klog.Logger{}, config); err != nil {
					t.Error(err)
				}
			}()
			if err := cgroups.EnsurePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			got, want := cgroupFiles(t, base+"-b", pod), cgroupFiles(t, base+"-a", pod)
			if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
				t.Errorf("%d files (-kubelet +herald):\n%s", len(want), diff)
			}
			if err := cgroups.RemovePod(t.Context(), "pod-that-never-was"); err != nil {
				t.Error(err)
			}
			if err := cgroups.RemovePod(t.Context(), podid.UID(pod.UID)); err != nil {
				t.Error(err)
			}
			if left := cgroupFiles(t, base+"-b", pod); len(left) > 0 {
				t.Errorf("got %v after removal, want none", left)
			}
		})
	}
}

func newList(cpu, memory string) v1.ResourceList {
	list := v1.ResourceList{}
	if cpu != "" {
		list[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

// cgroupFiles returns the values of the pod's cgroup below root that either agent may set, by file.
func cgroupFiles(t *testing.T, root string, pod *v1.Pod) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, dir := range podCgroups(t, pod) {
		if !strings.Contains(dir, root+"/") {
			continue
		}
		for _, file := range []string{
			"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes", "pids.max",
			"cpu.weight", "cpu.max", "memory.max", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max",
		} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil {
				values[file] = strings.TrimSpace(string(content))
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	}
	return values
}

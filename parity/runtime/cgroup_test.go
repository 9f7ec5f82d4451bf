package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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
	drivers := []string{cgroup.DriverCgroupfs}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		drivers = append(drivers, cgroup.DriverSystemd)
	}
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			compareCgroups(t, cm.NewCgroupManager(klog.Logger{}, subsystems, driver), driver)
		})
	}
}

// compareCgroups compares below two roots of its own.
func compareCgroups(t *testing.T, reference cm.CgroupManager, driver string) {
	kubeletRoot, heraldRoot := fmt.Sprintf("/heraldtest%da", os.Getpid()), fmt.Sprintf("/heraldtest%db", os.Getpid())
	if driver == cgroup.DriverCgroupfs {
		t.Cleanup(func() { removeCgroups(t, kubeletRoot); removeCgroups(t, heraldRoot) })
	} else {
		t.Cleanup(func() { removeSlice(t, kubeletRoot); removeSlice(t, heraldRoot) })
	}
	cgroups, err := manager.New(manager.Config{
		Root: heraldRoot, Driver: func(context.Context) (string, error) { return driver, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, resources := range map[string]v1.ResourceRequirements{
		"best effort":         {},
		"burstable":           {Requests: newList("100m", "")},
		"limited":             {Requests: newList("100m", "1Mi"), Limits: newList("1500m", "100000001")},
		"small":               {Requests: newList("1m", ""), Limits: newList("1m", "")},
		"fraction of percent": {Requests: newList("125m", ""), Limits: newList("125m", "")},
		"guaranteed":          {Requests: newList("2", "64Mi"), Limits: newList("2", "64Mi")},
		"only a memory limit": {Limits: newList("", "64Mi")},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("pause")
			pod.Spec.Containers[0].Resources = resources
			kubeletName := cm.ParseCgroupfsToCgroupName(kubelet.PodCgroupParent(kubeletRoot, cgroup.DriverCgroupfs, derive.QOSClass(pod), pod))
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
			files := func(root string) map[string]string {
				node := cgroup.NodeName(cgroup.ParseName(root))
				return cgroupFiles(t, cgroup.PodName(node, derive.QOSClass(pod), podid.UID(pod.UID)).Path(driver))
			}
			got, want := files(heraldRoot), files(kubeletRoot)
			if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
				t.Errorf("%d files (-kubelet +herald):\n%s", len(want), diff)
			}
			if err := cgroups.RemovePod(t.Context(), "pod-that-never-was"); err != nil {
				t.Error(err)
			}
			if err := cgroups.RemovePod(t.Context(), podid.UID(pod.UID)); err != nil {
				t.Error(err)
			}
			if left := files(heraldRoot); len(left) > 0 {
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

// removeSlice stops the slice of a test, with those below it.
func removeSlice(t *testing.T, root string) {
	t.Helper()
	slice := cgroup.ParseName(root).Slice()
	if output, err := exec.CommandContext(context.Background(), "systemctl", "stop", slice).CombinedOutput(); err != nil {
		t.Errorf("systemctl stop %s: %v: %s", slice, err, output)
	}
}

// cgroupFiles returns the values of a cgroup that either agent may set, by file.
func cgroupFiles(t *testing.T, path string) map[string]string {
	t.Helper()
	values := map[string]string{}
	dirs, err := filepath.Glob("/sys/fs/cgroup/*" + path)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(dirs, "/sys/fs/cgroup"+path) {
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

package manager_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/manager"
)

// harness is a Manager over a directory that behaves as the kernel's cgroup file system where it matters.
type harness struct {
	*testing.T
	*manager.Manager
	config  manager.Config
	mount   string
	driver  string
	pods    []*v1.Pod
	unknown bool // not all pods are known
	units   []string
	events  []string
	logs    bytes.Buffer
	mkdir   func(string) error
}

func (h *harness) Event(_ runtime.Object, eventType, reason, message string) {
	h.events = append(h.events, eventType+" "+reason+" "+message)
}

func newHarness(t *testing.T, host cgroup.Host, mutate ...func(*harness)) *harness {
	t.Helper()
	h := &harness{T: t, mount: t.TempDir(), driver: cgroup.DriverCgroupfs}
	h.mkdir = h.makeCgroup
	h.config = manager.Config{
		NodeName: "n", Mount: h.mount, Host: &host, Events: h, Logger: slog.New(slog.NewTextHandler(&h.logs, nil)),
		Driver: func(context.Context) (string, error) { return h.driver, nil },
		Pods:   func() ([]*v1.Pod, bool) { return h.pods, !h.unknown },
	}
	h.config = manager.WithKernel(h.config, func(path string) error { return h.mkdir(path) })
	h.config = manager.WithSystemd(h.config, nil)
	for _, change := range mutate {
		change(h)
	}
	if host.V2 {
		h.put("cgroup.controllers", "cpuset cpu io memory hugetlb pids")
		h.put("cgroup.subtree_control", "memory")
	} else {
		for _, controller := range []string{"cpu", "memory", "pids", "freezer"} {
			if err := os.Mkdir(filepath.Join(h.mount, controller), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	var err error
	if h.Manager, err = manager.New(h.config); err != nil {
		t.Fatal(err)
	}
	return h
}

// makeCgroup creates a cgroup with the files of its controllers.
func (h *harness) makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	files := map[string]string{
		"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "9223372036854771712",
		"pids.max": "max",
	}
	if h.config.Host.V2 {
		files = map[string]string{
			"cpu.weight": "100", "cpu.max": "max 100000", "memory.max": "max", "pids.max": "max", "hugetlb.2MB.max": "max",
			"cgroup.controllers": "cpuset cpu memory hugetlb pids", "cgroup.subtree_control": "",
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (h *harness) put(file, content string) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.mount, file), []byte(content), 0o600); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) want(file, want string) {
	h.Helper()
	content, err := os.ReadFile(filepath.Join(h.mount, file))
	if got := strings.TrimSpace(string(content)); err != nil || got != want {
		h.Errorf("%s: got %q, %v; want %q", file, got, err, want)
	}
}

func (h *harness) ensure(pod *v1.Pod) {
	h.Helper()
	if err := h.EnsurePod(h.Context(), pod); err != nil {
		h.Fatal(err)
	}
}

func newPod(uid, cpu, memory string) *v1.Pod {
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	if memory != "" {
		limits[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{Requests: limits, Limits: limits}}}},
	}
}

// CGR-3, CGR-9, CGR-11, CGR-14, CGR-17, CGR-19
func TestCGR19_EnsurePod(t *testing.T) {
	t.Run("version 1", func(t *testing.T) {
		h := newHarness(t, cgroup.Host{}, func(h *harness) { h.config.PodPidsLimit = 99; h.config.Root = "/my" })
		pod := newPod("a-b", "500m", "")
		h.pods = []*v1.Pod{pod, newPod("other", "1", "")}
		h.ensure(pod)
		h.want("cpu/my/kubepods/burstable/poda-b/cpu.shares", "512")
		h.want("cpu/my/kubepods/burstable/poda-b/cpu.cfs_quota_us", "50000")
		h.want("memory/my/kubepods/burstable/poda-b/memory.limit_in_bytes", "9223372036854771712")
		h.want("pids/my/kubepods/burstable/poda-b/pids.max", "99")
		h.want("cpu/my/kubepods/burstable/cpu.shares", "1536")
		h.want("cpu/my/kubepods/besteffort/cpu.shares", "2")
		h.want("cpu/my/kubepods/cpu.shares", "1024")
	})
	t.Run("version 2", func(t *testing.T) {
		h := newHarness(t, cgroup.Host{V2: true, HugePageSizes: []int64{2 << 20}})
		h.ensure(newPod("a-b", "1", "64Mi"))
		h.want("kubepods/poda-b/cpu.weight", "39")
		h.want("kubepods/poda-b/cpu.max", "100000 100000")
		h.want("kubepods/poda-b/memory.max", "67108864")
		h.want("kubepods/poda-b/hugetlb.2MB.max", "0")
		h.want("kubepods/burstable/hugetlb.2MB.max", "4611686018427387904")
	})
}

// cpuCFSQuota: false removes quotas, also those that an agent before has set.
func TestCGR15_NoQuota(t *testing.T) {
	for version, file := range map[string]string{"1": "cpu/kubepods/poda/cpu.cfs_quota_us -1", "2": "kubepods/poda/cpu.max max 100000"} {
		t.Run("version "+version, func(t *testing.T) {
			h := newHarness(t, cgroup.Host{V2: version == "2"}, func(h *harness) { h.config.NoCPUQuota = true })
			path, want, _ := strings.Cut(file, " ")
			h.ensure(newPod("a", "1", "64Mi"))
			h.want(path, want)
			h.put(path, "5000")
			h.ensure(newPod("a", "1", "64Mi"))
			h.want(path, want)
		})
	}
}

// A burstable class must not lose its weight while an agent starts, before it knows the pods that run.
func TestCGR9_UnknownPods(t *testing.T) {
	h := newHarness(t, cgroup.Host{})
	h.pods = []*v1.Pod{newPod("a", "2", "")}
	h.ensure(h.pods[0])
	h.pods, h.unknown = nil, true
	if err := h.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.want("cpu/kubepods/burstable/cpu.shares", "2048")
	h.unknown = false
	if err := h.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.want("cpu/kubepods/burstable/cpu.shares", "2")
}

// Values that something else has changed, and controllers that systemd has dropped, are restored. (CGR-6, CGR-20)
func TestCGR20_Repair(t *testing.T) {
	h := newHarness(t, cgroup.Host{V2: true})
	pod := newPod("a", "1", "64Mi")
	h.ensure(pod)
	h.put("kubepods/poda/memory.max", "max")
	h.put("kubepods/burstable/cpu.weight", "77")
	h.put("kubepods/cgroup.subtree_control", "cpu memory")
	h.pods = []*v1.Pod{pod, newPod("never-started", "1", "64Mi")}
	if err := h.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.want("kubepods/poda/memory.max", "67108864")
	h.want("kubepods/burstable/cpu.weight", "1")
	h.want("kubepods/cgroup.subtree_control", "+pids") // the fake keeps only the last command
	if _, err := os.Stat(filepath.Join(h.mount, "kubepods/podnever-started")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no cgroup of a pod that was not started", err)
	}
}

// The kubelet does not start on version 1 unless failCgroupV1 is false; Herald does, with the same warning.
func TestCGR2_Event(t *testing.T) {
	for name, test := range map[string]struct {
		host cgroup.Host
		want int
	}{"version 1": {cgroup.Host{}, 1}, "version 2": {cgroup.Host{V2: true}, 0}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, test.host)
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // before the first update
			if err := h.Manager.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if len(h.events) != test.want || test.want > 0 && !strings.HasPrefix(h.events[0], "Warning CgroupV1 cgroup v1 detected.") {
				t.Errorf("got events %q, want %d", h.events, test.want)
			}
		})
	}
}

// CGR-7, CGR-8
func TestCGR7_NodeAllocatable(t *testing.T) {
	available := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
	h := newHarness(t, cgroup.Host{}, func(h *harness) { h.config.Available = func() v1.ResourceList { return available } })
	for range 2 {
		if err := h.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.want("memory/kubepods/memory.limit_in_bytes", "1073741824")
	h.want("cpu/kubepods/cpu.shares", "2048")
	want := []string{"Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods"}
	if !slices.Equal(h.events, want) {
		t.Errorf("got events %q, want %q", h.events, want)
	}
}

// An agent that may not write cgroups, or a read-only file system, keeps no pod from starting.
func TestManager_NotWritable(t *testing.T) {
	for name, failure := range map[string]error{"read only": syscall.EROFS, "not root": syscall.EACCES} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, cgroup.Host{}, func(h *harness) {
				h.config.Available = func() v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")} }
			})
			h.mkdir = func(path string) error { return &fs.PathError{Op: "mkdir", Path: path, Err: failure} }
			h.ensure(newPod("a", "1", ""))
			h.ensure(newPod("b", "1", ""))
			if err := errors.Join(h.RemovePod(t.Context(), "a"), h.Refresh(t.Context())); err != nil {
				t.Error(err)
			}
			if got := strings.Count(h.logs.String(), "not writable"); got != 1 || len(h.events) > 0 {
				t.Errorf("got %d warnings and events %q, want one and none:\n%s", got, h.events, &h.logs)
			}
		})
	}
}

// A limit that cannot be set is no reason to run the pod without it.
func TestCGR17_FailedValue(t *testing.T) {
	h := newHarness(t, cgroup.Host{})
	h.mkdir = func(path string) error {
		err := h.makeCgroup(path)
		if strings.HasSuffix(path, "/poda") { // a directory cannot be written
			err = errors.Join(err, os.Remove(filepath.Join(path, "cpu.shares")), os.Mkdir(filepath.Join(path, "cpu.shares"), 0o700))
		}
		return err
	}
	if err := h.EnsurePod(t.Context(), newPod("a", "1", "")); err == nil || !strings.Contains(err.Error(), "shop/web") {
		t.Errorf("got error %v, want one that names the pod", err)
	}
}

func TestManager_InvalidUID(t *testing.T) {
	h := newHarness(t, cgroup.Host{})
	for _, uid := range []string{"", "../x", "a*"} {
		if h.EnsurePod(t.Context(), newPod(uid, "1", "")) == nil || h.RemovePod(t.Context(), "") == nil {
			t.Errorf("UID %q was accepted", uid)
		}
	}
}

// CGR-22. The kernel removes a cgroup's files with its directory; here the test does.
func TestCGR22_RemovePod(t *testing.T) {
	h := newHarness(t, cgroup.Host{})
	h.mkdir = func(path string) error { return os.Mkdir(path, 0o755) }
	h.ensure(newPod("a", "1", ""))
	for _, dir := range []string{"cpu/kubepods/burstable/poda/child", "freezer/kubepods/burstable/poda/child"} {
		if err := os.MkdirAll(filepath.Join(h.mount, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.RemovePod(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(h.mount, "*/kubepods/*/pod*")); len(left) > 0 {
		t.Errorf("got %v, want none", left)
	}
	if left, _ := filepath.Glob(filepath.Join(h.mount, "*/kubepods/burstable")); len(left) == 0 {
		t.Error("the cgroup of the QoS class is gone")
	}
}

// Only the processes of the given containers are killed, whatever the runtime calls their cgroups.
func TestManager_KillContainers(t *testing.T) {
	for name, killed := range map[string]bool{
		"0123abc": true, "cri-containerd-0123abc.scope": true, "crio-0123abc.scope": true,
		"crio-conmon-0123abc.scope": false, "cri-containerd-ff0123abc.scope": false, "4567def": false,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, cgroup.Host{V2: true})
			h.ensure(newPod("a", "1", ""))
			dir := "kubepods/burstable/poda/" + name
			if err := os.Mkdir(filepath.Join(h.mount, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			process := exec.CommandContext(t.Context(), "sleep", "600")
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			h.put(dir+"/cgroup.procs", fmt.Sprint(process.Process.Pid))
			exited := make(chan struct{})
			go func() {
				defer close(exited)
				_ = process.Wait()
				_ = os.WriteFile(filepath.Join(h.mount, dir, "cgroup.procs"), nil, 0o600) // as the kernel does
			}()
			if err := h.KillContainers(t.Context(), "a", []string{"89", "0123abc", ""}); err != nil {
				t.Error(err)
			}
			if killed {
				<-exited // or the test hangs
				return
			}
			if err := process.Process.Kill(); err != nil {
				t.Errorf("the process was killed: %v", err)
			}
			<-exited
		})
	}
}

func TestConfig_DriverRequired(t *testing.T) {
	if _, err := manager.New(manager.Config{}); err == nil || fmt.Sprint(err) != "manager.Config: Driver is required" {
		t.Errorf("got error %v", err)
	}
}

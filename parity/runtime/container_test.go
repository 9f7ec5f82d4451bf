package runtime_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/cgroup/manager"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
)

// podCgroups returns the directories of the pod's cgroup, in every hierarchy.
func podCgroups(t *testing.T, pod *v1.Pod) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since it was listed
		}
		if err == nil && entry.IsDir() && entry.Name() == "pod"+string(pod.UID) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// withCgroups manages the cgroups of pods below root.
func withCgroups(t *testing.T, c *containerd.Containerd, root string) func(*cri.Config) {
	t.Helper()
	r, _ := newRuntime(t, c) // only to ask for the driver
	cgroups, err := manager.New(manager.Config{Root: root, Driver: r.CgroupDriver})
	if err != nil {
		t.Fatal(err)
	}
	return func(config *cri.Config) { config.CgroupParent, config.Cgroups = root+"/kubepods", cgroups }
}

// CGR-1, CGR-11, CGR-19, CGR-22
func TestRuntime_PodCgroup(t *testing.T) {
	c := containerd.ForTest(t)
	parent := "/" + filepath.Base(c.Dir())
	r, _ := newRuntime(t, c, withCgroups(t, c, parent))
	t.Cleanup(func() { removeCgroups(t, parent) })
	pod := newPod("pause")
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")},
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")},
	}
	got := run(t, r, pod)
	groups := podCgroups(t, pod)
	if len(groups) == 0 {
		t.Fatal("the pod has no cgroup")
	}
	if !strings.Contains(groups[0], parent+"/kubepods/burstable/") {
		t.Errorf("got cgroup %s, want one below %s/kubepods/burstable", groups[0], parent)
	}
	limit, err := memoryLimit(groups, got.Containers[0].ID.ID)
	if err != nil || limit != "67108864" {
		t.Errorf("got memory limit %q, %v; want 67108864", limit, err)
	}
	limit, err = memoryLimit(groups, ".")
	if err != nil || limit != "67108864" {
		t.Errorf("got memory limit %q of the pod, %v; want 67108864", limit, err)
	}
	remove(t, r, pod)
	if left := podCgroups(t, pod); len(left) > 0 {
		t.Errorf("got cgroups %v, want none", left)
	}
}

// A process that the runtime does not know is killed with the pod's cgroup, even if it is frozen.
func TestF22_LostProcessKilled(t *testing.T) {
	c := containerd.ForTest(t)
	parent := "/" + filepath.Base(c.Dir())
	r, _ := newRuntime(t, c, withCgroups(t, c, parent))
	t.Cleanup(func() { removeCgroups(t, parent) })
	pod := newPod("pause")
	run(t, r, pod)
	lost := exec.CommandContext(t.Context(), "sleep", "1h")
	if err := lost.Start(); err != nil {
		t.Fatal(err)
	}
	for _, group := range podCgroups(t, pod) {
		below := filepath.Join(group, "lost")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		// A new cpuset has neither and accepts no process.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if content, err := os.ReadFile(filepath.Join(group, file)); err == nil {
				_ = os.WriteFile(filepath.Join(below, file), content, 0o644)
			}
		}
		if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), fmt.Append(nil, lost.Process.Pid), 0o644); err != nil {
			t.Fatal(err)
		}
		state := filepath.Join(below, "freezer.state")
		if _, err := os.Stat(state); err == nil {
			if err := os.WriteFile(state, []byte("FROZEN"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove(t, r, pod)
	if err := lost.Wait(); err == nil {
		t.Error("the lost process exited by itself, want it killed")
	}
	if left := podCgroups(t, pod); len(left) > 0 {
		t.Errorf("got cgroups %v, want none", left)
	}
}

// memoryLimit reads the limit of a container, in cgroup v1 or v2.
func memoryLimit(groups []string, id string) (string, error) {
	for _, group := range groups {
		for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
			if content, err := os.ReadFile(filepath.Join(group, id, file)); err == nil {
				return strings.TrimSpace(string(content)), nil
			}
		}
	}
	return "", fmt.Errorf("no memory limit of container %s in %v", id, groups)
}

// removeCgroups removes the parent cgroups, which only the test has used.
func removeCgroups(t *testing.T, parent string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup" + parent, "/sys/fs/cgroup/*" + parent} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Error(err)
		}
		for _, dir := range found {
			for _, below := range []string{"kubepods/burstable", "kubepods/besteffort", "kubepods", "."} {
				if err := os.Remove(filepath.Join(dir, below)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			}
		}
	}
}

func TestRuntime_SubPathStaysInVolume(t *testing.T) {
	c := containerd.ForTest(t)
	r, config := newRuntime(t, c)
	volume := t.TempDir()
	for link, target := range map[string]string{"out": "/etc", "up": "../..", "in": "dir"} {
		if err := os.Symlink(target, filepath.Join(volume, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(volume, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	pod := newPod("pause")
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: volume}}}}
	sandbox, err := r.StartSandbox(t.Context(), pod, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, subPath := range []string{"out/passwd", "out", "up"} {
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d", SubPath: subPath}}
		err := r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0]})
		if waitingReason(err) != "CreateContainerConfigError" {
			t.Errorf("subPath %s: got %v, want CreateContainerConfigError", subPath, err)
		}
	}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/d", SubPath: "in"}, {Name: "data", MountPath: "/new", SubPath: "made/here"},
	}
	if err := r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0]}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(volume, "made", "here")); err != nil {
		t.Error(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), config.Root) {
		t.Error("a subPath is still mounted on the machine while the container runs")
	}
	remove(t, r, pod)
	if left, err := os.ReadDir(config.Root); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v after the removal, want nothing", left, err)
	}
}

func TestRuntime_SecurityContext(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	pod := newPod("pause")
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true), FSGroup: new(int64(3000))}
	pod.Spec.Hostname = "till"
	pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
	}
	sandbox, err := r.StartSandbox(t.Context(), pod, 0)
	if err != nil {
		t.Fatal(err)
	}
	start := plan.Start{Container: &pod.Spec.Containers[0], Kind: derive.RegularContainer}
	if err := r.StartContainer(t.Context(), pod, sandbox, start); err == nil || !strings.Contains(err.Error(), "image will run as root") {
		t.Fatalf("runAsNonRoot: got %v, want an error about root", err)
	}
	pod.Spec.Containers[0].SecurityContext.RunAsUser = new(int64(1234))
	if err := r.StartContainer(t.Context(), pod, sandbox, start); err != nil {
		t.Fatal(err)
	}
	id := inspect(t, r, pod).Containers[0].ID
	for file, want := range map[string][]string{
		"/proc/self/status":         {"Uid:\t1234\t", " 3000 \n", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"},
		"/proc/sys/kernel/hostname": {"till\n"},
	} {
		output, code, err := r.Exec(t.Context(), id, testpod("cat", file))
		if err != nil || code != 0 {
			t.Fatalf("cat %s: code %d, %v", file, code, err)
		}
		for _, line := range want {
			if !strings.Contains(string(output), line) {
				t.Errorf("%s: got %s, want %q in it", file, output, line)
			}
		}
	}
	remove(t, r, pod)
}

func TestRuntime_HostNetwork(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	pod := newPod("pause")
	pod.Spec.HostNetwork = true
	got := run(t, r, pod)
	if sandbox := got.Sandboxes[0]; !sandbox.HostNetwork || sandbox.Network != nil || len(got.IPs) > 0 ||
		got.Containers[0].State != observed.Running {
		t.Errorf("got %+v, want a running container on the host network", got)
	}
	remove(t, r, pod)
}

package provision_test

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// A kubelet that takes over the node leaves an emptyDir alone if it is marked as complete.
func TestEmptyDir_MarkedForKubelet(t *testing.T) {
	h := newHarness(t)
	pod := newPod("web", emptyDirVolume(""))
	h.mount(pod)
	marker := filepath.Join(h.config.Root, "uid-of-web/plugins/kubernetes.io~empty-dir/scratch/ready")
	if info, err := os.Stat(marker); err != nil || !info.Mode().IsRegular() {
		t.Errorf("got %v, %v, want a regular file", info, err)
	}
	if err := os.Remove(marker); err != nil { // an agent that does not write it
		t.Fatal(err)
	}
	h.mount(pod)
	if _, err := os.Stat(marker); err != nil {
		t.Error(err)
	}
	h.unmount(pod)
}

// The kubelet also marks the volumes that it wraps. What other plugins have stored for the pod is theirs.
func TestUnmount_KubeletPlugins(t *testing.T) {
	h := newHarness(t)
	pod := newPod("web")
	plugins := filepath.Join(h.config.Root, "uid-of-web/plugins")
	writeText(t, "", mkdir(t, plugins, "kubernetes.io~empty-dir/wrapped_keys"), "ready")
	h.unmount(pod)

	writeText(t, "", mkdir(t, plugins, "kubernetes.io~empty-dir/wrapped_keys"), "ready")
	writeText(t, "kept", mkdir(t, plugins, "example.com~driver"), "state")
	if err := h.Unmount(t.Context(), podid.UID(pod.UID)); err != nil {
		t.Fatal(err)
	}
	if got := readText(t, plugins, "example.com~driver/state"); got != "kept" {
		t.Errorf("state of another plugin: got %q", got)
	}
	if _, err := os.Stat(filepath.Join(plugins, "kubernetes.io~empty-dir")); !os.IsNotExist(err) {
		t.Errorf("marks of the pod's volumes remain: %v", err)
	}
}

func TestMount_DownwardAPIInMemory(t *testing.T) {
	runWithAndWithoutCapabilities(t, func(t *testing.T) {
		h := newHarness(t)
		pod := newPod("web", v1.Volume{Name: "self", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		}}})
		h.mount(pod)
		dir := h.path(pod, "self")
		if got := isInMemory(t, dir); got != canMount(t) {
			t.Errorf("got in memory %t, want %t", got, canMount(t))
		}
		if mode := modeOf(t, dir).Perm(); mode != 0o755 || readText(t, dir, "name") != "web" {
			t.Errorf("got mode %v and %q", mode, readText(t, dir, "name"))
		}
		h.unmount(pod)
	})
}

// Pods that run when the root changes keep their volumes, also those that are mounted later.
func TestMount_FormerRoot(t *testing.T) {
	h := newHarness(t)
	former := h.config.Root
	old, fresh := newPod("old", emptyDirVolume("")), newPod("fresh", emptyDirVolume(""))
	h.mount(old)
	writeText(t, "kept", h.path(old, "scratch"), "file")
	h.config.Root, h.config.FormerRoot = filepath.Join(t.TempDir(), "pods"), former
	h.restart()
	h.putConfigMap("web", "colour", "red")
	old.Spec.Volumes = append(old.Spec.Volumes, configMapVolume("web"))
	h.mount(old)
	h.mount(fresh)
	if got := readText(t, h.path(old, "scratch"), "file"); got != "kept" {
		t.Errorf("file of a running pod: got %q", got)
	}
	for volume, want := range map[string]string{h.path(old, "scratch"): former, h.path(old, "conf"): former, h.path(fresh, "scratch"): h.config.Root} {
		if rel, err := filepath.Rel(want, volume); err != nil || !filepath.IsLocal(rel) {
			t.Errorf("got %s, want it in %s", volume, want)
		}
	}
	if uids, err := h.Pods(); err != nil || len(uids) != 2 {
		t.Errorf("got pods %v, %v, want both", uids, err)
	}
	h.unmount(fresh)
	h.unmount(old)
	if entries, err := os.ReadDir(former); err != nil || len(entries) != 0 {
		t.Errorf("former root: got %v, %v, want it empty", entries, err)
	}
}

package cri_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest"
)

// podWithSubPath returns a pod that mounts the subPath of the volume data.
func podWithSubPath(subPath string) *v1.Pod {
	return newPod(func(pod *v1.Pod) {
		pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d", SubPath: subPath}}
	})
}

// A container of any user must be able to use a directory that is created for its subPath, as far as it may use the volume.
func TestSubPath_ModeOfVolume(t *testing.T) {
	heraldtest.InMountNamespace(t, func() {
		inBubble(t, func(h *harness) {
			defer unix.Umask(unix.Umask(0o077))
			volume := filepath.Join(h.root, "data")
			h.mkdir(volume + "/existing")
			if err := errors.Join(os.Chown(volume, 0, 2000), os.Chmod(volume, 0o777|os.ModeSetgid), os.Chmod(volume+"/existing", 0o700)); err != nil {
				h.Fatal(err)
			}
			for uid, subPath := range map[types.UID]string{"uid-1": "created/below", "uid-2": "existing/below"} {
				pod := podWithSubPath(subPath)
				withUID(uid)(pod)
				if err := h.startFirst(h.Context(), pod); err != nil {
					h.Fatal(err)
				}
			}
			for name, want := range map[string]struct {
				mode  os.FileMode
				group uint32
			}{
				"created":        {0o777 | os.ModeSetgid, 2000},
				"created/below":  {0o777 | os.ModeSetgid, 2000},
				"existing":       {0o700, 0},
				"existing/below": {0o777 | os.ModeSetgid, 0},
			} {
				info, err := os.Stat(filepath.Join(volume, name))
				if err != nil {
					h.Fatal(err)
				}
				if mode, group := info.Mode()&^os.ModeDir, info.Sys().(*syscall.Stat_t).Gid; mode != want.mode || group != want.group {
					h.Errorf("%s: got mode %v and group %d, want %v and %d", name, mode, group, want.mode, want.group)
				}
			}
		})
	})
}

func TestSubPath_VolumeIsNotDirectory(t *testing.T) {
	tests := map[string]func(path string) error{
		"pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"device": func(path string) error { return os.Symlink("/dev/tty", path) },
		"file":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
	}
	for name, create := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, t.TempDir()) // a blocking open would hang a bubble
			volume := filepath.Join(h.root, "data")
			if err := create(volume); err != nil {
				t.Fatal(err)
			}
			pod := podWithSubPath("below")
			id := h.startSandbox(pod)
			done := make(chan error, 1)
			go func() { done <- h.StartContainer(t.Context(), pod, id, firstStart(pod)) }()
			select {
			case err := <-done:
				const want = "not a directory"
				if err == nil || !strings.Contains(err.Error(), want) || waitingReason(err) != "CreateContainerConfigError" {
					t.Errorf("got %s: %v, want %s", waitingReason(err), err, want)
				}
			case <-time.After(10 * time.Second):
				t.Error("StartContainer blocks on the volume")
				if pipe, err := os.OpenFile(volume, os.O_RDWR, 0); err == nil { // ends the call
					pipe.Close()
				}
				<-done
			}
		})
	}
}

// With shared mounts, which systemd makes the default, the bind mount of a subPath and the volume are peers: a mount below one
// appears below the other, and so does its removal.
func TestSubPath_UnmountSparesVolume(t *testing.T) {
	heraldtest.InMountNamespace(t, func() {
		root := t.TempDir()
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // the directory is removed next
			if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		if err := unix.Mount("", root, "", unix.MS_SHARED, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, root)
			mountAt := func(dir string) {
				h.mkdir(filepath.Join(root, dir))
				if err := unix.Mount("tmpfs", filepath.Join(root, dir), "tmpfs", 0, ""); err != nil {
					t.Fatal(err)
				}
			}
			mountAt("data/sub/before")
			mountAt("data/sub/before/nested")
			var bound bool
			h.fake.inject("CreateContainer", func(_ context.Context, execute func() (any, error)) (any, error) {
				_, err := os.Stat(filepath.Join(root, "pods/uid-1/volume-subpaths/data/web/0/before"))
				bound = err == nil
				mountAt("data/sub/during")
				mountAt("data/sub/during/nested")
				return execute()
			})
			h.startPod(podWithSubPath("sub"))
			want := []string{"", "/data/sub/before", "/data/sub/before/nested", "/data/sub/during", "/data/sub/during/nested"}
			if diff := cmp.Diff(want, mountsBelow(t, root)); diff != "" || !bound {
				t.Errorf("bound %t, mounts (-want +got):\n%s", bound, diff)
			}
		})
	})
}

// The kubelet keeps its bind mounts until the pod is removed, one level deeper than earlier versions of this package.
func TestRemovePod_KubeletSubPaths(t *testing.T) {
	heraldtest.InMountNamespace(t, func() {
		inBubble(t, func(h *harness) {
			volume, subPaths := filepath.Join(h.root, "data"), filepath.Join(h.root, "pods/uid-1/volume-subpaths")
			h.mkdir(volume + "/dir/below")
			if err := os.WriteFile(volume+"/file", []byte("kept"), 0o600); err != nil {
				h.Fatal(err)
			}
			bind := func(source, target string) {
				if err := unix.Mount(filepath.Join(volume, source), filepath.Join(subPaths, target), "", unix.MS_BIND, ""); err != nil {
					h.Fatal(err)
				}
			}
			h.mkdir(subPaths + "/data/web/0")
			h.mkdir(subPaths + "/old/0")
			if err := os.WriteFile(subPaths+"/data/web/1", nil, 0o600); err != nil {
				h.Fatal(err)
			}
			bind("dir", "data/web/0")
			bind("file", "data/web/1")
			bind("dir", "old/0")
			if err := h.RemovePod(h.Context(), "uid-1"); err != nil {
				h.Fatal(err)
			}
			if mounts := mountsBelow(h.T, h.root); len(mounts) > 0 {
				h.Errorf("got remaining mounts %v", mounts)
			}
			if files := listFiles(h.T, h.root); !slices.Contains(files, "data/dir/below") || !slices.Contains(files, "data/file") ||
				slices.Contains(files, "pods/uid-1") {
				h.Errorf("got files %v", files)
			}
		})
	})
}

// mountsBelow returns the mount points at and below root, relative to it.
func mountsBelow(t *testing.T, root string) []string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var mounts []string
	for line := range strings.Lines(string(content)) {
		if name, ok := strings.CutPrefix(strings.Fields(line)[4], root); ok {
			mounts = append(mounts, name)
		}
	}
	slices.Sort(mounts)
	return mounts
}

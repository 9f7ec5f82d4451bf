package provision_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"os"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/podid"
)

func TestUnmount_PartialState(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, pod string){
		"nothing":             func(*testing.T, string) {},
		"empty pod directory": func(t *testing.T, pod string) { mkdir(t, pod) },
		"no plugin":           func(t *testing.T, pod string) { mkdir(t, pod, "volumes") },
		"empty plugin":        func(t *testing.T, pod string) { mkdir(t, pod, "volumes", "kubernetes.io~secret") },
		"incomplete emptyDir": func(t *testing.T, pod string) { mkdir(t, pod, "volumes", "kubernetes.io~empty-dir", "..new-x") },
		"incomplete files": func(t *testing.T, pod string) {
			mkdir(t, pod, "volumes", "kubernetes.io~secret", "keys", "..2026_1", "x")
		},
		"file instead of plugin": func(t *testing.T, pod string) { writeText(t, "", mkdir(t, pod, "volumes"), "odd") },
		"unknown plugin":         func(t *testing.T, pod string) { mkdir(t, pod, "volumes", "kubernetes.io~csi", "x", "mount") },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			prepare(t, filepath.Join(h.config.Root, "uid-of-web"))
			h.unmount(newPod("web"))
			h.unmount(newPod("web"))
		})
	}
	if err := newHarness(t).Unmount(t.Context(), "../../etc"); err == nil {
		t.Error("Unmount accepted an invalid UID")
	}
}

// expiringContext ends after a number of calls of Err, as if the process had died there.
type expiringContext struct {
	context.Context //nolint:containedctx // it is a context
	left            int
}

func (c *expiringContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestUnmount_Interrupted(t *testing.T) {
	h := newHarness(t)
	h.putSecret("keys", "key", "s3cret")
	h.putConfigMap("web", "a", "1")
	pod := newPod("web", emptyDirVolume(""), secretVolume("keys"), configMapVolume("web"))
	interrupted := 0
	for ; ; interrupted++ {
		h.mount(pod)
		for _, name := range []string{"a", "b", "c/d"} {
			writeText(t, "", mkdir(t, h.path(pod, "scratch"), name), "file")
		}
		err := h.Unmount(&expiringContext{t.Context(), interrupted}, podid.UID(pod.UID))
		if err == nil {
			break
		}
		if uids, err := h.Pods(); err != nil || len(uids) != 1 {
			t.Errorf("after %d checks: got pods %v, error %v, want one", interrupted, uids, err)
		}
		h.restart()
		h.unmount(pod)
	}
	if interrupted < 5 {
		t.Errorf("got %d interruptions, want at least 5", interrupted)
	}
}

func TestPods_List(t *testing.T) {
	h := newHarness(t)
	if uids, err := h.Pods(); err != nil || len(uids) > 0 {
		t.Errorf("before the first mount: got %v, error %v", uids, err)
	}
	h.mount(newPod("a", emptyDirVolume("")))
	h.mount(newPod("b"))
	mkdir(t, h.config.Root, "uid-of-c")
	mkdir(t, h.config.Root, "uid-of-d", "containers")
	writeText(t, "", h.config.Root, "file")
	uids, err := h.Pods()
	if diff := cmp.Diff([]podid.UID{"uid-of-a", "uid-of-c"}, uids); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestUnmount_OtherFilesKept(t *testing.T) {
	h := newHarness(t)
	pod := newPod("web", emptyDirVolume(""))
	h.mount(pod)
	writeText(t, "127.0.0.1", h.config.Root, "uid-of-web", "etc-hosts")
	if err := h.Unmount(t.Context(), podid.UID(pod.UID)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"etc-hosts": "0644 127.0.0.1"}, visible(t, filepath.Join(h.config.Root, "uid-of-web"))); diff != "" {
		t.Error(diff)
	}
}

func TestPath_UnknownVolume(t *testing.T) {
	if path, err := newHarness(t).Path(newPod("web"), "gone"); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("got path %q, error %v, want an error", path, err)
	}
}

// createOutsideLinks creates links that leave the directory, as a container might, and returns their target.
func createOutsideLinks(t *testing.T, dir string) (outside string) {
	t.Helper()
	outside = t.TempDir()
	mkdir(t, outside, "dir")
	writeText(t, "precious", outside, "file")
	writeText(t, "precious", outside, "dir", "file")
	symlink(t, outside, dir, "to-dir")
	symlink(t, filepath.Join(outside, "file"), dir, "to-file")
	return outside
}

func wantUnchanged(t *testing.T, outside string) {
	t.Helper()
	if diff := cmp.Diff(map[string]string{"file": "0644 precious", "dir/file": "0644 precious"}, visible(t, outside)); diff != "" {
		t.Error(diff)
	}
}

func TestHostile_SymbolicLinks(t *testing.T) {
	h := newHarness(t)
	h.putConfigMap("web", "a", "1", "b", "2", "to-file", "3")
	pod := newPod("web", emptyDirVolume(""), configMapVolume("web"))
	h.mount(pod)
	scratch, conf := h.path(pod, "scratch"), h.path(pod, "conf")
	inScratch := createOutsideLinks(t, scratch)
	if err := os.Remove(filepath.Join(conf, "to-file")); err != nil {
		t.Fatal(err)
	}
	inConf := createOutsideLinks(t, conf)
	for _, name := range []string{"..data", "a", "..data_tmp"} {
		if err := os.RemoveAll(filepath.Join(conf, name)); err != nil {
			t.Fatal(err)
		}
		symlink(t, inConf, conf, name)
	}
	symlink(t, inConf, conf, "..2026_old")
	h.mount(pod)
	wantUnchanged(t, inConf)
	want := map[string]string{"a": "0644 1", "b": "0644 2", "to-file": "0644 3", "to-dir/file": "0644 precious", "to-dir/dir/file": "0644 precious"}
	if diff := cmp.Diff(want, visible(t, conf)); diff != "" {
		t.Error(diff)
	}
	h.unmount(pod)
	wantUnchanged(t, inConf)
	wantUnchanged(t, inScratch)
}

func TestHostile_DataLinkReplaced(t *testing.T) {
	h := newHarness(t)
	h.putConfigMap("web", "a", "1")
	pod := newPod("web", configMapVolume("web"))
	h.mount(pod)
	conf := h.path(pod, "conf")
	for _, name := range []string{"..data", "a"} {
		if err := os.Remove(filepath.Join(conf, name)); err != nil {
			t.Fatal(err)
		}
		writeText(t, "", mkdir(t, conf, name, "x"), "y")
	}
	h.mount(pod)
	if diff := cmp.Diff(map[string]string{"a": "0644 1"}, visible(t, conf)); diff != "" {
		t.Error(diff)
	}
}

func TestHostile_ModifiedFile(t *testing.T) {
	h := newHarness(t)
	h.putConfigMap("web", "a", "1")
	pod := newPod("web", configMapVolume("web"))
	h.mount(pod)
	conf := h.path(pod, "conf")
	writeText(t, "forged", conf, "a")
	writeText(t, "more", conf, "..data", "b")
	h.mount(pod)
	if got := readText(t, conf, "a"); got != "1" {
		t.Errorf("got %q, want 1", got)
	}
	if _, err := os.Lstat(filepath.Join(conf, "..data", "b")); !os.IsNotExist(err) {
		t.Errorf("unexpected file still exists: %v", err)
	}
}

func TestHostile_DeepTree(t *testing.T) {
	runWithAndWithoutCapabilities(t, testDeepTree)
}

func testDeepTree(t *testing.T) {
	h := newHarness(t)
	pod := newPod("web", emptyDirVolume(""))
	h.mount(pod)
	scratch := h.path(pod, "scratch")
	mkdir(t, scratch, "..deep-1", "taken")
	locked := mkdir(t, scratch, "locked", "inner")
	writeText(t, "", locked, "file")
	for _, dir := range []string{locked, filepath.Dir(locked)} {
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(scratch, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	deep, err := os.OpenRoot(scratch)
	for range 1500 { // exceeds the limits of paths and of open files
		if err == nil {
			err = deep.Mkdir("dir-with-a-name", 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		inner, innerErr := deep.OpenRoot("dir-with-a-name")
		deep.Close()
		deep, err = inner, innerErr
	}
	deep.Close()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = min(limit.Cur, 400)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &small); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) //nolint:errcheck // restores the old limit
	h.unmount(pod)
}

func TestHostile_ForeignMount(t *testing.T) {
	if !canMount(t) {
		t.Skip("requires the permission to mount")
	}
	for name, test := range map[string]struct {
		place   string // relative to the pod's directory
		isTmpfs bool
	}{
		"bind mount in a volume": {"volumes/kubernetes.io~empty-dir/scratch/in/place", false},
		"tmpfs in a volume":      {"volumes/kubernetes.io~empty-dir/scratch/in/place", true},
		"at a plugin":            {"volumes/kubernetes.io~csi", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			pod := newPod("web", emptyDirVolume(""))
			h.mount(pod)
			outside := t.TempDir()
			writeText(t, "precious", outside, "file")
			place := mkdir(t, h.config.Root, string(pod.UID), test.place)
			if test.isTmpfs {
				if err := unix.Mount("tmpfs", outside, "tmpfs", 0, ""); err != nil {
					t.Fatal(err)
				}
				defer unix.Unmount(outside, 0) //nolint:errcheck // cleanup
				writeText(t, "precious", outside, "file")
			}
			if err := unix.Mount(outside, place, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				err := h.Unmount(t.Context(), podid.UID(pod.UID))
				if err == nil || !strings.Contains(err.Error(), place) || !strings.Contains(err.Error(), "mounted") {
					t.Errorf("got %v, want an error about the mount", err)
				}
			}
			if err := unix.Unmount(place, 0); err != nil {
				t.Fatal(err)
			}
			h.unmount(pod)
			if readText(t, outside, "file") != "precious" {
				t.Error("mounted file was changed")
			}
		})
	}
}

func TestHostile_ForeignMountAtVolume(t *testing.T) {
	if !canMount(t) {
		t.Skip("requires the permission to mount")
	}
	h := newHarness(t)
	h.putSecret("keys", "key", "s3cret")
	pod := newPod("web", secretVolume("keys"))
	outside := t.TempDir()
	writeText(t, "precious", outside, "file")
	place := mkdir(t, h.path(pod, "keys"))
	if err := unix.Mount(outside, place, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := h.Mount(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("Mount: got %v, want an error about the mount", err)
	}
	if err := h.Unmount(t.Context(), podid.UID(pod.UID)); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("Unmount: got %v, want an error about the mount", err)
	}
	if err := unix.Unmount(place, 0); err != nil {
		t.Fatal(err)
	}
	h.unmount(pod)
	readText(t, outside, "file")
}

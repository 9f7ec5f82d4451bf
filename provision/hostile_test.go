package provision_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/podid"
)

// plant makes links out of the folder, as a container might, and returns what they lead to.
func plant(t *testing.T, folder string) (outside string) {
	t.Helper()
	outside = t.TempDir()
	makeFolder(t, outside, "folder")
	writeText(t, "precious", outside, "file")
	writeText(t, "precious", outside, "folder", "file")
	makeLink(t, outside, folder, "to-folder")
	makeLink(t, filepath.Join(outside, "file"), folder, "to-file")
	return outside
}

func unharmed(t *testing.T, outside string) {
	t.Helper()
	if diff := cmp.Diff(map[string]string{"file": "0644 precious", "folder/file": "0644 precious"}, visible(t, outside)); diff != "" {
		t.Error(diff)
	}
}

func TestLinksThatAContainerPlantedLeadNowhere(t *testing.T) {
	w := newWorld(t)
	w.putConfigMap("web", "a", "1", "b", "2", "to-file", "3")
	pod := newPod("web", emptyDirVolume(""), configMapVolume("web"))
	w.mount(pod)
	scratch, conf := w.path(pod, "scratch"), w.path(pod, "conf")
	inScratch := plant(t, scratch)
	if err := os.Remove(filepath.Join(conf, "to-file")); err != nil {
		t.Fatal(err)
	}
	inConf := plant(t, conf)
	for _, name := range []string{"..data", "a", "..data_tmp"} {
		if err := os.RemoveAll(filepath.Join(conf, name)); err != nil {
			t.Fatal(err)
		}
		makeLink(t, inConf, conf, name)
	}
	makeLink(t, inConf, conf, "..2026_old")
	w.mount(pod)
	unharmed(t, inConf)
	want := map[string]string{"a": "0644 1", "b": "0644 2", "to-file": "0644 3", "to-folder/file": "0644 precious", "to-folder/folder/file": "0644 precious"}
	if diff := cmp.Diff(want, visible(t, conf)); diff != "" {
		t.Error(diff)
	}
	w.unmount(pod)
	unharmed(t, inConf)
	unharmed(t, inScratch)
}

func TestAFolderInPlaceOfTheDataLinkIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.putConfigMap("web", "a", "1")
	pod := newPod("web", configMapVolume("web"))
	w.mount(pod)
	conf := w.path(pod, "conf")
	for _, name := range []string{"..data", "a"} {
		if err := os.Remove(filepath.Join(conf, name)); err != nil {
			t.Fatal(err)
		}
		writeText(t, "", makeFolder(t, conf, name, "x"), "y")
	}
	w.mount(pod)
	if diff := cmp.Diff(map[string]string{"a": "0644 1"}, visible(t, conf)); diff != "" {
		t.Error(diff)
	}
}

func TestAFileThatSomebodyChangedIsWrittenAgain(t *testing.T) {
	w := newWorld(t)
	w.putConfigMap("web", "a", "1")
	pod := newPod("web", configMapVolume("web"))
	w.mount(pod)
	conf := w.path(pod, "conf")
	writeText(t, "forged", conf, "a")
	writeText(t, "more", conf, "..data", "b")
	w.mount(pod)
	if got := readText(t, conf, "a"); got != "1" {
		t.Errorf("a is %q", got)
	}
	if _, err := os.Lstat(filepath.Join(conf, "..data", "b")); !os.IsNotExist(err) {
		t.Errorf("a file that is not in the config map: %v", err)
	}
}

func TestATreeThatIsHardToRemoveIsRemoved(t *testing.T) {
	withAndWithoutRights(t, treeThatIsHardToRemove)
}

func treeThatIsHardToRemove(t *testing.T) {
	w := newWorld(t)
	pod := newPod("web", emptyDirVolume(""))
	w.mount(pod)
	scratch := w.path(pod, "scratch")
	makeFolder(t, scratch, "..deep-1", "taken")
	locked := makeFolder(t, scratch, "locked", "inner")
	writeText(t, "", locked, "file")
	for _, folder := range []string{locked, filepath.Dir(locked)} {
		if err := os.Chmod(folder, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(scratch, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	deep, err := os.OpenRoot(scratch)
	for range 1500 { // longer than a path can be, and than files can be open
		if err == nil {
			err = deep.Mkdir("folder-with-a-name", 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		inner, innerErr := deep.OpenRoot("folder-with-a-name")
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
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) //nolint:errcheck // it was allowed before
	w.unmount(pod)
}

func TestWhatSomebodyElseMountedIsNotTouched(t *testing.T) {
	if !canMount(t) {
		t.Skip("this process may not mount; run the tests as root too")
	}
	for name, tc := range map[string]struct {
		place   string // below the pod's folder
		isTmpfs bool
	}{
		"a folder of the same disk in a volume": {"volumes/kubernetes.io~empty-dir/scratch/in/place", false},
		"a file system of its own in a volume":  {"volumes/kubernetes.io~empty-dir/scratch/in/place", true},
		"in place of a plugin":                  {"volumes/kubernetes.io~csi", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pod := newPod("web", emptyDirVolume(""))
			w.mount(pod)
			outside := t.TempDir()
			writeText(t, "precious", outside, "file")
			place := makeFolder(t, w.config.Root, string(pod.UID), tc.place)
			if tc.isTmpfs {
				if err := unix.Mount("tmpfs", outside, "tmpfs", 0, ""); err != nil {
					t.Fatal(err)
				}
				defer unix.Unmount(outside, 0) //nolint:errcheck // the test's own
				writeText(t, "precious", outside, "file")
			}
			if err := unix.Mount(outside, place, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				err := w.Unmount(t.Context(), podid.UID(pod.UID))
				if err == nil || !strings.Contains(err.Error(), place) || !strings.Contains(err.Error(), "mounted") {
					t.Errorf("error %v", err)
				}
			}
			if err := unix.Unmount(place, 0); err != nil {
				t.Fatal(err)
			}
			w.unmount(pod)
			if readText(t, outside, "file") != "precious" {
				t.Error("it was written to")
			}
		})
	}
}

func TestAForeignMountInPlaceOfAVolumeIsAnError(t *testing.T) {
	if !canMount(t) {
		t.Skip("this process may not mount; run the tests as root too")
	}
	w := newWorld(t)
	w.putSecret("keys", "key", "s3cret")
	pod := newPod("web", secretVolume("keys"))
	outside := t.TempDir()
	writeText(t, "precious", outside, "file")
	place := makeFolder(t, w.path(pod, "keys"))
	if err := unix.Mount(outside, place, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.Mount(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("mount: %v", err)
	}
	if err := w.Unmount(t.Context(), podid.UID(pod.UID)); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("unmount: %v", err)
	}
	if err := unix.Unmount(place, 0); err != nil {
		t.Fatal(err)
	}
	w.unmount(pod)
	readText(t, outside, "file")
}

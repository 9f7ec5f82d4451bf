package provision_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/podid"
)

func TestAnEmptyDirIsMadeOnceAndThenLeftAlone(t *testing.T) {
	w := newWorld(t)
	pod := newPod("web", emptyDirVolume(""))
	w.mount(pod)
	folder := w.path(pod, "scratch")
	if mode := modeOf(t, folder); mode != os.ModeDir|0o777 {
		t.Errorf("mode %v", mode)
	}
	writeText(t, "kept", folder, "file")
	if err := os.Chmod(folder, 0o700); err != nil { // as data bases do
		t.Fatal(err)
	}
	w.restart()
	w.mount(pod)
	if mode := modeOf(t, folder); mode != os.ModeDir|0o700 || readText(t, folder, "file") != "kept" {
		t.Errorf("the second mount changed it: %v", mode)
	}
	w.unmount(pod)
}

func TestAnEmptyDirThatACrashCutShortIsFinished(t *testing.T) {
	w := newWorld(t)
	pod := newPod("web", emptyDirVolume(""))
	makeFolder(t, filepath.Dir(w.path(pod, "scratch")), "..new-scratch")
	w.mount(pod)
	if mode := modeOf(t, w.path(pod, "scratch")); mode != os.ModeDir|0o777 {
		t.Errorf("mode %v", mode)
	}
	w.unmount(pod)
}

func TestAnEmptyDirInMemoryHasASizeOrSaysWhatItNeeds(t *testing.T) {
	w := newWorld(t)
	volume := emptyDirVolume(v1.StorageMediumMemory)
	volume.EmptyDir.SizeLimit = pointer(resource.MustParse("64Ki"))
	pod := newPod("web", volume)
	if !canMount(t) {
		err := w.Mount(t.Context(), pod)
		if err == nil || !strings.Contains(err.Error(), "emptyDir.medium: Memory") || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
			t.Errorf("error %v", err)
		}
		return
	}
	w.mount(pod)
	folder := w.path(pod, "scratch")
	if !isInMemory(t, folder) || modeOf(t, folder).Perm() != 0o777 {
		t.Errorf("in memory: %v, mode %v", isInMemory(t, folder), modeOf(t, folder))
	}
	if err := os.WriteFile(filepath.Join(folder, "big"), make([]byte, 1<<20), 0o644); err == nil {
		t.Error("a megabyte went into 64 kilobytes")
	}
	writeText(t, "kept", folder, "file")
	w.restart()
	w.mount(pod)
	if readText(t, folder, "file") != "kept" {
		t.Error("the second mount hid what was there")
	}
	w.unmount(pod)
}

func TestAnUnknownMediumIsRefused(t *testing.T) {
	w := newWorld(t)
	err := w.Mount(t.Context(), newPod("web", emptyDirVolume(v1.StorageMediumHugePages)))
	if err == nil || !strings.Contains(err.Error(), `emptyDir.medium: "HugePages"`) {
		t.Errorf("error %v", err)
	}
}

func TestSecretsAreInMemoryOrWhereOnlyOneUserEnters(t *testing.T) {
	w := newWorld(t)
	w.putSecret("keys", "key", "s3cret")
	named := v1.LocalObjectReference{Name: "keys"}
	pod := newPod("web", secretVolume("keys"), projectedVolume(v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: named}}))
	w.mount(pod)
	for _, volume := range []string{"keys", "all"} {
		folder := w.path(pod, volume)
		switch mode, inMemory := modeOf(t, folder).Perm(), isInMemory(t, folder); {
		case inMemory != canMount(t):
			t.Errorf("%s: in memory %v, could be %v", volume, inMemory, canMount(t))
		case inMemory && mode != 0o755, !inMemory && mode != 0o700:
			t.Errorf("%s: in memory %v, mode %v", volume, inMemory, mode)
		}
	}
	w.restart()
	w.mount(pod)
	if diff := cmp.Diff(map[string]string{"key": "0644 s3cret"}, visible(t, w.path(pod, "keys"))); diff != "" {
		t.Error(diff)
	}
	w.unmount(pod)
}

// ownGroup is a group that this process may give files to, and that it would not give them to anyway.
func ownGroup(t *testing.T) int64 {
	t.Helper()
	if os.Geteuid() == 0 {
		return 2000
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		if group != os.Getegid() {
			return int64(group)
		}
	}
	return int64(os.Getegid())
}

func TestTheFSGroupSharesTheVolumes(t *testing.T) {
	w := newWorld(t)
	w.putConfigMap("web", "a", "1", "b", "2")
	volume := configMapVolume("web")
	volume.ConfigMap.Items = []v1.KeyToPath{{Key: "a", Path: "in/a", Mode: pointer(int32(0o400))}, {Key: "b", Path: "b"}}
	w.putSecret("keys", "key", "s3cret")
	pod := newPod("web", volume, emptyDirVolume(""), secretVolume("keys"))
	group := ownGroup(t)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	if canMount(t) {
		memory := emptyDirVolume(v1.StorageMediumMemory)
		memory.Name = "memory"
		pod.Spec.Volumes = append(pod.Spec.Volumes, memory)
	}
	w.mount(pod)
	conf, private := w.path(pod, "conf"), os.FileMode(0o755)
	if !canMount(t) {
		private = 0o750
	}
	want := map[string]os.FileMode{
		conf: os.ModeDir | os.ModeSetgid | 0o755, filepath.Join(conf, "in"): os.ModeDir | os.ModeSetgid | 0o755,
		filepath.Join(conf, "in/a"): 0o440, filepath.Join(conf, "b"): 0o644,
		w.path(pod, "scratch"):                    os.ModeDir | os.ModeSetgid | 0o777,
		w.path(pod, "keys"):                       os.ModeDir | os.ModeSetgid | private,
		filepath.Join(w.path(pod, "keys"), "key"): 0o644,
	}
	if canMount(t) {
		want[w.path(pod, "memory")] = os.ModeDir | os.ModeSetgid | 0o777
	}
	for path, mode := range want {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode || int64(info.Sys().(*syscall.Stat_t).Gid) != group {
			t.Errorf("%s: mode %v, group %d, want %v", path, info.Mode(), info.Sys().(*syscall.Stat_t).Gid, mode)
		}
	}
	w.unmount(pod)
}

func TestAnFSGroupThatCannotBeSetIsNamed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may give files to every group; run the tests as another user too")
	}
	w := newWorld(t)
	pod := newPod("web", emptyDirVolume(""))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: pointer(int64(0))}
	if err := w.Mount(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "securityContext.fsGroup") {
		t.Errorf("error %v", err)
	}
}

func TestAHostPathIsWhatItsTypeSays(t *testing.T) {
	host := t.TempDir()
	file, folder, socket := filepath.Join(host, "file"), makeFolder(t, host, "folder"), filepath.Join(host, "socket")
	writeText(t, "", file)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	w := newWorld(t)
	for name, tc := range map[string]struct {
		path    string
		kind    v1.HostPathType
		refused string
	}{
		"anything":                       {filepath.Join(host, "nothing"), v1.HostPathUnset, ""},
		"a directory":                    {folder, v1.HostPathDirectory, ""},
		"a file":                         {file, v1.HostPathFile, ""},
		"a socket":                       {socket, v1.HostPathSocket, ""},
		"a character device":             {os.DevNull, v1.HostPathCharDev, ""},
		"a directory that is made":       {filepath.Join(host, "new/folder"), v1.HostPathDirectoryOrCreate, ""},
		"a directory that is there":      {folder, v1.HostPathDirectoryOrCreate, ""},
		"a file that is made":            {filepath.Join(host, "new.txt"), v1.HostPathFileOrCreate, ""},
		"a file that is there":           {file, v1.HostPathFileOrCreate, ""},
		"a file in no folder":            {filepath.Join(host, "no/such/file"), v1.HostPathFileOrCreate, "no such file"},
		"no directory":                   {filepath.Join(host, "nothing"), v1.HostPathDirectory, "no such file"},
		"no file":                        {filepath.Join(host, "nothing"), v1.HostPathFile, "no such file"},
		"a file, not a directory":        {file, v1.HostPathDirectory, "is not a directory"},
		"a file where one would be made": {file, v1.HostPathDirectoryOrCreate, "is not a directory"},
		"a directory, not a file":        {folder, v1.HostPathFileOrCreate, "is not a file"},
		"a file, not a socket":           {file, v1.HostPathSocket, "is not a socket"},
		"a socket, not a device":         {socket, v1.HostPathCharDev, "is not a character device"},
		"the wrong kind of device":       {os.DevNull, v1.HostPathBlockDev, "is not a block device"},
		"an unknown type":                {file, "Pipe", `"Pipe" is not known`},
		"a relative path":                {"etc", v1.HostPathUnset, "absolute"},
		"a way back":                     {host + "/../x", v1.HostPathUnset, "must not contain .."},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("web", v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: tc.path, Type: &tc.kind},
			}})
			err := w.Mount(t.Context(), pod)
			if tc.refused == "" && err != nil {
				t.Error(err)
			}
			if tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("error %v, want one that says %q", err, tc.refused)
			}
			if got := w.path(pod, "host"); got != tc.path {
				t.Errorf("path %s", got)
			}
		})
	}
	if mode := modeOf(t, filepath.Join(host, "new/folder")); mode != os.ModeDir|0o755 {
		t.Errorf("a directory was made with mode %v", mode)
	}
	w.unmount(newPod("web"))
	readText(t, file)
}

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
	for name, options := range map[string]string{"a folder of the same disk": "bind", "a file system of its own": "tmpfs"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pod := newPod("web", emptyDirVolume(""))
			w.mount(pod)
			outside := t.TempDir()
			writeText(t, "precious", outside, "file")
			place := makeFolder(t, w.path(pod, "scratch"), "in", "place")
			if options == "tmpfs" {
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

func TestUnmountGoesOnFromAnywhere(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, pod string){
		"nothing was there":             func(*testing.T, string) {},
		"an empty folder of the pod":    func(t *testing.T, pod string) { makeFolder(t, pod) },
		"no plugin":                     func(t *testing.T, pod string) { makeFolder(t, pod, "volumes") },
		"an empty plugin":               func(t *testing.T, pod string) { makeFolder(t, pod, "volumes", "kubernetes.io~secret") },
		"an empty-dir that is not done": func(t *testing.T, pod string) { makeFolder(t, pod, "volumes", "kubernetes.io~empty-dir", "..new-x") },
		"files that are not done": func(t *testing.T, pod string) {
			makeFolder(t, pod, "volumes", "kubernetes.io~secret", "keys", "..2026_1", "x")
		},
		"a file where a folder was":   func(t *testing.T, pod string) { writeText(t, "", makeFolder(t, pod, "volumes"), "odd") },
		"a plugin of another version": func(t *testing.T, pod string) { makeFolder(t, pod, "volumes", "kubernetes.io~csi", "x", "mount") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(t, filepath.Join(w.config.Root, "uid-of-web"))
			w.unmount(newPod("web"))
			w.unmount(newPod("web"))
		})
	}
	if err := newWorld(t).Unmount(t.Context(), "../../etc"); err == nil {
		t.Error("a UID that leads elsewhere was taken")
	}
}

func TestUnmountThatIsGivenUpGoesOnLater(t *testing.T) {
	w := newWorld(t)
	w.putSecret("keys", "key", "s3cret")
	pod := newPod("web", emptyDirVolume(""), secretVolume("keys"))
	w.mount(pod)
	writeText(t, "", makeFolder(t, w.path(pod, "scratch"), "a"), "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Unmount(ctx, podid.UID(pod.UID)); err == nil {
		t.Error("it did not stop")
	}
	w.restart()
	w.unmount(pod)
}

func TestPodsThatHaveSomethingOnDiskAreListed(t *testing.T) {
	w := newWorld(t)
	if uids, err := w.Pods(); err != nil || len(uids) > 0 {
		t.Errorf("before anything was mounted: %v, %v", uids, err)
	}
	w.mount(newPod("a", emptyDirVolume("")))
	w.mount(newPod("b"))
	makeFolder(t, w.config.Root, "uid-of-c")
	makeFolder(t, w.config.Root, "uid-of-d", "containers")
	writeText(t, "", w.config.Root, "file")
	uids, err := w.Pods()
	if diff := cmp.Diff([]podid.UID{"uid-of-a", "uid-of-c"}, uids); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestWhatOthersKeepBesideTheVolumesStays(t *testing.T) {
	w := newWorld(t)
	pod := newPod("web", emptyDirVolume(""))
	w.mount(pod)
	writeText(t, "127.0.0.1", w.config.Root, "uid-of-web", "etc-hosts")
	if err := w.Unmount(t.Context(), podid.UID(pod.UID)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"etc-hosts": "0644 127.0.0.1"}, visible(t, filepath.Join(w.config.Root, "uid-of-web"))); diff != "" {
		t.Error(diff)
	}
}

func TestAVolumeThatThePodHasNotIsNotFound(t *testing.T) {
	if path, err := newWorld(t).Path(newPod("web"), "gone"); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("path %q, error %v", path, err)
	}
}

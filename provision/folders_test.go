package provision_test

import (
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
	withAndWithoutRights(t, emptyDirInMemory)
}

func emptyDirInMemory(t *testing.T) {
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
	writeText(t, "kept", folder, "file")
	if err := os.WriteFile(filepath.Join(folder, "big"), make([]byte, 1<<20), 0o644); err == nil {
		t.Error("a megabyte went into 64 kilobytes")
	}
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
	withAndWithoutRights(t, secretsInMemory)
}

func TestFilesThatAreOnDiskStayThere(t *testing.T) {
	w := newWorld(t)
	w.putSecret("keys", "key", "s3cret")
	pod := newPod("web", secretVolume("keys"))
	t.Run("at first it may not mount", func(t *testing.T) {
		dropRights(t)
		if err := w.Mount(t.Context(), pod); err != nil {
			t.Error(err)
		}
	})
	w.restart()
	w.mount(pod)
	if isInMemory(t, w.path(pod, "keys")) {
		t.Error("something was mounted over the files that containers use")
	}
}

func TestAMountWithoutFilesIsNotMountedOver(t *testing.T) {
	if !canMount(t) {
		t.Skip("this process may not mount; run the tests as root too")
	}
	w := newWorld(t)
	w.putSecret("keys", "key", "s3cret")
	pod := newPod("web", secretVolume("keys"))
	folder := makeFolder(t, w.path(pod, "keys"))
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	w.mount(pod)
	if err := unix.Unmount(folder, 0); err != nil {
		t.Fatal(err)
	}
	if isInMemory(t, folder) {
		t.Error("there were two mounts")
	}
}

func secretsInMemory(t *testing.T) {
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
	if mayChown(t) {
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

func TestTheFSGroupSharesTheVolumes(t *testing.T) { withAndWithoutRights(t, sharedVolumes) }

func sharedVolumes(t *testing.T) {
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
	dropRights(t)
	w := newWorld(t)
	pod := newPod("web", emptyDirVolume(""))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: pointer(int64(4321))}
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
		"a way back":                     {host + "/../x", v1.HostPathUnset, `must not contain ".."`},
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

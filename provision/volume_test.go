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

func TestEmptyDir_CreatedOnce(t *testing.T) {
	h := newHarness(t)
	pod := newPod("web", emptyDirVolume(""))
	h.mount(pod)
	dir := h.path(pod, "scratch")
	if mode := modeOf(t, dir); mode != os.ModeDir|0o777 {
		t.Errorf("got mode %v, want 0777", mode)
	}
	writeText(t, "kept", dir, "file")
	if err := os.Chmod(dir, 0o700); err != nil { // as databases do
		t.Fatal(err)
	}
	h.restart()
	h.mount(pod)
	if mode := modeOf(t, dir); mode != os.ModeDir|0o700 || readText(t, dir, "file") != "kept" {
		t.Errorf("second mount changed the directory: got mode %v", mode)
	}
	h.unmount(pod)
}

func TestEmptyDir_AfterCrash(t *testing.T) {
	h := newHarness(t)
	pod := newPod("web", emptyDirVolume(""))
	mkdir(t, filepath.Dir(h.path(pod, "scratch")), "..new-scratch")
	h.mount(pod)
	if mode := modeOf(t, h.path(pod, "scratch")); mode != os.ModeDir|0o777 {
		t.Errorf("got mode %v, want 0777", mode)
	}
	h.unmount(pod)
}

func TestEmptyDir_Memory(t *testing.T) {
	runWithAndWithoutCapabilities(t, testEmptyDirMemory)
}

func testEmptyDirMemory(t *testing.T) {
	h := newHarness(t)
	volume := emptyDirVolume(v1.StorageMediumMemory)
	volume.EmptyDir.SizeLimit = new(resource.MustParse("64Ki"))
	pod := newPod("web", volume)
	if !canMount(t) {
		err := h.Mount(t.Context(), pod)
		if err == nil || !strings.Contains(err.Error(), "emptyDir.medium: Memory") || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
			t.Errorf("got %v, want an error about CAP_SYS_ADMIN", err)
		}
		return
	}
	h.mount(pod)
	dir := h.path(pod, "scratch")
	if got := modeOf(t, dir); !isInMemory(t, dir) || got.Perm() != 0o777 || got&os.ModeSticky == 0 {
		t.Errorf("got in memory %v, mode %v", isInMemory(t, dir), got)
	}
	writeText(t, "kept", dir, "file")
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o644); err == nil {
		t.Error("wrote 1 MiB into 64 KiB")
	}
	h.restart()
	h.mount(pod)
	if readText(t, dir, "file") != "kept" {
		t.Error("second mount hid the files")
	}
	h.unmount(pod)
}

func TestVolumeUsage(t *testing.T) {
	h := newHarness(t)
	disk, host := emptyDirVolume(v1.StorageMediumDefault), v1.Volume{Name: "host"}
	host.HostPath = &v1.HostPathVolumeSource{Path: t.TempDir()}
	pod := newPod("web", disk, host, v1.Volume{Name: "driver", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}})
	if usage, err := h.VolumeUsage(t.Context(), pod); err != nil || len(usage) > 0 {
		t.Errorf("before the mount: got %v, error %v", usage, err)
	}
	h.mount(newPod("web", disk, host))
	dir, err := h.Path(pod, disk.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(dir, "big"), filepath.Join(host.HostPath.Path, "big")} {
		if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	usage, err := h.VolumeUsage(t.Context(), pod)
	if err != nil || len(usage) != 1 || usage[disk.Name] < 1<<20 || usage[disk.Name] > 2<<20 {
		t.Errorf("got %v, error %v; want 1 MiB in %s", usage, err, disk.Name)
	}
}

func TestRES23_VolumeStats(t *testing.T) {
	h := newHarness(t)
	h.putSecret("keys", "key", "s3cret")
	disk, host := emptyDirVolume(v1.StorageMediumDefault), v1.Volume{Name: "host"}
	host.HostPath = &v1.HostPathVolumeSource{Path: t.TempDir()}
	pod := newPod("web", disk, host, secretVolume("keys"))
	if volumes, err := h.VolumeStats(t.Context(), pod); err != nil || len(volumes) > 0 {
		t.Errorf("before the mount: got %v, error %v", volumes, err)
	}
	h.mount(pod)
	dir, err := h.Path(pod, disk.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	volumes, err := h.VolumeStats(t.Context(), pod)
	if err != nil || len(volumes) != 2 || volumes[0].Name != disk.Name {
		t.Fatalf("got %v, error %v; want %s and the secret", volumes, err, disk.Name)
	}
	bytes, _ := volumes[0].Bytes.Get()
	inodes, _ := volumes[0].Inodes.Get()
	capacity, _ := volumes[0].FileSystem.Capacity.Get()
	if bytes < 1<<20 || bytes > 2<<20 || inodes != 2 || capacity < bytes {
		t.Errorf("got %v bytes, %v inodes, capacity %v", bytes, inodes, capacity)
	}
	if !volumes[0].IsLocal || volumes[1].IsLocal { // RES-24
		t.Errorf("got local %v and %v, want the emptyDir only", volumes[0].IsLocal, volumes[1].IsLocal)
	}
	h.unmount(pod)
}

func TestEmptyDir_UnknownMedium(t *testing.T) {
	h := newHarness(t)
	err := h.Mount(t.Context(), newPod("web", emptyDirVolume(v1.StorageMediumHugePages)))
	if err == nil || !strings.Contains(err.Error(), `emptyDir.medium: "HugePages"`) {
		t.Errorf("got %v, want an error about the medium", err)
	}
}

func TestSecret_Memory(t *testing.T) {
	runWithAndWithoutCapabilities(t, testSecretMemory)
}

func TestSecret_StaysOnDisk(t *testing.T) {
	h := newHarness(t)
	h.putSecret("keys", "key", "s3cret")
	pod := newPod("web", secretVolume("keys"))
	t.Run("first mount without capabilities", func(t *testing.T) {
		dropCapabilities(t)
		if err := h.Mount(t.Context(), pod); err != nil {
			t.Error(err)
		}
	})
	h.restart()
	h.mount(pod)
	if isInMemory(t, h.path(pod, "keys")) {
		t.Error("a tmpfs was mounted over files in use")
	}
}

func TestSecret_ExistingMount(t *testing.T) {
	if !canMount(t) {
		t.Skip("requires the permission to mount")
	}
	h := newHarness(t)
	h.putSecret("keys", "key", "s3cret")
	pod := newPod("web", secretVolume("keys"))
	dir := mkdir(t, h.path(pod, "keys"))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	h.mount(pod)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if isInMemory(t, dir) {
		t.Error("got two mounts, want one")
	}
}

func testSecretMemory(t *testing.T) {
	h := newHarness(t)
	h.putSecret("keys", "key", "s3cret")
	named := v1.LocalObjectReference{Name: "keys"}
	pod := newPod("web", secretVolume("keys"), projectedVolume(v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: named}}))
	h.mount(pod)
	for _, volume := range []string{"keys", "all"} {
		dir := h.path(pod, volume)
		switch mode, inMemory := modeOf(t, dir).Perm(), isInMemory(t, dir); {
		case inMemory != canMount(t):
			t.Errorf("%s: got in memory %v, want %v", volume, inMemory, canMount(t))
		case inMemory && mode != 0o755, !inMemory && mode != 0o700:
			t.Errorf("%s: in memory %v: got mode %v", volume, inMemory, mode)
		}
	}
	h.restart()
	h.mount(pod)
	if diff := cmp.Diff(map[string]string{"key": "0644 s3cret"}, visible(t, h.path(pod, "keys"))); diff != "" {
		t.Error(diff)
	}
	h.unmount(pod)
}

// chownGroup returns a group to which this process may give files, if possible not its default group.
func chownGroup(t *testing.T) int64 {
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

func TestFSGroup_AllVolumes(t *testing.T) { runWithAndWithoutCapabilities(t, testFSGroup) }

func testFSGroup(t *testing.T) {
	h := newHarness(t)
	h.putConfigMap("web", "a", "1", "b", "2")
	volume := configMapVolume("web")
	volume.ConfigMap.Items = []v1.KeyToPath{{Key: "a", Path: "in/a", Mode: new(int32(0o400))}, {Key: "b", Path: "b"}}
	h.putSecret("keys", "key", "s3cret")
	pod := newPod("web", volume, emptyDirVolume(""), secretVolume("keys"))
	group := chownGroup(t)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	if canMount(t) {
		memory := emptyDirVolume(v1.StorageMediumMemory)
		memory.Name = "memory"
		pod.Spec.Volumes = append(pod.Spec.Volumes, memory)
	}
	h.mount(pod)
	conf, private := h.path(pod, "conf"), os.FileMode(0o755)
	if !canMount(t) {
		private = 0o750
	}
	want := map[string]os.FileMode{
		conf: os.ModeDir | os.ModeSetgid | 0o755, filepath.Join(conf, "in"): os.ModeDir | os.ModeSetgid | 0o755,
		filepath.Join(conf, "in/a"): 0o440, filepath.Join(conf, "b"): 0o644,
		h.path(pod, "scratch"):                    os.ModeDir | os.ModeSetgid | 0o777,
		h.path(pod, "keys"):                       os.ModeDir | os.ModeSetgid | private,
		filepath.Join(h.path(pod, "keys"), "key"): 0o644,
	}
	if canMount(t) {
		want[h.path(pod, "memory")] = os.ModeDir | os.ModeSetgid | os.ModeSticky | 0o777
	}
	for path, mode := range want {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode || int64(info.Sys().(*syscall.Stat_t).Gid) != group {
			t.Errorf("%s: got mode %v, group %d, want mode %v", path, info.Mode(), info.Sys().(*syscall.Stat_t).Gid, mode)
		}
	}
	h.unmount(pod)
}

func TestFSGroup_NotPermitted(t *testing.T) {
	dropCapabilities(t)
	h := newHarness(t)
	pod := newPod("web", emptyDirVolume(""))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4321))}
	if err := h.Mount(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "securityContext.fsGroup") {
		t.Errorf("got %v, want an error about fsGroup", err)
	}
}

func TestHostPath_Types(t *testing.T) {
	host := t.TempDir()
	file, dir, socket := filepath.Join(host, "file"), mkdir(t, host, "dir"), filepath.Join(host, "socket")
	writeText(t, "", file)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	h := newHarness(t)
	for name, test := range map[string]struct {
		path         string
		hostPathType v1.HostPathType
		wantErr      string
	}{
		"no type":                       {filepath.Join(host, "nothing"), v1.HostPathUnset, ""},
		"directory":                     {dir, v1.HostPathDirectory, ""},
		"file":                          {file, v1.HostPathFile, ""},
		"socket":                        {socket, v1.HostPathSocket, ""},
		"character device":              {os.DevNull, v1.HostPathCharDev, ""},
		"created directory":             {filepath.Join(host, "new/dir"), v1.HostPathDirectoryOrCreate, ""},
		"existing directory or create":  {dir, v1.HostPathDirectoryOrCreate, ""},
		"created file":                  {filepath.Join(host, "new.txt"), v1.HostPathFileOrCreate, ""},
		"existing file or create":       {file, v1.HostPathFileOrCreate, ""},
		"created file without parent":   {filepath.Join(host, "no/such/file"), v1.HostPathFileOrCreate, "no such file"},
		"missing directory":             {filepath.Join(host, "nothing"), v1.HostPathDirectory, "no such file"},
		"missing file":                  {filepath.Join(host, "nothing"), v1.HostPathFile, "no such file"},
		"file, not directory":           {file, v1.HostPathDirectory, "is not a directory"},
		"file, not directory or create": {file, v1.HostPathDirectoryOrCreate, "is not a directory"},
		"directory, not file":           {dir, v1.HostPathFileOrCreate, "is not a file"},
		"file, not socket":              {file, v1.HostPathSocket, "is not a socket"},
		"socket, not device":            {socket, v1.HostPathCharDev, "is not a character device"},
		"other kind of device":          {os.DevNull, v1.HostPathBlockDev, "is not a block device"},
		"unknown type":                  {file, "Pipe", `"Pipe" is not supported`},
		"relative path":                 {"etc", v1.HostPathUnset, "absolute"},
		"parent reference":              {host + "/../x", v1.HostPathUnset, `must not contain ".."`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("web", v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: test.path, Type: &test.hostPathType},
			}})
			err := h.Mount(t.Context(), pod)
			if test.wantErr == "" && err != nil {
				t.Error(err)
			}
			if test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("got %v, want %q", err, test.wantErr)
			}
			if got := h.path(pod, "host"); got != test.path {
				t.Errorf("got path %s, want %s", got, test.path)
			}
		})
	}
	if mode := modeOf(t, filepath.Join(host, "new/dir")); mode != os.ModeDir|0o755 {
		t.Errorf("new directory: got mode %v, want 0755", mode)
	}
	h.unmount(newPod("web"))
	readText(t, file)
}

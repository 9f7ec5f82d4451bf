package provision_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision"
)

func TestMount_Files(t *testing.T) {
	h := newHarness(t, func(c *provision.Config) {
		c.NodeInfo = func() provision.NodeInfo {
			return provision.NodeInfo{
				HostIPs:     []netip.Addr{netip.MustParseAddr("192.0.2.1")},
				Allocatable: v1.ResourceList{"memory": resource.MustParse("1Gi")},
			}
		}
	})
	h.server.Put(&v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Data:       map[string]string{"colour": "red", "size": "big"}, BinaryData: map[string][]byte{"logo": {0, 1}},
	})
	h.putSecret("keys", "key", "s3cret")
	selected := []v1.KeyToPath{{Key: "colour", Path: "deep/er/colour.txt", Mode: new(int32(0o400))}, {Key: "size", Path: "size"}}
	configMap := func(change func(*v1.ConfigMapVolumeSource)) v1.Volume {
		volume := configMapVolume("web")
		change(volume.ConfigMap)
		return volume
	}
	named := v1.LocalObjectReference{Name: "web"}
	for name, test := range map[string]struct {
		volume v1.Volume
		plugin string
		want   map[string]string
	}{
		"config map": {
			configMap(func(*v1.ConfigMapVolumeSource) {}), "configmap",
			map[string]string{"colour": "0644 red", "size": "0644 big", "logo": "0644 \x00\x01"},
		},
		"selected keys": {
			configMap(func(s *v1.ConfigMapVolumeSource) { s.Items, s.DefaultMode = selected, new(int32(0o600)) }), "configmap",
			map[string]string{"deep/er/colour.txt": "0400 red", "size": "0600 big"},
		},
		"optional and missing": {
			configMap(func(s *v1.ConfigMapVolumeSource) { s.Name, s.Optional = "gone", new(true) }), "configmap",
			map[string]string{},
		},
		"optional key missing": {
			configMap(func(s *v1.ConfigMapVolumeSource) {
				s.Optional, s.Items = new(true), []v1.KeyToPath{{Key: "gone", Path: "x"}, {Key: "size", Path: "y"}}
			}), "configmap",
			map[string]string{"y": "0644 big"},
		},
		"secret": {secretVolume("keys"), "secret", map[string]string{"key": "0644 s3cret"}},
		"downward API": {
			v1.Volume{Name: "self", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
				Items: []v1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
					{Path: "in/memory", Mode: new(int32(0o440)), ResourceFieldRef: &v1.ResourceFieldSelector{
						ContainerName: "main", Resource: "limits.memory", Divisor: resource.MustParse("1Mi"),
					}},
				},
			}}}, "downward-api",
			map[string]string{"labels": `0644 app="web"`, "in/memory": "0440 1024"},
		},
		"projected": {
			projectedVolume(
				v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: named, Items: selected[1:]}},
				v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "keys"}}},
				v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "no"}, Optional: new(true)}},
				v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
					{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
				}}},
			), "projected",
			map[string]string{"size": "0644 big", "key": "0644 s3cret", "name": "0644 web"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("web", test.volume)
			h.mount(pod)
			dir := h.path(pod, test.volume.Name)
			if want := filepath.Join(h.config.Root, "uid-of-web/volumes/kubernetes.io~"+test.plugin, test.volume.Name); dir != want {
				t.Errorf("got path %s, want %s", dir, want)
			}
			if diff := cmp.Diff(test.want, visible(t, dir)); diff != "" {
				t.Error(diff)
			}
			h.unmount(pod)
		})
	}
}

func TestMount_FirstMountErrors(t *testing.T) {
	h := newHarness(t)
	h.putConfigMap("web", "colour", "red")
	withItem := func(key, path string) v1.Volume {
		volume := configMapVolume("web")
		volume.ConfigMap.Items = []v1.KeyToPath{{Key: key, Path: path}}
		return volume
	}
	downward := func(path, field string) v1.VolumeProjection {
		return v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
			{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: field}},
		}}}
	}
	for name, test := range map[string]struct {
		volume v1.Volume
		want   []string
	}{
		"no such config map": {configMapVolume("gone"), []string{`MountVolume.SetUp failed for volume "conf" : configmap "gone" not found`}},
		"no such secret":     {secretVolume("gone"), []string{`MountVolume.SetUp failed for volume "keys" : secret "gone" not found`}},
		"no such key":        {withItem("size", "x"), []string{`volume "conf"`, `configMap "web"`, `key "size"`}},
		"path outside":       {withItem("colour", "../../x"), []string{`key "colour"`, `"../../x"`, ".."}},
		"absolute path":      {withItem("colour", "/etc/x"), []string{`"/etc/x"`, "relative"}},
		"reserved name":      {withItem("colour", "..data"), []string{`"..data"`, "two dots"}},
		"status field":       {projectedVolume(downward("x", "status.podIP")), []string{"sources[0]", "items[0]", "status.podIP"}},
		"file and directory": {projectedVolume(downward("a", "metadata.name"), downward("a/b", "metadata.name")), []string{`"a/b"`, "directory"}},
		"trust bundle": {
			projectedVolume(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}),
			[]string{"projected.sources[0]", "clusterTrustBundle"},
		},
		"certificate": {
			projectedVolume(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}}), []string{"podCertificate"},
		},
		"CSI volume": {
			v1.Volume{Name: "disk", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}}, []string{`volume "disk"`, "csi: volumes that need a driver are not supported; use emptyDir"},
		},
		"volume name outside": {
			v1.Volume{Name: "../x", VolumeSource: emptyDirVolume("").VolumeSource}, []string{`"../x"`, "name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := h.Mount(t.Context(), newPod("web", test.volume))
			if err == nil {
				t.Fatal("Mount succeeded, want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q", err, want)
				}
			}
			h.unmount(newPod("web"))
		})
	}
	if events := h.takeEvents(); len(events) > 0 {
		t.Errorf("got events %q, want none", events)
	}
}

func TestMount_AllErrorsReported(t *testing.T) {
	h := newHarness(t)
	err := h.Mount(t.Context(), newPod("web", configMapVolume("gone"), emptyDirVolume(""), secretVolume("lost")))
	if err == nil || !strings.Contains(err.Error(), "gone") || !strings.Contains(err.Error(), "lost") {
		t.Errorf("got %v, want both volumes", err)
	}
}

func TestMount_WithoutAPIServer(t *testing.T) {
	h := newHarness(t, func(c *provision.Config) { c.API = nil })
	token := v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}
	for want, volume := range map[string]v1.Volume{
		`configMap "web"`: configMapVolume("web"), `secret "keys"`: secretVolume("keys"), "serviceAccountToken": projectedVolume(token),
	} {
		err := h.Mount(t.Context(), newPod("web", volume))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "no API server") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	h.mount(newPod("web", emptyDirVolume("")))
}

func TestMount_UpdateSwapsData(t *testing.T) {
	h := newHarness(t, func(c *provision.Config) { c.CacheTTL = 1 })
	pod := newPod("web", configMapVolume("web"))
	h.putConfigMap("web", "a", "1", "b", "1", "old", "x")
	h.mount(pod)
	dir := h.path(pod, "conf")
	first := readLink(t, dir)
	h.putConfigMap("web", "a", "2", "b", "2", "new", "x")
	h.mount(pod)
	if diff := cmp.Diff(map[string]string{"a": "0644 2", "b": "0644 2", "new": "0644 x"}, visible(t, dir)); diff != "" {
		t.Error(diff)
	}
	second := readLink(t, dir)
	if first == second {
		t.Error("..data was not swapped")
	}
	if _, err := os.Lstat(filepath.Join(dir, first)); !os.IsNotExist(err) {
		t.Errorf("old files still exist: %v", err)
	}
	h.mount(pod)
	if again := readLink(t, dir); again != second {
		t.Error("..data was swapped without a change")
	}
}

func readLink(t *testing.T, dir string) string {
	t.Helper()
	target, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func TestMount_UpdateIsAtomic(t *testing.T) {
	h := newHarness(t, func(c *provision.Config) { c.CacheTTL = 1 })
	pod := newPod("web", configMapVolume("web"))
	h.putConfigMap("web", "a", "0", "b", "0")
	h.mount(pod)
	dir := h.path(pod, "conf")
	done, mixed := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(mixed)
		for {
			select {
			case <-done:
				return
			default:
			}
			if a, b, ok := readPair(filepath.Join(dir, "..data")); ok && a != b {
				mixed <- a + " beside " + b
				return
			}
		}
	}()
	for range 100 {
		version := strings.Repeat("x", 1+len(visible(t, dir)["a"]))
		h.putConfigMap("web", "a", version, "b", version)
		h.mount(pod)
	}
	close(done)
	if seen, ok := <-mixed; ok {
		t.Error("reader got " + seen)
	}
}

// readPair reads both files of one version. It fails if that version is removed meanwhile.
func readPair(dir string) (a, b string, ok bool) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", "", false
	}
	defer root.Close()
	first, errA := root.ReadFile("a")
	second, errB := root.ReadFile("b")
	return string(first), string(second), errA == nil && errB == nil
}

func TestMount_StaleFilesKept(t *testing.T) {
	h := newHarness(t)
	pod := newPod("web", configMapVolume("web"))
	h.putConfigMap("web", "colour", "red")
	h.mount(pod)
	h.server.SetDown(true)
	h.restart() // with an empty cache
	h.mount(pod)
	if diff := cmp.Diff(map[string]string{"colour": "0644 red"}, visible(t, h.path(pod, "conf"))); diff != "" {
		t.Error(diff)
	}
	events := h.takeEvents()
	if len(events) != 1 || !strings.Contains(events[0], `Warning FailedMount volume "conf" keeps its files`) {
		t.Errorf("got events %q, want one FailedMount", events)
	}
	h.server.SetDown(false)
	h.putConfigMap("web", "colour", "blue")
	h.restart()
	h.mount(pod)
	if got := visible(t, h.path(pod, "conf"))["colour"]; got != "0644 blue" {
		t.Errorf("after the server came back: got %q, want blue", got)
	}
}

func TestMount_Cancelled(t *testing.T) {
	h := newHarness(t)
	pod := newPod("web", configMapVolume("web"))
	h.putConfigMap("web", "colour", "red")
	h.mount(pod)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Mount(ctx, pod); !errors.Is(err, context.Canceled) {
		t.Errorf("Mount: got %v, want Canceled", err)
	}
	if err := h.Unmount(ctx, podid.UID(pod.UID)); !errors.Is(err, context.Canceled) {
		t.Errorf("Unmount: got %v, want Canceled", err)
	}
	if events := h.takeEvents(); len(events) > 0 {
		t.Errorf("got events %q, want none", events)
	}
}

func TestMount_NestedMounts(t *testing.T) {
	h := newHarness(t, func(c *provision.Config) { c.CacheTTL = 1 })
	h.putConfigMap("web", "colour", "red")
	pod := newPod("web", configMapVolume("web"))
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "conf", MountPath: "/etc/app"}, {Name: "x", MountPath: "/etc/app/tls/x"}, {Name: "x", MountPath: "/etc/app/colour"},
	}
	h.mount(pod)
	h.putConfigMap("web", "colour", "blue", "tls", "a key that comes too late")
	h.mount(pod)
	if !modeOf(t, filepath.Join(h.path(pod, "conf"), "tls/x")).IsDir() {
		t.Error("mount point was not created")
	}
	if got := visible(t, h.path(pod, "conf"))["colour"]; got != "0644 blue" {
		t.Errorf("file that is a mount point: got %q, want blue", got)
	}
}

func TestMount_AfterCrash(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir, data string){
		"links without files": func(t *testing.T, dir, _ string) {
			symlink(t, "..data/a", mkdir(t, dir), "a")
			symlink(t, "..data/old", dir, "old")
		},
		"files without links": func(t *testing.T, dir, data string) { mkdir(t, dir, data) },
		"link not renamed":    func(t *testing.T, dir, data string) { symlink(t, data, mkdir(t, dir), "..data_tmp") },
		"dangling link":       func(t *testing.T, dir, data string) { symlink(t, data, mkdir(t, dir), "..data") },
		"empty directory": func(t *testing.T, dir, data string) {
			mkdir(t, dir, data)
			symlink(t, data, dir, "..data")
		},
		"truncated file": func(t *testing.T, dir, data string) {
			writeText(t, "", mkdir(t, dir, data), "a")
			symlink(t, data, dir, "..data")
		},
		"old files": func(t *testing.T, dir, data string) {
			writeText(t, "1", mkdir(t, dir, data), "a")
			symlink(t, data, dir, "..data")
			writeText(t, "0", mkdir(t, dir, "..2026_11_14"), "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.putConfigMap("web", "a", "1")
			pod := newPod("web", configMapVolume("web"))
			dir := h.path(pod, "conf")
			prepare(t, dir, "..2026_11_15")
			h.mount(pod)
			if diff := cmp.Diff(map[string]string{"a": "0644 1"}, visible(t, dir)); diff != "" {
				t.Error(diff)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
				t.Errorf("got entries %v, error %v, want a, ..data and its target", entries, err)
			}
		})
	}
}

func TestMount_InotifyEvents(t *testing.T) {
	h := newHarness(t, func(c *provision.Config) { c.CacheTTL = 1 })
	h.putConfigMap("web", "a", "1")
	pod := newPod("web", configMapVolume("web"))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(chownGroup(t))}
	h.mount(pod)
	watcher, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watcher)
	changes := uint32(unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_MOVE)
	if _, err := unix.InotifyAddWatch(watcher, h.path(pod, "conf"), changes); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	h.mount(pod)
	if n, err := unix.Read(watcher, buffer); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("unchanged mount: got events %q, %v", buffer[:max(n, 0)], err)
	}
	h.putConfigMap("web", "a", "2")
	h.mount(pod)
	if n, err := unix.Read(watcher, buffer); err != nil || !strings.Contains(string(buffer[:n]), "..data\x00") {
		t.Errorf("update: got events %q, %v, want the rename of ..data", buffer[:max(n, 0)], err)
	}
}

func BenchmarkMount_Unchanged(b *testing.B) {
	dir := b.TempDir()
	p, err := provision.New(provision.Config{Root: dir})
	if err != nil {
		b.Fatal(err)
	}
	pod := newPod("web", v1.Volume{Name: "self", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}}})
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Mount(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
	}
}

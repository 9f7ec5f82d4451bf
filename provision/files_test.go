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

func pointer[T any](v T) *T { return &v }

func TestObjectsBecomeFiles(t *testing.T) {
	w := newWorld(t, func(c *provision.Config) {
		c.NodeInfo = func() provision.NodeInfo {
			return provision.NodeInfo{
				HostIPs:     []netip.Addr{netip.MustParseAddr("192.0.2.1")},
				Allocatable: v1.ResourceList{"memory": resource.MustParse("1Gi")},
			}
		}
	})
	w.server.Put(&v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Data:       map[string]string{"colour": "red", "size": "big"}, BinaryData: map[string][]byte{"logo": {0, 1}},
	})
	w.putSecret("keys", "key", "s3cret")
	chosen := []v1.KeyToPath{{Key: "colour", Path: "deep/er/colour.txt", Mode: pointer(int32(0o400))}, {Key: "size", Path: "size"}}
	configMap := func(change func(*v1.ConfigMapVolumeSource)) v1.Volume {
		volume := configMapVolume("web")
		change(volume.ConfigMap)
		return volume
	}
	named := v1.LocalObjectReference{Name: "web"}
	for name, tc := range map[string]struct {
		volume v1.Volume
		plugin string
		want   map[string]string
	}{
		"a config map": {
			configMap(func(*v1.ConfigMapVolumeSource) {}), "configmap",
			map[string]string{"colour": "0644 red", "size": "0644 big", "logo": "0644 \x00\x01"},
		},
		"a choice of keys": {
			configMap(func(s *v1.ConfigMapVolumeSource) { s.Items, s.DefaultMode = chosen, pointer(int32(0o600)) }), "configmap",
			map[string]string{"deep/er/colour.txt": "0400 red", "size": "0600 big"},
		},
		"an optional one that is not there": {
			configMap(func(s *v1.ConfigMapVolumeSource) { s.Name, s.Optional = "gone", pointer(true) }), "configmap",
			map[string]string{},
		},
		"an optional key that is not there": {
			configMap(func(s *v1.ConfigMapVolumeSource) {
				s.Optional, s.Items = pointer(true), []v1.KeyToPath{{Key: "gone", Path: "x"}, {Key: "size", Path: "y"}}
			}), "configmap",
			map[string]string{"y": "0644 big"},
		},
		"a secret": {secretVolume("keys"), "secret", map[string]string{"key": "0644 s3cret"}},
		"the pod itself": {
			v1.Volume{Name: "self", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
				Items: []v1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
					{Path: "in/memory", Mode: pointer(int32(0o440)), ResourceFieldRef: &v1.ResourceFieldSelector{
						ContainerName: "main", Resource: "limits.memory", Divisor: resource.MustParse("1Mi"),
					}},
				},
			}}}, "downward-api",
			map[string]string{"labels": `0644 app="web"`, "in/memory": "0440 1024"},
		},
		"a projection": {
			projectedVolume(
				v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: named, Items: chosen[1:]}},
				v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "keys"}}},
				v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "no"}, Optional: pointer(true)}},
				v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
					{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
				}}},
			), "projected",
			map[string]string{"size": "0644 big", "key": "0644 s3cret", "name": "0644 web"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("web", tc.volume)
			w.mount(pod)
			folder := w.path(pod, tc.volume.Name)
			if want := filepath.Join(w.config.Root, "uid-of-web/volumes/kubernetes.io~"+tc.plugin, tc.volume.Name); folder != want {
				t.Errorf("the volume is at %s, want %s", folder, want)
			}
			if diff := cmp.Diff(tc.want, visible(t, folder)); diff != "" {
				t.Error(diff)
			}
			w.unmount(pod)
		})
	}
}

func TestAFirstMountThatFailsNamesVolumeObjectAndKey(t *testing.T) {
	w := newWorld(t)
	w.putConfigMap("web", "colour", "red")
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
	for name, tc := range map[string]struct {
		volume v1.Volume
		says   []string
	}{
		"no such config map":    {configMapVolume("gone"), []string{`MountVolume.SetUp failed for volume "conf" : configmap "gone" not found`}},
		"no such secret":        {secretVolume("gone"), []string{`MountVolume.SetUp failed for volume "keys" : secret "gone" not found`}},
		"no such key":           {withItem("size", "x"), []string{`volume "conf"`, `configMap "web"`, `key "size"`}},
		"a way out":             {withItem("colour", "../../x"), []string{`key "colour"`, `"../../x"`, ".."}},
		"an absolute path":      {withItem("colour", "/etc/x"), []string{`"/etc/x"`, "relative"}},
		"our own bookkeeping":   {withItem("colour", "..data"), []string{`"..data"`, "two dots"}},
		"a field of the status": {projectedVolume(downward("x", "status.podIP")), []string{"sources[0]", "items[0]", "status.podIP"}},
		"a file and a folder":   {projectedVolume(downward("a", "metadata.name"), downward("a/b", "metadata.name")), []string{`"a/b"`, "folder"}},
		"a trust bundle": {
			projectedVolume(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}),
			[]string{"projected.sources[0]", "clusterTrustBundle"},
		},
		"a certificate": {
			projectedVolume(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}}), []string{"podCertificate"},
		},
		"a driver's volume": {
			v1.Volume{Name: "disk", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}}, []string{`volume "disk"`, "only emptyDir"},
		},
		"a name that leads out": {
			v1.Volume{Name: "../x", VolumeSource: emptyDirVolume("").VolumeSource}, []string{`"../x"`, "name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := w.Mount(t.Context(), newPod("web", tc.volume))
			if err == nil {
				t.Fatal("it was mounted")
			}
			for _, says := range tc.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q does not say %s", err, says)
				}
			}
			w.unmount(newPod("web"))
		})
	}
	if events := w.takeEvents(); len(events) > 0 {
		t.Errorf("events %q: whoever asked was told", events)
	}
}

func TestEveryVolumeThatFailsIsNamed(t *testing.T) {
	w := newWorld(t)
	err := w.Mount(t.Context(), newPod("web", configMapVolume("gone"), emptyDirVolume(""), secretVolume("lost")))
	if err == nil || !strings.Contains(err.Error(), "gone") || !strings.Contains(err.Error(), "lost") {
		t.Errorf("error %v", err)
	}
}

func TestWithoutAnAPIServerAPodThatRefersToItIsToldSo(t *testing.T) {
	w := newWorld(t, func(c *provision.Config) { c.API = nil })
	token := v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}
	for says, volume := range map[string]v1.Volume{
		`configMap "web"`: configMapVolume("web"), `secret "keys"`: secretVolume("keys"), "serviceAccountToken": projectedVolume(token),
	} {
		err := w.Mount(t.Context(), newPod("web", volume))
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "no API server") {
			t.Errorf("%s: error %v", says, err)
		}
	}
	w.mount(newPod("web", emptyDirVolume("")))
}

func TestAChangeArrivesAsAWhole(t *testing.T) {
	w := newWorld(t, func(c *provision.Config) { c.CacheTTL = 1 })
	pod := newPod("web", configMapVolume("web"))
	w.putConfigMap("web", "a", "1", "b", "1", "old", "x")
	w.mount(pod)
	folder := w.path(pod, "conf")
	first := readLink(t, folder)
	w.putConfigMap("web", "a", "2", "b", "2", "new", "x")
	w.mount(pod)
	if diff := cmp.Diff(map[string]string{"a": "0644 2", "b": "0644 2", "new": "0644 x"}, visible(t, folder)); diff != "" {
		t.Error(diff)
	}
	second := readLink(t, folder)
	if first == second {
		t.Error("..data was not swapped")
	}
	if _, err := os.Lstat(filepath.Join(folder, first)); !os.IsNotExist(err) {
		t.Errorf("the old files are still there: %v", err)
	}
	w.mount(pod)
	if again := readLink(t, folder); again != second {
		t.Error("..data was swapped although nothing changed")
	}
}

func readLink(t *testing.T, folder string) string {
	t.Helper()
	target, err := os.Readlink(filepath.Join(folder, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func TestAReaderNeverSeesHalfAChange(t *testing.T) {
	w := newWorld(t, func(c *provision.Config) { c.CacheTTL = 1 })
	pod := newPod("web", configMapVolume("web"))
	w.putConfigMap("web", "a", "0", "b", "0")
	w.mount(pod)
	folder := w.path(pod, "conf")
	done, torn := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(torn)
		for {
			select {
			case <-done:
				return
			default:
			}
			if a, b, ok := readPair(filepath.Join(folder, "..data")); ok && a != b {
				torn <- a + " beside " + b
				return
			}
		}
	}()
	for range 100 {
		version := strings.Repeat("x", 1+len(visible(t, folder)["a"]))
		w.putConfigMap("web", "a", version, "b", version)
		w.mount(pod)
	}
	close(done)
	if seen, ok := <-torn; ok {
		t.Error("a reader saw " + seen)
	}
}

// readPair reads both files of one version; it fails if that version is removed meanwhile.
func readPair(folder string) (a, b string, ok bool) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", "", false
	}
	defer root.Close()
	first, errA := root.ReadFile("a")
	second, errB := root.ReadFile("b")
	return string(first), string(second), errA == nil && errB == nil
}

func TestWhatCannotBeRenewedStaysAndIsTold(t *testing.T) {
	w := newWorld(t)
	pod := newPod("web", configMapVolume("web"))
	w.putConfigMap("web", "colour", "red")
	w.mount(pod)
	w.server.SetDown(true)
	w.restart() // which forgets what was read
	w.mount(pod)
	if diff := cmp.Diff(map[string]string{"colour": "0644 red"}, visible(t, w.path(pod, "conf"))); diff != "" {
		t.Error(diff)
	}
	events := w.takeEvents()
	if len(events) != 1 || !strings.Contains(events[0], `Warning FailedMount volume "conf" keeps its files`) {
		t.Errorf("events %q", events)
	}
	w.server.SetDown(false)
	w.putConfigMap("web", "colour", "blue")
	w.restart()
	w.mount(pod)
	if got := visible(t, w.path(pod, "conf"))["colour"]; got != "0644 blue" {
		t.Errorf("after the server came back: %q", got)
	}
}

func TestAMountThatIsGivenUpSaysSo(t *testing.T) {
	w := newWorld(t)
	pod := newPod("web", configMapVolume("web"))
	w.putConfigMap("web", "colour", "red")
	w.mount(pod)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Mount(ctx, pod); !errors.Is(err, context.Canceled) {
		t.Errorf("mount: %v", err)
	}
	if err := w.Unmount(ctx, podid.UID(pod.UID)); !errors.Is(err, context.Canceled) {
		t.Errorf("unmount: %v", err)
	}
	if events := w.takeEvents(); len(events) > 0 {
		t.Errorf("events %q", events)
	}
}

func TestPlacesForMountsInsideAVolumeAreMade(t *testing.T) {
	w := newWorld(t, func(c *provision.Config) { c.CacheTTL = 1 })
	w.putConfigMap("web", "colour", "red")
	pod := newPod("web", configMapVolume("web"))
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "conf", MountPath: "/etc/app"}, {Name: "x", MountPath: "/etc/app/tls/x"}, {Name: "x", MountPath: "/etc/app/colour"},
	}
	w.mount(pod)
	w.putConfigMap("web", "colour", "blue", "tls", "a key that comes too late")
	w.mount(pod)
	if !modeOf(t, filepath.Join(w.path(pod, "conf"), "tls/x")).IsDir() {
		t.Error("no place for the inner mount")
	}
	if got := visible(t, w.path(pod, "conf"))["colour"]; got != "0644 blue" {
		t.Errorf("the file over which something is mounted: %q", got)
	}
}

func TestFilesThatACrashCutShortAreFinished(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, folder, data string){
		"names without files": func(t *testing.T, folder, _ string) {
			makeLink(t, "..data/a", makeFolder(t, folder), "a")
			makeLink(t, "..data/old", folder, "old")
		},
		"files without names":           func(t *testing.T, folder, data string) { makeFolder(t, folder, data) },
		"a link that was not put there": func(t *testing.T, folder, data string) { makeLink(t, data, makeFolder(t, folder), "..data_tmp") },
		"a link that leads nowhere":     func(t *testing.T, folder, data string) { makeLink(t, data, makeFolder(t, folder), "..data") },
		"no files in the folder": func(t *testing.T, folder, data string) {
			makeFolder(t, folder, data)
			makeLink(t, data, folder, "..data")
		},
		"half a file": func(t *testing.T, folder, data string) {
			writeText(t, "", makeFolder(t, folder, data), "a")
			makeLink(t, data, folder, "..data")
		},
		"old files beside the new": func(t *testing.T, folder, data string) {
			writeText(t, "1", makeFolder(t, folder, data), "a")
			makeLink(t, data, folder, "..data")
			writeText(t, "0", makeFolder(t, folder, "..2026_11_14"), "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.putConfigMap("web", "a", "1")
			pod := newPod("web", configMapVolume("web"))
			folder := w.path(pod, "conf")
			prepare(t, folder, "..2026_11_15")
			w.mount(pod)
			if diff := cmp.Diff(map[string]string{"a": "0644 1"}, visible(t, folder)); diff != "" {
				t.Error(diff)
			}
			if entries, err := os.ReadDir(folder); err != nil || len(entries) != 3 {
				t.Errorf("the folder has %v, %v, want a, ..data and what it leads to", entries, err)
			}
		})
	}
}

func TestAWatcherIsWokenByAChangeAndByNothingElse(t *testing.T) {
	w := newWorld(t, func(c *provision.Config) { c.CacheTTL = 1 })
	w.putConfigMap("web", "a", "1")
	pod := newPod("web", configMapVolume("web"))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: pointer(ownGroup(t))}
	w.mount(pod)
	watcher, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watcher)
	changes := uint32(unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_MOVE)
	if _, err := unix.InotifyAddWatch(watcher, w.path(pod, "conf"), changes); err != nil {
		t.Fatal(err)
	}
	heard := make([]byte, 4096)
	w.mount(pod)
	if n, err := unix.Read(watcher, heard); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a mount without a change was heard: %q, %v", heard[:max(n, 0)], err)
	}
	w.putConfigMap("web", "a", "2")
	w.mount(pod)
	if n, err := unix.Read(watcher, heard); err != nil || !strings.Contains(string(heard[:n]), "..data\x00") {
		t.Errorf("the swap of ..data was not heard: %q, %v", heard[:max(n, 0)], err)
	}
}

func BenchmarkAMountWithoutAChange(b *testing.B) {
	folder := b.TempDir()
	p, err := provision.New(provision.Config{Root: folder})
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

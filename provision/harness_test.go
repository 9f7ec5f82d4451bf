package provision_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a provisioner with an API server.
type harness struct {
	*provision.Provisioner
	t      *testing.T
	server *heraldtest.APIServer
	config provision.Config
	seen   int // requests that wantReads has checked

	mu     sync.Mutex // guards events
	events []string
}

func newHarness(t *testing.T, change ...func(*provision.Config)) *harness {
	t.Helper()
	h := &harness{t: t, server: heraldtest.NewAPIServer()}
	client, err := kubeapi.New(h.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	h.config = provision.Config{Root: filepath.Join(t.TempDir(), "pods"), API: client, Events: h}
	for _, mutate := range change {
		mutate(&h.config)
	}
	h.restart()
	t.Cleanup(func() { // mounts would prevent the removal of the test's directory
		uids, err := h.Pods()
		if err != nil {
			t.Error(err)
		}
		for _, uid := range uids {
			if err := h.Unmount(context.WithoutCancel(t.Context()), uid); err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

// restart replaces the provisioner by a new one, as a new process would.
func (h *harness) restart() {
	h.t.Helper()
	provisioner, err := provision.New(h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.Provisioner = provisioner
	h.t.Cleanup(provisioner.Close)
}

func (h *harness) Event(_ k8sruntime.Object, eventtype, reason, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, eventtype+" "+reason+" "+message)
}

func (h *harness) takeEvents() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.events
	h.events = nil
	return taken
}

func (h *harness) mount(pod *v1.Pod) {
	h.t.Helper()
	if err := h.Mount(h.t.Context(), pod); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) unmount(pod *v1.Pod) {
	h.t.Helper()
	if err := h.Unmount(h.t.Context(), podid.UID(pod.UID)); err != nil {
		h.t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(h.config.Root, string(pod.UID))); !os.IsNotExist(err) {
		h.t.Errorf("directory of the pod still exists: %v", err)
	}
}

func (h *harness) path(pod *v1.Pod, volume string) string {
	h.t.Helper()
	path, err := h.Path(pod, volume)
	if err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h *harness) putConfigMap(name string, pairs ...string) {
	data := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = pairs[i+1]
	}
	h.server.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: data})
}

func (h *harness) putSecret(name string, pairs ...string) {
	data := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = []byte(pairs[i+1])
	}
	h.server.Put(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: data})
}

func newPod(name string, volumes ...v1.Volume) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{"app": name},
		},
		Spec: v1.PodSpec{Volumes: volumes, Containers: []v1.Container{{Name: "main"}}},
	}
}

func configMapVolume(name string) v1.Volume {
	return v1.Volume{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: name},
	}}}
}

func secretVolume(name string) v1.Volume {
	return v1.Volume{Name: "keys", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name}}}
}

func emptyDirVolume(medium v1.StorageMedium) v1.Volume {
	return v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
}

func projectedVolume(sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}
}

// visible returns what a container sees in the directory: mode and content by path, with links followed.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	var walk func(below string)
	walk = func(below string) {
		entries, err := os.ReadDir(filepath.Join(dir, below))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			path := filepath.Join(below, entry.Name())
			info, err := os.Stat(filepath.Join(dir, path))
			switch {
			case strings.HasPrefix(path, ".."):
			case err != nil:
				seen[path] = "dangling"
			case info.IsDir():
				walk(path)
			default:
				data, err := os.ReadFile(filepath.Join(dir, path))
				if err != nil {
					t.Fatal(err)
				}
				seen[path] = fmt.Sprintf("%04o %s", info.Mode().Perm(), data)
			}
		}
	}
	walk(".")
	return seen
}

func readText(t *testing.T, elements ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func writeText(t *testing.T, text string, elements ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(elements...), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func symlink(t *testing.T, target string, elements ...string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(elements...)); err != nil {
		t.Fatal(err)
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

// canMount reports whether this process may mount. Root may not everywhere.
func canMount(t *testing.T) bool {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4096"); err != nil {
		return false
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	return true
}

func isInMemory(t *testing.T, path string) bool {
	t.Helper()
	var here, above unix.Stat_t
	if err := unix.Stat(path, &here); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(filepath.Dir(path), &above); err != nil {
		t.Fatal(err)
	}
	return here.Dev != above.Dev
}

// runWithAndWithoutCapabilities runs the test twice.
func runWithAndWithoutCapabilities(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run("with capabilities", test)
	t.Run("without capabilities", func(t *testing.T) {
		dropCapabilities(t)
		test(t)
	})
}

// dropCapabilities drops the capabilities of the test's thread, which is not reused.
func dropCapabilities(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
}

// mayChown reports whether this process may change owners.
func mayChown(t *testing.T) bool {
	t.Helper()
	return os.Chown(t.TempDir(), 1000, 2000) == nil
}

// chownUser returns a user to whom this process may give files.
func chownUser(t *testing.T) int64 {
	t.Helper()
	if mayChown(t) {
		return 1000
	}
	return int64(os.Geteuid())
}

func ownerOf(t *testing.T, elements ...string) (int64, fs.FileMode) {
	t.Helper()
	info, err := os.Stat(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return int64(info.Sys().(*syscall.Stat_t).Uid), info.Mode()
}

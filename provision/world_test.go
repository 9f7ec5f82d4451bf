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

// world is a node with a provisioner, and an API server.
type world struct {
	*provision.Provisioner
	t      *testing.T
	server *heraldtest.APIServer
	config provision.Config

	mu     sync.Mutex // guards events
	events []string
}

func newWorld(t *testing.T, change ...func(*provision.Config)) *world {
	t.Helper()
	w := &world{t: t, server: heraldtest.NewAPIServer()}
	client, err := kubeapi.New(w.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	w.config = provision.Config{Root: filepath.Join(t.TempDir(), "pods"), API: client, Events: w}
	for _, f := range change {
		f(&w.config)
	}
	w.restart()
	t.Cleanup(func() { // mounts would keep the test's folder from being removed
		uids, err := w.Pods()
		if err != nil {
			t.Error(err)
		}
		for _, uid := range uids {
			if err := w.Unmount(context.WithoutCancel(t.Context()), uid); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// restart is what a new process begins with.
func (w *world) restart() {
	w.t.Helper()
	provisioner, err := provision.New(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Provisioner = provisioner
}

func (w *world) Event(_ k8sruntime.Object, eventtype, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, eventtype+" "+reason+" "+message)
}

func (w *world) takeEvents() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.events
	w.events = nil
	return taken
}

func (w *world) mount(pod *v1.Pod) {
	w.t.Helper()
	if err := w.Mount(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) unmount(pod *v1.Pod) {
	w.t.Helper()
	if err := w.Unmount(w.t.Context(), podid.UID(pod.UID)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(w.config.Root, string(pod.UID))); !os.IsNotExist(err) {
		w.t.Errorf("something is left of the pod: %v", err)
	}
}

func (w *world) path(pod *v1.Pod, volume string) string {
	w.t.Helper()
	path, err := w.Path(pod, volume)
	if err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) putConfigMap(name string, pairs ...string) {
	data := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = pairs[i+1]
	}
	w.server.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: data})
}

func (w *world) putSecret(name string, pairs ...string) {
	data := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = []byte(pairs[i+1])
	}
	w.server.Put(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: data})
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

// visible is what a container sees in the folder: paths with mode and content, links followed.
func visible(t *testing.T, folder string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	var walk func(below string)
	walk = func(below string) {
		entries, err := os.ReadDir(filepath.Join(folder, below))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			at := filepath.Join(below, entry.Name())
			info, err := os.Stat(filepath.Join(folder, at))
			switch {
			case strings.HasPrefix(at, ".."):
			case err != nil:
				seen[at] = "dangling"
			case info.IsDir():
				walk(at)
			default:
				data, err := os.ReadFile(filepath.Join(folder, at))
				if err != nil {
					t.Fatal(err)
				}
				seen[at] = fmt.Sprintf("%04o %s", info.Mode().Perm(), data)
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

func makeFolder(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func makeLink(t *testing.T, target string, elements ...string) {
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

// canMount tries it: being root is not enough everywhere.
func canMount(t *testing.T) bool {
	t.Helper()
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=4096"); err != nil {
		return false
	}
	if err := unix.Unmount(folder, 0); err != nil {
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

// withAndWithoutRights runs the test with what this process may do, and as a process that may nothing special.
func withAndWithoutRights(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run("with the rights of this process", test)
	t.Run("without special rights", func(t *testing.T) {
		dropRights(t)
		test(t)
	})
}

// dropRights takes root's rights from the test's goroutine: its thread is not used for anything else, and ends with it.
func dropRights(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
}

// mayChown tries it.
func mayChown(t *testing.T) bool {
	t.Helper()
	return os.Chown(t.TempDir(), 1000, 2000) == nil
}

// ownUser is a user that this process may give files to.
func ownUser(t *testing.T) int64 {
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

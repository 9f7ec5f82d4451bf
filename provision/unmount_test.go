package provision_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/podid"
)

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

// countdown is a context that ends when it was looked at so many times: as if the process had died there.
type countdown struct {
	context.Context //nolint:containedctx // it is one
	left            int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestUnmountThatEndsAnywhereGoesOnLater(t *testing.T) {
	w := newWorld(t)
	w.putSecret("keys", "key", "s3cret")
	w.putConfigMap("web", "a", "1")
	pod := newPod("web", emptyDirVolume(""), secretVolume("keys"), configMapVolume("web"))
	interrupted := 0
	for ; ; interrupted++ {
		w.mount(pod)
		for _, name := range []string{"a", "b", "c/d"} {
			writeText(t, "", makeFolder(t, w.path(pod, "scratch"), name), "file")
		}
		err := w.Unmount(&countdown{t.Context(), interrupted}, podid.UID(pod.UID))
		if err == nil {
			break
		}
		if uids, err := w.Pods(); err != nil || len(uids) != 1 {
			t.Errorf("after %d looks: %v, %v", interrupted, uids, err)
		}
		w.restart()
		w.unmount(pod)
	}
	if interrupted < 5 {
		t.Errorf("it was interrupted %d times only", interrupted)
	}
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

package provision_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/provision"
)

// withWatcher lets the provisioner watch objects.
func withWatcher(c *provision.Config) { c.Watcher = c.API.(*kubeapi.Client) }

// syncEveryMinute mounts the pods once a minute, as their workers do.
func (h *harness) syncEveryMinute(minutes int, pods ...*v1.Pod) {
	h.t.Helper()
	for range minutes {
		synctest.Wait() // for events
		for _, pod := range pods {
			h.mount(pod)
		}
		time.Sleep(time.Minute)
	}
}

// wantReads checks the requests for objects since the last call.
func (h *harness) wantReads(what string, gets, watches int) {
	h.t.Helper()
	requests := h.server.Requests("get", "watch")
	gotWatches := 0
	for _, request := range requests[h.seen:] {
		if request.Verb == "watch" {
			gotWatches++
		}
	}
	if gotGets := len(requests) - h.seen - gotWatches; gotGets != gets || gotWatches != watches {
		h.t.Errorf("%s: got %d GETs and %d watches, want %d and %d", what, gotGets, gotWatches, gets, watches)
	}
	h.seen = len(requests)
}

func (h *harness) deleteConfigMap(name string) {
	h.t.Helper()
	url := h.server.Config().Host + "/api/v1/namespaces/shop/configmaps/" + name
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodDelete, url, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	response, err := h.server.Transport().RoundTrip(request)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		h.t.Fatalf("delete config map %s: %s", name, response.Status)
	}
}

// TestWatch_PodAtRest checks that pods that are synced every minute cost no requests once their objects are watched.
func TestWatch_PodAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, withWatcher)
		h.putConfigMap("web", "colour", "red")
		h.putSecret("web", "colour", "red")
		first := newPod("first", configMapVolume("web"), secretVolume("web"))
		second := newPod("second", configMapVolume("web"))
		h.syncEveryMinute(1, first)
		h.wantReads("first sync", 2, 0)
		h.syncEveryMinute(1, first)
		h.wantReads("second sync", 2, 2)
		h.syncEveryMinute(50, first)
		h.wantReads("at rest", 0, 0)
		h.putConfigMap("web", "colour", "blue")
		h.putSecret("web", "colour", "blue")
		h.syncEveryMinute(1, first)
		for _, volume := range []string{"conf", "keys"} {
			if got := readText(t, h.path(first, volume), "colour"); got != "blue" {
				t.Errorf("%s: got %q, want blue", volume, got)
			}
		}
		h.wantReads("after a change", 0, 0)
		h.syncEveryMinute(1, second)
		h.wantReads("a new pod gets no object older than itself", 1, 0)
		h.syncEveryMinute(24*60, first, second)
		if requests := len(h.server.Requests("get", "watch")) - h.seen; requests > 48 {
			t.Errorf("got %d requests in a day, want at most one each hour for each object", requests)
		}
	})
}

func TestWatch_DeletedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, withWatcher)
		h.putConfigMap("web", "colour", "red")
		volume := configMapVolume("web")
		volume.ConfigMap.Optional = new(true)
		pod := newPod("web", volume)
		h.syncEveryMinute(3, pod)
		h.wantReads("setup", 2, 1)
		h.deleteConfigMap("web")
		h.syncEveryMinute(10, pod)
		if entries := visible(t, h.path(pod, "conf")); len(entries) > 0 {
			t.Errorf("got files %v of a deleted object", entries)
		}
		h.putConfigMap("web", "colour", "blue")
		h.syncEveryMinute(1, pod)
		if got := readText(t, h.path(pod, "conf"), "colour"); got != "blue" {
			t.Errorf("created again: got %q, want blue", got)
		}
		h.wantReads("deleted and created again", 0, 0)
	})
}

// TestWatch_MissingObject checks that an optional object that does not exist costs no requests either, and appears at once.
func TestWatch_MissingObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, withWatcher)
		volume := configMapVolume("web")
		volume.ConfigMap.Optional = new(true)
		pod := newPod("web", volume)
		h.syncEveryMinute(10, pod)
		h.wantReads("missing", 2, 1)
		h.putConfigMap("web", "colour", "red")
		h.syncEveryMinute(1, pod)
		if got := readText(t, h.path(pod, "conf"), "colour"); got != "red" {
			t.Errorf("got %q, want red", got)
		}
		h.wantReads("created", 0, 0)
	})
}

// TestWatch_Interrupted checks that no change is lost when watches end, the server has forgotten the version, or is down.
func TestWatch_Interrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, withWatcher)
		h.putConfigMap("web", "colour", "red")
		pod := newPod("web", configMapVolume("web"))
		h.syncEveryMinute(3, pod)
		for _, test := range []struct {
			name      string
			interrupt func()
		}{
			{"cut", h.server.CutWatches},
			{"expired", func() { h.server.Compact(); h.server.CutWatches() }},
			{"down", func() { h.server.SetDown(true); h.syncEveryMinute(5, pod); h.server.SetDown(false) }},
		} {
			test.interrupt()
			h.putConfigMap("web", "colour", test.name)
			h.syncEveryMinute(3, pod)
			if got := readText(t, h.path(pod, "conf"), "colour"); got != test.name {
				t.Errorf("%s: got %q", test.name, got)
			}
			h.seen = len(h.server.Requests("get", "watch"))
			h.syncEveryMinute(10, pod)
			h.wantReads(test.name+", at rest again", 0, 0)
		}
		if events := h.takeEvents(); len(events) > 0 {
			t.Errorf("got events %q, want none", events)
		}
	})
}

// TestWatch_Idle checks that the watch of an object ends that no pod reads regularly.
func TestWatch_Idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher := newFakeWatcher()
		h := newHarness(t, func(c *provision.Config) { c.Watcher = watcher })
		h.putConfigMap("web", "colour", "red")
		pod := newPod("web")
		container := &v1.Container{Name: "main", EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "web"},
		}}}}
		for range 2 {
			if _, err := h.Environment(t.Context(), pod, container, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if open := watcher.open(); open != 1 {
			t.Fatalf("got %d watches, want 1", open)
		}
		time.Sleep(10 * time.Minute)
		if open := watcher.open(); open != 0 {
			t.Errorf("got %d watches of an object that nobody reads, want 0", open)
		}
	})
}

func TestWatch_EndsWithPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher := newFakeWatcher()
		h := newHarness(t, func(c *provision.Config) { c.Watcher = watcher })
		h.putConfigMap("web", "colour", "red")
		first, second := newPod("first", configMapVolume("web")), newPod("second", configMapVolume("web"))
		h.syncEveryMinute(2, first, second)
		h.unmount(first)
		synctest.Wait()
		if open := watcher.open(); open != 1 {
			t.Fatalf("one pod left: got %d watches, want 1", open)
		}
		h.unmount(second)
		synctest.Wait()
		if open := watcher.open(); open != 0 {
			t.Errorf("no pod left: got %d watches, want 0", open)
		}
	})
}

// TestWatch_OlderEvent checks that a watch that lags behind a request does not bring an older version back.
func TestWatch_OlderEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher := newFakeWatcher()
		h := newHarness(t, func(c *provision.Config) { c.Watcher = watcher })
		h.putConfigMap("web", "colour", "red")
		first, second := newPod("first", configMapVolume("web")), newPod("second", configMapVolume("web"))
		h.syncEveryMinute(2, first)
		h.putConfigMap("web", "colour", "blue")
		h.mount(second)
		watcher.send(watch.Modified, &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", ResourceVersion: "1"}, Data: map[string]string{"colour": "stale"},
		})
		synctest.Wait()
		h.mount(first)
		if got := readText(t, h.path(first, "conf"), "colour"); got != "blue" {
			t.Errorf("got %q, want blue", got)
		}
		watcher.send(watch.Modified, &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", ResourceVersion: "1000"}, Data: map[string]string{"colour": "green"},
		})
		synctest.Wait()
		h.mount(first)
		if got := readText(t, h.path(first, "conf"), "colour"); got != "green" {
			t.Errorf("newer event: got %q, want green", got)
		}
	})
}

// TestWatch_Limits checks objects that are not watched: immutable ones, those beyond the limit, and those that the server does
// not let the node watch. They are polled as without watches.
func TestWatch_Limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher := newFakeWatcher()
		h := newHarness(t, func(c *provision.Config) { c.Watcher, c.MaxWatches = watcher, 1 })
		h.server.Put(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fixed"}, Immutable: new(true)})
		h.putConfigMap("web", "colour", "red")
		h.putConfigMap("more", "colour", "red")
		fixed, web, more := newPod("fixed", secretVolume("fixed")), newPod("web", configMapVolume("web")), newPod("more", configMapVolume("more"))
		h.syncEveryMinute(4, fixed, web, more)
		if open := watcher.open(); open != 1 {
			t.Fatalf("got %d watches, want 1", open)
		}
		watcher.deny(apierrors.NewForbidden(v1.Resource("configmaps"), "web", nil))
		h.unmount(web)
		h.putConfigMap("more", "colour", "blue")
		h.syncEveryMinute(3, more)
		if got := readText(t, h.path(more, "conf"), "colour"); got != "blue" {
			t.Errorf("forbidden watch: got %q, want blue", got)
		}
		if open := watcher.open(); open != 0 {
			t.Errorf("got %d watches, want 0", open)
		}
	})
}

// TestWatch_HangingServer checks that a restart does not wait while the object is watched, and not for long after the watch was
// given up.
func TestWatch_HangingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher, api := newFakeWatcher(), &hangingAPI{}
		h := newHarness(t, func(c *provision.Config) { api.API, c.API, c.Watcher = c.API, api, watcher })
		h.putConfigMap("web", "colour", "red")
		pod := newPod("web", configMapVolume("web"))
		h.syncEveryMinute(10, pod)
		api.hangs.Store(true)
		start := time.Now()
		h.mount(pod)
		if took := time.Since(start); took > 0 {
			t.Errorf("watched: Mount took %s, want no wait", took)
		}
		watcher.end()
		time.Sleep(5 * time.Minute)
		start = time.Now()
		h.mount(pod)
		if took := time.Since(start); took > time.Second {
			t.Errorf("not watched any more: Mount took %s, want less than a second", took)
		}
	})
}

// fakeWatcher opens watches that report what the test sends.
type fakeWatcher struct {
	mu      sync.Mutex // guards the fields below
	streams []*watch.RaceFreeFakeWatcher
	err     error
}

func newFakeWatcher() *fakeWatcher { return &fakeWatcher{} }

func (w *fakeWatcher) WatchConfigMap(context.Context, string, string, string) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	stream := watch.NewRaceFreeFake()
	w.streams = append(w.streams, stream)
	return stream, nil
}

func (w *fakeWatcher) WatchSecret(ctx context.Context, namespace, name, version string) (watch.Interface, error) {
	return w.WatchConfigMap(ctx, namespace, name, version)
}

func (w *fakeWatcher) WatchRuntimeClass(ctx context.Context, name, version string) (watch.Interface, error) {
	return w.WatchConfigMap(ctx, "", name, version)
}

// open returns the number of watches that were not stopped.
func (w *fakeWatcher) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = slices.DeleteFunc(w.streams, func(s *watch.RaceFreeFakeWatcher) bool { return s.IsStopped() })
	return len(w.streams)
}

func (w *fakeWatcher) send(event watch.EventType, object *v1.ConfigMap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, stream := range w.streams {
		stream.Action(event, object)
	}
}

// deny makes new watches fail.
func (w *fakeWatcher) deny(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// end ends all watches, and new ones fail.
func (w *fakeWatcher) end() {
	w.deny(context.DeadlineExceeded)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, stream := range w.streams {
		stream.Stop()
	}
}

package provision_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision"
)

// slowAPI delays reads of config maps and services.
type slowAPI struct{ provision.API }

func (s slowAPI) ListServices(ctx context.Context, namespace string) ([]v1.Service, error) {
	time.Sleep(100 * time.Millisecond)
	return s.API.ListServices(ctx, namespace)
}

func (s slowAPI) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.API.GetConfigMap(ctx, namespace, name)
}

// hangingAPI does not respond while hangs is set.
type hangingAPI struct {
	provision.API
	hangs atomic.Bool
}

func (a *hangingAPI) wait(ctx context.Context) error {
	if !a.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (a *hangingAPI) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if err := a.wait(ctx); err != nil {
		return nil, err
	}
	return a.API.GetConfigMap(ctx, namespace, name)
}

func (a *hangingAPI) GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if err := a.wait(ctx); err != nil {
		return nil, err
	}
	return a.API.GetSecret(ctx, namespace, name)
}

func (a *hangingAPI) ListServices(ctx context.Context, namespace string) ([]v1.Service, error) {
	if err := a.wait(ctx); err != nil {
		return nil, err
	}
	return a.API.ListServices(ctx, namespace)
}

func (a *hangingAPI) CreateToken(
	ctx context.Context, namespace, account string, wanted *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	if err := a.wait(ctx); err != nil {
		return nil, err
	}
	return a.API.CreateToken(ctx, namespace, account, wanted)
}

// TestMount_APIServerHangs checks that a hanging server delays a restart by less than a second for each object once, and
// that its response is used when it arrives.
func TestMount_APIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &hangingAPI{}
		h := newHarness(t, func(c *provision.Config) { api.API, c.API = c.API, api })
		h.putConfigMap("web", "colour", "red")
		h.putSecret("web", "colour", "red")
		pod := newPod("web", configMapVolume("web"), secretVolume("web"), tokenVolume(3600))
		h.mount(pod)
		time.Sleep(50 * time.Minute)
		api.hangs.Store(true)
		for _, limit := range []time.Duration{time.Second, 0} {
			start := time.Now()
			h.mount(pod)
			if took := time.Since(start); took > limit {
				t.Errorf("Mount took %s, want at most %s", took, limit)
			}
		}
		if events := h.takeEvents(); len(events) > 0 {
			t.Errorf("got events %q, want none", events)
		}
		api.hangs.Store(false)
		h.putConfigMap("web", "colour", "blue")
		time.Sleep(2 * time.Minute)
		h.mount(pod)
		if got := readText(t, h.path(pod, "conf"), "colour"); got != "blue" {
			t.Errorf("server responds again: got %q, want blue", got)
		}
	})
}

func TestCache_SharedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *provision.Config) { c.API = slowAPI{c.API} })
		h.putConfigMap("web", "colour", "red")
		var pods []*v1.Pod
		for i := range 100 {
			pods = append(pods, newPod(fmt.Sprint(i), configMapVolume("web")))
		}
		mountAll := func() {
			var all sync.WaitGroup
			for i, pod := range pods {
				all.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond) // one after the other
					if err := h.Mount(t.Context(), pod); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		mountAll()
		if requests := len(h.server.Requests("get")); requests > 2 {
			t.Errorf("first mounts: got %d requests, want one, and one for later pods", requests)
		}
		time.Sleep(time.Minute)
		before := len(h.server.Requests("get"))
		h.putConfigMap("web", "colour", "blue")
		mountAll()
		if requests := len(h.server.Requests("get")) - before; requests != 1 {
			t.Errorf("update: got %d requests, want 1", requests)
		}
		for _, pod := range pods {
			if got := readText(t, h.path(pod, "conf"), "colour"); got != "blue" {
				t.Errorf("pod %s: got %q, want blue", pod.Name, got)
			}
		}
	})
}

// TestCache_PodAtRest checks that a pod that is synced every minute costs at most one read of each object in two minutes.
func TestCache_PodAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *provision.Config) { c.API = slowAPI{c.API} })
		h.putConfigMap("web", "colour", "red")
		pod := newPod("web", configMapVolume("web"))
		next := time.Now()
		for range 60 {
			h.mount(pod)
			next = next.Add(time.Minute)
			time.Sleep(time.Until(next))
		}
		if requests := len(h.server.Requests("get")); requests > 30 {
			t.Errorf("got %d requests in an hour, want at most 30", requests)
		}
	})
}

func TestCache_NotOlderThanPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.putConfigMap("web", "colour", "red")
		first, second := newPod("first", configMapVolume("web")), newPod("second", configMapVolume("web"))
		h.mount(first)
		h.putConfigMap("web", "colour", "blue")
		time.Sleep(time.Millisecond)
		h.mount(second)
		if got := readText(t, h.path(second, "conf"), "colour"); got != "blue" {
			t.Errorf("new pod: got %q, want blue", got)
		}
	})
}

func TestCache_CancelledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *provision.Config) { c.API = slowAPI{c.API} })
		h.putConfigMap("web", "colour", "red")
		shortCtx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if err := h.Mount(shortCtx, newPod("a", configMapVolume("web"))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("cancelled reader: got %v, want DeadlineExceeded", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if err := h.Mount(t.Context(), newPod("b", configMapVolume("web"))); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	})
}

func TestCache_CancelledUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *provision.Config) { c.API = slowAPI{c.API} })
		h.putConfigMap("web", "colour", "red")
		pod := newPod("web", configMapVolume("web"))
		h.mount(pod)
		time.Sleep(time.Minute)
		shortCtx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := h.Mount(shortCtx, pod); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		if events := h.takeEvents(); len(events) > 0 {
			t.Errorf("got events %q, want none", events)
		}
	})
}

func TestCache_MissingObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		pods := []*v1.Pod{newPod("a", configMapVolume("web")), newPod("b", configMapVolume("web"))}
		for range 2 {
			for _, pod := range pods {
				if h.Mount(t.Context(), pod) == nil {
					t.Error("Mount succeeded, want an error")
				}
			}
		}
		if requests := len(h.server.Requests("get")); requests != 1 {
			t.Errorf("got %d requests, want 1", requests)
		}
		h.putConfigMap("web", "colour", "red")
		time.Sleep(time.Second)
		h.mount(pods[0])
	})
}

func TestCache_ImmutableObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		named := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
		h.server.Put(&v1.ConfigMap{ObjectMeta: named, Immutable: new(true)})
		h.server.Put(&v1.Secret{ObjectMeta: named, Immutable: new(true)})
		pod := newPod("web", configMapVolume("web"), secretVolume("web"))
		for range 5 {
			h.mount(pod)
			time.Sleep(time.Hour)
		}
		if requests := len(h.server.Requests("get")); requests != 2 {
			t.Errorf("got %d requests, want 2", requests)
		}
		h.unmount(pod) // drops the objects
		h.mount(pod)
		if requests := len(h.server.Requests("get")); requests != 4 {
			t.Errorf("after the pod was removed: got %d requests, want 4", requests)
		}
	})
}

func TestMount_DeletedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.putConfigMap("web", "colour", "red")
		pod := newPod("web", configMapVolume("web"))
		h.mount(pod)
		h.config.API = emptyAPI{h.config.API}
		h.restart()
		h.mount(pod)
		if got := readText(t, h.path(pod, "conf"), "colour"); got != "red" {
			t.Errorf("got %q, want red", got)
		}
		if events := h.takeEvents(); len(events) != 1 || !strings.Contains(events[0], `configmap "web" not found`) {
			t.Errorf("got events %q, want one with the missing config map", events)
		}
	})
}

func TestRetryForbidden_Temporary(t *testing.T) {
	for name, volume := range map[string]v1.Volume{
		"config map": configMapVolume("web"), "secret": secretVolume("web"), "token": tokenVolume(3600),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				h.putConfigMap("web", "colour", "red")
				h.putSecret("web", "colour", "red")
				h.config.API = &forbiddingAPI{API: h.config.API, until: time.Now().Add(time.Second)}
				h.restart()
				h.mount(newPod("web", volume))
			})
		})
	}
}

func TestRetryForbidden_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.config.API = &forbiddingAPI{API: h.config.API, until: time.Now().Add(time.Hour)}
		h.restart()
		if err := h.Mount(t.Context(), newPod("web", configMapVolume("web"))); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want Forbidden", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := h.Mount(ctx, newPod("other", configMapVolume("web"))); err == nil || time.Since(start) > time.Second {
			t.Errorf("cancelled context: got %v after %s, want an error at once", err, time.Since(start))
		}
	})
}

// forbiddingAPI forbids all reads for some time.
type forbiddingAPI struct {
	provision.API
	until time.Time
}

func (f *forbiddingAPI) check() error {
	if time.Now().Before(f.until) {
		return apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("no relationship found"))
	}
	return nil
}

func (f *forbiddingAPI) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.API.GetConfigMap(ctx, namespace, name)
}

func (f *forbiddingAPI) GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.API.GetSecret(ctx, namespace, name)
}

func (f *forbiddingAPI) CreateToken(
	ctx context.Context, namespace, account string, wanted *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.API.CreateToken(ctx, namespace, account, wanted)
}

// emptyAPI is an API server without config maps.
type emptyAPI struct{ provision.API }

func (o emptyAPI) GetConfigMap(ctx context.Context, namespace, _ string) (*v1.ConfigMap, error) {
	return o.API.GetConfigMap(ctx, namespace, "no-such-name")
}

func tokenVolume(seconds int64) v1.Volume {
	return projectedVolume(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
		Path: "token", Audience: "vault", ExpirationSeconds: &seconds,
	}})
}

// tokenRecorder records the token requests.
type tokenRecorder struct {
	provision.API
	mu       sync.Mutex // guards requests
	requests []authenticationv1.TokenRequestSpec
}

func (o *tokenRecorder) CreateToken(ctx context.Context, namespace, account string, wanted *authenticationv1.TokenRequest) (
	*authenticationv1.TokenRequest, error,
) {
	o.mu.Lock()
	o.requests = append(o.requests, wanted.Spec)
	o.mu.Unlock()
	return o.API.CreateToken(ctx, namespace, account, wanted)
}

func TestToken_Renewal(t *testing.T) {
	for name, test := range map[string]struct{ lifetime, renewed time.Duration }{
		"hour": {time.Hour, 48 * time.Minute}, "week": {7 * 24 * time.Hour, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var recorder *tokenRecorder
				h := newHarness(t, func(c *provision.Config) { recorder = &tokenRecorder{API: c.API}; c.API = recorder })
				pod := newPod("web", tokenVolume(int64(test.lifetime.Seconds())))
				pod.Spec.ServiceAccountName = "robot"
				h.mount(pod)
				file := filepath.Join(h.path(pod, "all"), "token")
				first := readText(t, file)
				if !strings.HasPrefix(first, "shop/robot for web") {
					t.Errorf("got token %q", first)
				}
				spec := recorder.requests[0]
				if spec.BoundObjectRef.UID != pod.UID || spec.Audiences[0] != "vault" || *spec.ExpirationSeconds != int64(test.lifetime.Seconds()) {
					t.Errorf("got request %v", spec)
				}
				time.Sleep(test.renewed - time.Second)
				h.mount(pod)
				if readText(t, file) != first {
					t.Error("token was renewed too early")
				}
				time.Sleep(time.Second)
				h.mount(pod)
				if readText(t, file) == first {
					t.Error("token was not renewed")
				}
				h.mount(pod)
				if len(recorder.requests) != 2 {
					t.Errorf("got %d requests, want 2", len(recorder.requests))
				}
			})
		})
	}
}

func TestToken_RenewalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		pod := newPod("web", tokenVolume(3600))
		h.mount(pod)
		first := readText(t, h.path(pod, "all"), "token")
		h.server.SetDown(true)
		time.Sleep(50 * time.Minute)
		h.mount(pod)
		if events := h.takeEvents(); len(events) > 0 {
			t.Errorf("valid token: got events %q, want none", events)
		}
		time.Sleep(10 * time.Minute)
		h.mount(pod)
		if events := h.takeEvents(); len(events) != 1 || !strings.Contains(events[0], `serviceAccountToken of "default"`) {
			t.Errorf("expired token: got events %q, want one", events)
		}
		h.server.SetDown(false)
		h.mount(pod)
		if readText(t, h.path(pod, "all"), "token") == first {
			t.Error("token was not renewed after the server came back")
		}
	})
}

func TestToken_Owner(t *testing.T) {
	h := newHarness(t)
	volume := tokenVolume(3600)
	pod := newPod("web", volume)
	h.mount(pod)
	if got := modeOf(t, filepath.Join(h.path(pod, "all"), "..data", "token")).Perm(); got != 0o644 {
		t.Errorf("no user: got mode %v, want 0644", got)
	}
	h.unmount(pod)
	user, group := chownUser(t), chownGroup(t)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &user}
	h.mount(pod)
	if owner, mode := ownerOf(t, h.path(pod, "all"), "token"); owner != user || mode != 0o600 {
		t.Errorf("got owner %d, mode %v, want owner %d, mode 0600", owner, mode, user)
	}
	h.unmount(pod)
	pod.Spec.SecurityContext.FSGroup = &group
	h.mount(pod)
	if owner, mode := ownerOf(t, h.path(pod, "all"), "token"); owner != user || mode != 0o640 {
		t.Errorf("with group: got owner %d, mode %v, want owner %d, mode 0640", owner, mode, user)
	}
	if err := h.Unmount(t.Context(), podid.UID(pod.UID)); err != nil {
		t.Error(err)
	}
}

package provision_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
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

// slowly lets every reading of a config map take a while.
type slowly struct{ provision.API }

func (s slowly) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.API.GetConfigMap(ctx, namespace, name)
}

func TestManyPodsWithOneConfigMapCostFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *provision.Config) { c.API = slowly{c.API} })
		w.putConfigMap("web", "colour", "red")
		var pods []*v1.Pod
		for i := range 100 {
			pods = append(pods, newPod(fmt.Sprint(i), configMapVolume("web")))
		}
		mountAll := func() {
			var all sync.WaitGroup
			for i, pod := range pods {
				all.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond) // they come one after the other
					if err := w.Mount(t.Context(), pod); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		mountAll()
		if asked := len(w.server.Requests("get")); asked > 2 {
			t.Errorf("%d requests when they came, want one, and one for those that came meanwhile", asked)
		}
		time.Sleep(time.Minute)
		before := len(w.server.Requests("get"))
		w.putConfigMap("web", "colour", "blue")
		mountAll()
		if asked := len(w.server.Requests("get")) - before; asked != 1 {
			t.Errorf("%d requests to renew, want 1", asked)
		}
		for _, pod := range pods {
			if got := readText(t, w.path(pod, "conf"), "colour"); got != "blue" {
				t.Errorf("%s has %q", pod.Name, got)
			}
		}
	})
}

func TestAPodGetsNothingOlderThanItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.putConfigMap("web", "colour", "red")
		first, second := newPod("first", configMapVolume("web")), newPod("second", configMapVolume("web"))
		w.mount(first)
		w.putConfigMap("web", "colour", "blue")
		time.Sleep(time.Millisecond)
		w.mount(second)
		if got := readText(t, w.path(second, "conf"), "colour"); got != "blue" {
			t.Errorf("the new pod has %q", got)
		}
	})
}

func TestWhoeverGivesUpLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *provision.Config) { c.API = slowly{c.API} })
		w.putConfigMap("web", "colour", "red")
		impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if err := w.Mount(impatient, newPod("a", configMapVolume("web"))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the impatient one: %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if err := w.Mount(t.Context(), newPod("b", configMapVolume("web"))); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	})
}

func TestARenewalThatIsGivenUpIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *provision.Config) { c.API = slowly{c.API} })
		w.putConfigMap("web", "colour", "red")
		pod := newPod("web", configMapVolume("web"))
		w.mount(pod)
		time.Sleep(time.Minute)
		impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := w.Mount(impatient, pod); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if events := w.takeEvents(); len(events) > 0 {
			t.Errorf("events %q", events)
		}
	})
}

func TestWhatIsMissingIsAskedForOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		pods := []*v1.Pod{newPod("a", configMapVolume("web")), newPod("b", configMapVolume("web"))}
		for range 2 {
			for _, pod := range pods {
				if w.Mount(t.Context(), pod) == nil {
					t.Error("it was mounted")
				}
			}
		}
		if asked := len(w.server.Requests("get")); asked != 1 {
			t.Errorf("%d requests", asked)
		}
		w.putConfigMap("web", "colour", "red")
		time.Sleep(time.Second)
		w.mount(pods[0])
	})
}

func TestWhatIsImmutableIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		named := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
		w.server.Put(&v1.ConfigMap{ObjectMeta: named, Immutable: pointer(true)})
		w.server.Put(&v1.Secret{ObjectMeta: named, Immutable: pointer(true)})
		pod := newPod("web", configMapVolume("web"), secretVolume("web"))
		for range 5 {
			w.mount(pod)
			time.Sleep(time.Hour)
		}
		if asked := len(w.server.Requests("get")); asked != 2 {
			t.Errorf("%d requests", asked)
		}
		w.unmount(pod) // and then nobody remembers it
		w.mount(pod)
		if asked := len(w.server.Requests("get")); asked != 4 {
			t.Errorf("%d requests after the pod was gone", asked)
		}
	})
}

func TestAnObjectThatWasDeletedLeavesTheFilesAndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.putConfigMap("web", "colour", "red")
		pod := newPod("web", configMapVolume("web"))
		w.mount(pod)
		w.config.API = without{w.config.API}
		w.restart()
		w.mount(pod)
		if got := readText(t, w.path(pod, "conf"), "colour"); got != "red" {
			t.Errorf("the file has %q", got)
		}
		if events := w.takeEvents(); len(events) != 1 || !strings.Contains(events[0], `configmap "web" not found`) {
			t.Errorf("events %q", events)
		}
	})
}

func TestWhatIsForbiddenForAMomentIsAskedForAgain(t *testing.T) {
	for name, volume := range map[string]v1.Volume{
		"config map": configMapVolume("web"), "secret": secretVolume("web"), "token": tokenVolume(3600),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.putConfigMap("web", "colour", "red")
				w.putSecret("web", "colour", "red")
				w.config.API = &unsure{API: w.config.API, until: time.Now().Add(time.Second)}
				w.restart()
				w.mount(newPod("web", volume))
			})
		})
	}
}

func TestWhatStaysForbiddenIsToldAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.config.API = &unsure{API: w.config.API, until: time.Now().Add(time.Hour)}
		w.restart()
		if err := w.Mount(t.Context(), newPod("web", configMapVolume("web"))); !apierrors.IsForbidden(err) {
			t.Errorf("the error is %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		if err := w.Mount(ctx, newPod("other", configMapVolume("web"))); err == nil || time.Since(begun) > time.Second {
			t.Errorf("nobody waits, and it took %s; the error is %v", time.Since(begun), err)
		}
	})
}

// unsure is an API server that does not know for some time what the node may read.
type unsure struct {
	provision.API
	until time.Time
}

func (u *unsure) verdict() error {
	if time.Now().Before(u.until) {
		return apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("no relationship found"))
	}
	return nil
}

func (u *unsure) GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if err := u.verdict(); err != nil {
		return nil, err
	}
	return u.API.GetConfigMap(ctx, namespace, name)
}

func (u *unsure) GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if err := u.verdict(); err != nil {
		return nil, err
	}
	return u.API.GetSecret(ctx, namespace, name)
}

func (u *unsure) CreateToken(
	ctx context.Context, namespace, account string, wanted *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	if err := u.verdict(); err != nil {
		return nil, err
	}
	return u.API.CreateToken(ctx, namespace, account, wanted)
}

// without is an API server from which all config maps were deleted.
type without struct{ provision.API }

func (o without) GetConfigMap(ctx context.Context, namespace, _ string) (*v1.ConfigMap, error) {
	return o.API.GetConfigMap(ctx, namespace, "no-such-name")
}

func tokenVolume(seconds int64) v1.Volume {
	return projectedVolume(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
		Path: "token", Audience: "vault", ExpirationSeconds: &seconds,
	}})
}

// tokens remembers what was asked for.
type tokens struct {
	provision.API
	mu    sync.Mutex // guards asked
	asked []authenticationv1.TokenRequestSpec
}

func (o *tokens) CreateToken(ctx context.Context, namespace, account string, wanted *authenticationv1.TokenRequest) (
	*authenticationv1.TokenRequest, error,
) {
	o.mu.Lock()
	o.asked = append(o.asked, wanted.Spec)
	o.mu.Unlock()
	return o.API.CreateToken(ctx, namespace, account, wanted)
}

func TestATokenIsRenewedInPlaceWhenFourFifthsOfItsLifeAreOver(t *testing.T) {
	for name, tc := range map[string]struct{ life, renewed time.Duration }{
		"an hour": {time.Hour, 48 * time.Minute}, "a week": {7 * 24 * time.Hour, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked *tokens
				w := newWorld(t, func(c *provision.Config) { asked = &tokens{API: c.API}; c.API = asked })
				pod := newPod("web", tokenVolume(int64(tc.life.Seconds())))
				pod.Spec.ServiceAccountName = "robot"
				w.mount(pod)
				file := filepath.Join(w.path(pod, "all"), "token")
				first := readText(t, file)
				if !strings.HasPrefix(first, "shop/robot for web") {
					t.Errorf("token %q", first)
				}
				spec := asked.asked[0]
				if spec.BoundObjectRef.UID != pod.UID || spec.Audiences[0] != "vault" || *spec.ExpirationSeconds != int64(tc.life.Seconds()) {
					t.Errorf("asked for %v", spec)
				}
				time.Sleep(tc.renewed - time.Second)
				w.mount(pod)
				if readText(t, file) != first {
					t.Error("it was renewed too early")
				}
				time.Sleep(time.Second)
				w.mount(pod)
				if readText(t, file) == first {
					t.Error("it was not renewed")
				}
				w.mount(pod)
				if len(asked.asked) != 2 {
					t.Errorf("asked %d times", len(asked.asked))
				}
			})
		})
	}
}

func TestATokenThatCannotBeRenewedServesUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		pod := newPod("web", tokenVolume(3600))
		w.mount(pod)
		first := readText(t, w.path(pod, "all"), "token")
		w.server.SetDown(true)
		time.Sleep(50 * time.Minute)
		w.mount(pod)
		if events := w.takeEvents(); len(events) > 0 {
			t.Errorf("events %q while the token is good", events)
		}
		time.Sleep(10 * time.Minute)
		w.mount(pod)
		if events := w.takeEvents(); len(events) != 1 || !strings.Contains(events[0], `serviceAccountToken of "default"`) {
			t.Errorf("events %q when the token has expired", events)
		}
		w.server.SetDown(false)
		w.mount(pod)
		if readText(t, w.path(pod, "all"), "token") == first {
			t.Error("it was not renewed when the server came back")
		}
	})
}

func TestATokenIsForThePodsUserAlone(t *testing.T) {
	w := newWorld(t)
	volume := tokenVolume(3600)
	pod := newPod("web", volume)
	w.mount(pod)
	if got := modeOf(t, filepath.Join(w.path(pod, "all"), "..data", "token")).Perm(); got != 0o644 {
		t.Errorf("mode %v when nobody says who the user is", got)
	}
	w.unmount(pod)
	user, group := ownUser(t), ownGroup(t)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &user}
	w.mount(pod)
	if owner, mode := ownerOf(t, w.path(pod, "all"), "token"); owner != user || mode != 0o600 {
		t.Errorf("owner %d, mode %v, want %d", owner, mode, user)
	}
	w.unmount(pod)
	pod.Spec.SecurityContext.FSGroup = &group
	w.mount(pod)
	if owner, mode := ownerOf(t, w.path(pod, "all"), "token"); owner != user || mode != 0o640 {
		t.Errorf("with a group: owner %d, mode %v, want %d", owner, mode, user)
	}
	if err := w.Unmount(t.Context(), podid.UID(pod.UID)); err != nil {
		t.Error(err)
	}
}

package cri_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

// secrets are those of the namespace prod.
type secrets map[string]*v1.Secret

func (s secrets) GetSecret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if found := s[name]; found != nil && namespace == "prod" {
		return found, nil
	}
	return nil, errors.New("secret not found")
}

func dockerConfigJSON(content string) *v1.Secret {
	return &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(content)}}
}

func dockercfg(content string) *v1.Secret {
	return &v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(content)}}
}

// keys is a secret with a user for each place, who has its name.
func keys(places ...string) *v1.Secret {
	var entries []string
	for _, place := range places {
		entries = append(entries, `"`+place+`": {"username": "`+place+`", "password": "hush"}`)
	}
	return dockerConfigJSON(`{"auths": {` + strings.Join(entries, ", ") + `}}`)
}

func with(names ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		for _, name := range names {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
		}
	}
}

// tried are the users with which images were asked for, "" for nobody.
func (w *world) tried() []string {
	var users []string
	for _, request := range requests[*runtimeapi.PullImageRequest](w.fake) {
		users = append(users, request.GetAuth().GetUsername())
	}
	return users
}

func TestCredentialsAreTriedWhereTheyFit(t *testing.T) {
	cases := map[string]struct {
		image  string
		places []string
		tried  []string
	}{
		"the registry's":                 {"reg.io/app:1", []string{"reg.io", "other.io"}, []string{"reg.io"}},
		"nobody's":                       {"reg.io/app:1", []string{"other.io"}, []string{""}},
		"the longest path first":         {"reg.io/a/b/c:1", []string{"reg.io", "reg.io/a", "reg.io/a/b", "reg.io/x"}, []string{"reg.io/a/b", "reg.io/a", "reg.io"}},
		"a port must be the same":        {"reg.io:5000/app:1", []string{"reg.io", "reg.io:5000", "reg.io:5001"}, []string{"reg.io:5000"}},
		"no port is a port too":          {"reg.io/app:1", []string{"reg.io:5000"}, []string{""}},
		"a pattern for a part":           {"a.reg.io/app:1", []string{"*.reg.io", "*.io", "*", "a.*.io"}, []string{"a.*.io", "*.reg.io"}},
		"a name before a pattern":        {"a.reg.io/app:1", []string{"*.reg.io", "a.reg.io"}, []string{"a.reg.io", "*.reg.io"}},
		"a pattern and a port":           {"a.reg.io:5000/app:1", []string{"*.reg.io:5000", "*.reg.io"}, []string{"*.reg.io:5000"}},
		"a pattern inside a part":        {"eu-west.reg.io/app:1", []string{"eu-*.reg.io", "us-*.reg.io"}, []string{"eu-*.reg.io"}},
		"an address":                     {"reg.io/app:1", []string{"https://reg.io/v2/", "http://reg.io/v1/"}, []string{"http://reg.io/v1/", "https://reg.io/v2/"}},
		"an address with a path":         {"reg.io/a/b:1", []string{"https://reg.io/v1/a"}, []string{"https://reg.io/v1/a"}},
		"other signs are no patterns":    {"a.reg.io/app:1", []string{"?.reg.io", "[ab].reg.io"}, []string{""}},
		"a slash ends a part of a path":  {"reg.io/ab/c:1", []string{"reg.io/a/", "reg.io/a"}, []string{"reg.io/a"}},
		"a broken pattern":               {"reg.io/app:1", []string{"[.io"}, []string{""}},
		"Docker Hub, by its old name":    {"app:1", []string{"https://index.docker.io/v1/"}, []string{"https://index.docker.io/v1/"}},
		"Docker Hub, by its name":        {"team/app:1", []string{"docker.io", "https://index.docker.io/v1/"}, []string{"docker.io"}},
		"Docker Hub's are no other's":    {"reg.io/app:1", []string{"https://index.docker.io/v1/"}, []string{""}},
		"an IPv6 address":                {"[fd00::1]:5000/app:1", []string{"[fd00::1]:5000"}, []string{"[fd00::1]:5000"}},
		"a digest is no part of a place": {"reg.io/app@sha256:" + strings.Repeat("a", 64), []string{"reg.io/app"}, []string{"reg.io/app"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				denied := refuses(codes.Unknown, "denied")
				w.fake.next("PullImage", denied, denied, denied, denied)
				if err := w.start(w.Context(), wants(test.image, with("pull"))); reasonOf(err) != "ErrImagePull" || err.Error() != "denied" {
					w.Errorf("it ended with %v", err)
				}
				if diff := cmp.Diff(test.tried, w.tried()); diff != "" {
					w.Error(diff)
				}
			}, func(config *cri.Config) { config.Secrets = secrets{"pull": keys(test.places...)} })
		})
	}
}

func TestCredentialsAreTriedInTheOrderOfTheSecrets(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("PullImage", refuses(codes.Unknown, "denied"), refuses(codes.Unknown, "expired"))
		if err := w.start(w.Context(), wants("reg.io/app:1", with("b", "a", "c"))); err != nil {
			w.Error(err)
		}
		if diff := cmp.Diff([]string{"bob", "ann", "cy"}, w.tried()); diff != "" {
			w.Error(diff)
		}
		for _, request := range requests[*runtimeapi.PullImageRequest](w.fake) {
			if request.Auth.Password != "hush:hush" {
				w.Errorf("the password of %s was not read", request.Auth.Username)
			}
		}
	}, func(config *cri.Config) {
		config.Secrets = secrets{
			"a": dockercfg(`{"reg.io": {"username": "ann", "password": "hush:hush", "email": "x"}}`),
			"b": dockerConfigJSON(`{"auths": {"reg.io": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("bob:hush:hush")) + `"}}}`),
			"c": dockerConfigJSON(`{"auths": {"reg.io": {"auth": "` + base64.RawStdEncoding.EncodeToString([]byte("cy:hush:hush")) + `"}}}`),
		}
	})
}

func TestEveryRefusalOfARegistryIsShown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("PullImage", refuses(codes.Unknown, "denied"), refuses(codes.Unknown, "expired"), refuses(codes.Unknown, "denied"))
		err := w.start(w.Context(), wants("reg.io/a/b:1", with("pull")))
		if reasonOf(err) != "ErrImagePull" || err.Error() != "denied, expired" {
			w.Errorf("it ended with %v", err)
		}
	}, func(config *cri.Config) { config.Secrets = secrets{"pull": keys("reg.io", "reg.io/a", "reg.io/a/b")} })
}

func TestASecretThatIsOfNoUseIsToldOfAndNotShown(t *testing.T) {
	var log bytes.Buffer
	inWorld(t, func(w *world) {
		pod := wants("reg.io/app:1", with("", "absent", "broken", "bad", "opaque", "good"))
		if err := w.start(w.Context(), pod); err != nil {
			w.Error(err)
		}
		if diff := cmp.Diff([]string{"reg.io"}, w.tried()); diff != "" {
			w.Error(diff)
		}
		want := "Warning FailedToRetrieveImagePullSecret : Unable to retrieve some image pull secrets (absent, broken, bad, opaque); " +
			"attempting to pull the image may not succeed."
		if !slices.Contains(w.events(), want) {
			w.Errorf("events: %q", w.events())
		}
		if shown := log.String() + strings.Join(w.events(), ""); strings.Contains(shown, "hush") || !strings.Contains(shown, "absent") {
			w.Errorf("shown: %s", shown)
		}
	}, func(config *cri.Config) {
		config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		config.Secrets = secrets{
			"broken": dockerConfigJSON(`{"auths": hush}`), "bad": dockerConfigJSON(`{"auths": {"reg.io": {"auth": "hush"}}}`),
			"opaque": {Type: v1.SecretTypeOpaque, Data: map[string][]byte{"x": []byte("hush")}}, "good": keys("reg.io"),
		}
	})
}

// silence never answers.
type silence struct{}

func (silence) GetSecret(ctx context.Context, _, _ string) (*v1.Secret, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestASecretThatDoesNotComeIsNotWaitedForForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := wants("reg.io/app:1", with("pull"))
		begun := time.Now()
		if err := w.start(w.Context(), pod); err != nil || time.Since(begun) != 2*time.Minute {
			w.Errorf("it ended with %v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		start := first(pod)
		start.RestartCount = 1
		start.Container.ImagePullPolicy = v1.PullAlways
		if err := w.StartContainer(ctx, pod, w.sandbox(pod), start); !errors.Is(err, context.DeadlineExceeded) || w.pulls() != 1 {
			w.Errorf("who has no time ended with %v after %d pulls", err, w.pulls())
		}
	}, func(config *cri.Config) { config.Secrets = silence{} })
}

func TestANodeWithoutSecretsPullsWithout(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.start(w.Context(), wants("reg.io/app:1", with("pull"))); err != nil {
			w.Error(err)
		}
		if !strings.Contains(strings.Join(w.events(), "\n"), "FailedToRetrieveImagePullSecret : Unable to retrieve some image pull secrets (pull)") {
			w.Errorf("events: %q", w.events())
		}
	})
}

func TestNobodyGetsAnImageByAnotherOnesCredentials(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("PullImage", takes(time.Minute), refuses(codes.Unknown, "denied"))
		rich, poor := wants("reg.io/app:1", with("pull")), wants("reg.io/app:1", named("uid-2"))
		ended := make(chan error, 1)
		sandbox := w.sandbox(rich)
		go func() { ended <- w.StartContainer(w.Context(), rich, sandbox, first(rich)) }()
		synctest.Wait()
		if err := w.start(w.Context(), poor); reasonOf(err) != "ErrImagePull" {
			w.Errorf("without credentials it ended with %v", err)
		}
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}, func(config *cri.Config) { config.Secrets = secrets{"pull": keys("reg.io")} })
}

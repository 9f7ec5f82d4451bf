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

// secrets holds the secrets of the namespace prod by name.
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

// pullSecret returns a secret with a user for each address, named after it.
func pullSecret(addresses ...string) *v1.Secret {
	var entries []string
	for _, address := range addresses {
		entries = append(entries, `"`+address+`": {"username": "`+address+`", "password": "hush"}`)
	}
	return dockerConfigJSON(`{"auths": {` + strings.Join(entries, ", ") + `}}`)
}

func withPullSecrets(names ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		for _, name := range names {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
		}
	}
}

// triedUsers returns the users of all PullImage calls, "" for calls without credentials.
func (h *harness) triedUsers() []string {
	var users []string
	for _, request := range requests[*runtimeapi.PullImageRequest](h.fake) {
		users = append(users, request.GetAuth().GetUsername())
	}
	return users
}

func TestCredentials_Matching(t *testing.T) {
	tests := map[string]struct {
		image     string
		addresses []string
		want      []string
	}{
		"same registry":            {"reg.io/app:1", []string{"reg.io", "other.io"}, []string{"reg.io"}},
		"other registry":           {"reg.io/app:1", []string{"other.io"}, []string{""}},
		"longest path first":       {"reg.io/a/b/c:1", []string{"reg.io", "reg.io/a", "reg.io/a/b", "reg.io/x"}, []string{"reg.io/a/b", "reg.io/a", "reg.io"}},
		"same port":                {"reg.io:5000/app:1", []string{"reg.io", "reg.io:5000", "reg.io:5001"}, []string{"reg.io:5000"}},
		"no port":                  {"reg.io/app:1", []string{"reg.io:5000"}, []string{""}},
		"pattern for a label":      {"a.reg.io/app:1", []string{"*.reg.io", "*.io", "*", "a.*.io"}, []string{"a.*.io", "*.reg.io"}},
		"name before pattern":      {"a.reg.io/app:1", []string{"*.reg.io", "a.reg.io"}, []string{"a.reg.io", "*.reg.io"}},
		"pattern and port":         {"a.reg.io:5000/app:1", []string{"*.reg.io:5000", "*.reg.io"}, []string{"*.reg.io:5000"}},
		"pattern in a label":       {"eu-west.reg.io/app:1", []string{"eu-*.reg.io", "us-*.reg.io"}, []string{"eu-*.reg.io"}},
		"URL":                      {"reg.io/app:1", []string{"https://reg.io/v2/", "http://reg.io/v1/"}, []string{"http://reg.io/v1/", "https://reg.io/v2/"}},
		"URL with path":            {"reg.io/a/b:1", []string{"https://reg.io/v1/a"}, []string{"https://reg.io/v1/a"}},
		"other pattern characters": {"a.reg.io/app:1", []string{"?.reg.io", "[ab].reg.io"}, []string{""}},
		"path with trailing slash": {"reg.io/ab/c:1", []string{"reg.io/a/", "reg.io/a"}, []string{"reg.io/a"}},
		"invalid pattern":          {"reg.io/app:1", []string{"[.io"}, []string{""}},
		"Docker Hub, old name":     {"app:1", []string{"https://index.docker.io/v1/"}, []string{"https://index.docker.io/v1/"}},
		"Docker Hub, name":         {"team/app:1", []string{"docker.io", "https://index.docker.io/v1/"}, []string{"docker.io"}},
		"Docker Hub only":          {"reg.io/app:1", []string{"https://index.docker.io/v1/"}, []string{""}},
		"IPv6 address":             {"[fd00::1]:5000/app:1", []string{"[fd00::1]:5000"}, []string{"[fd00::1]:5000"}},
		"digest":                   {"reg.io/app@sha256:" + strings.Repeat("a", 64), []string{"reg.io/app"}, []string{"reg.io/app"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				denied := fails(codes.Unknown, "denied")
				h.fake.inject("PullImage", denied, denied, denied, denied)
				if err := h.startFirst(h.Context(), podWithImage(test.image, withPullSecrets("pull"))); waitingReason(err) != "ErrImagePull" || err.Error() != "denied" {
					h.Errorf("got error %v", err)
				}
				if diff := cmp.Diff(test.want, h.triedUsers()); diff != "" {
					h.Error(diff)
				}
			}, func(config *cri.Config) { config.Secrets = secrets{"pull": pullSecret(test.addresses...)} })
		})
	}
}

func TestCredentials_Order(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("PullImage", fails(codes.Unknown, "denied"), fails(codes.Unknown, "expired"))
		if err := h.startFirst(h.Context(), podWithImage("reg.io/app:1", withPullSecrets("b", "a", "c"))); err != nil {
			h.Error(err)
		}
		if diff := cmp.Diff([]string{"bob", "ann", "cy"}, h.triedUsers()); diff != "" {
			h.Error(diff)
		}
		for _, request := range requests[*runtimeapi.PullImageRequest](h.fake) {
			if request.Auth.Password != "hush:hush" {
				h.Errorf("got wrong password of %s", request.Auth.Username)
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

func TestCredentials_ErrorsJoined(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("PullImage", fails(codes.Unknown, "denied"), fails(codes.Unknown, "expired"), fails(codes.Unknown, "denied"))
		err := h.startFirst(h.Context(), podWithImage("reg.io/a/b:1", withPullSecrets("pull")))
		if waitingReason(err) != "ErrImagePull" || err.Error() != "denied, expired" {
			h.Errorf("got error %v", err)
		}
	}, func(config *cri.Config) {
		config.Secrets = secrets{"pull": pullSecret("reg.io", "reg.io/a", "reg.io/a/b")}
	})
}

func TestCredentials_InvalidSecretNotShown(t *testing.T) {
	var log bytes.Buffer
	inBubble(t, func(h *harness) {
		pod := podWithImage("reg.io/app:1", withPullSecrets("", "absent", "broken", "bad", "opaque", "good"))
		if err := h.startFirst(h.Context(), pod); err != nil {
			h.Error(err)
		}
		if diff := cmp.Diff([]string{"reg.io"}, h.triedUsers()); diff != "" {
			h.Error(diff)
		}
		want := "Warning FailedToRetrieveImagePullSecret : Unable to retrieve some image pull secrets (absent, broken, bad, opaque); " +
			"attempting to pull the image may not succeed."
		if !slices.Contains(h.events(), want) {
			h.Errorf("got events %q", h.events())
		}
		if shown := log.String() + strings.Join(h.events(), ""); strings.Contains(shown, "hush") || !strings.Contains(shown, "absent") {
			h.Errorf("got output %s", shown)
		}
	}, func(config *cri.Config) {
		config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		config.Secrets = secrets{
			"broken": dockerConfigJSON(`{"auths": hush}`), "bad": dockerConfigJSON(`{"auths": {"reg.io": {"auth": "hush"}}}`),
			"opaque": {Type: v1.SecretTypeOpaque, Data: map[string][]byte{"x": []byte("hush")}}, "good": pullSecret("reg.io"),
		}
	})
}

// hangingSecrets never returns a secret before its context ends.
type hangingSecrets struct{}

func (hangingSecrets) GetSecret(ctx context.Context, _, _ string) (*v1.Secret, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestCredentials_SecretTimeout(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := podWithImage("reg.io/app:1", withPullSecrets("pull"))
		started := time.Now()
		if err := h.startFirst(h.Context(), pod); err != nil || time.Since(started) != 2*time.Minute {
			h.Errorf("got error %v after %v", err, time.Since(started))
		}
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		start := firstStart(pod)
		start.RestartCount = 1
		start.Container.ImagePullPolicy = v1.PullAlways
		if err := h.StartContainer(ctx, pod, h.startSandbox(pod), start); !errors.Is(err, context.DeadlineExceeded) || h.pullCount() != 1 {
			h.Errorf("short deadline: got error %v after %d pulls", err, h.pullCount())
		}
	}, func(config *cri.Config) { config.Secrets = hangingSecrets{} })
}

func TestCredentials_NoSecrets(t *testing.T) {
	inBubble(t, func(h *harness) {
		if err := h.startFirst(h.Context(), podWithImage("reg.io/app:1", withPullSecrets("pull"))); err != nil {
			h.Error(err)
		}
		if !strings.Contains(strings.Join(h.events(), "\n"), "FailedToRetrieveImagePullSecret : Unable to retrieve some image pull secrets (pull)") {
			h.Errorf("got events %q", h.events())
		}
	})
}

func TestCredentials_NotShared(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("PullImage", delays(time.Minute), fails(codes.Unknown, "denied"))
		withSecret, withoutSecret := podWithImage("reg.io/app:1", withPullSecrets("pull")), podWithImage("reg.io/app:1", withUID("uid-2"))
		done := make(chan error, 1)
		sandbox := h.startSandbox(withSecret)
		go func() { done <- h.StartContainer(h.Context(), withSecret, sandbox, firstStart(withSecret)) }()
		synctest.Wait()
		if err := h.startFirst(h.Context(), withoutSecret); waitingReason(err) != "ErrImagePull" {
			h.Errorf("without credentials: got error %v", err)
		}
		if err := <-done; err != nil {
			h.Error(err)
		}
	}, func(config *cri.Config) { config.Secrets = secrets{"pull": pullSecret("reg.io")} })
}

package cri_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
)

const privateImage = "reg.io/team/app:1"

// namedSecret returns a pull secret for reg.io with an identity.
func namedSecret(uid types.UID, name, password string) *v1.Secret {
	secret := dockerConfigJSON(`{"auths": {"reg.io": {"username": "ann", "password": "` + password + `"}}}`)
	secret.UID, secret.Namespace, secret.Name = uid, "prod", name
	return secret
}

// withPrivateImage configures secrets for privateImage, whose password is hush.
func withPrivateImage(config *cri.Config) {
	config.Secrets = secrets{
		"good": namedSecret("s1", "good", "hush"), "copy": namedSecret("s2", "copy", "hush"), "wrong": namedSecret("s3", "wrong", "guess"),
	}
}

// pullPrivate makes a pod with the credential pull privateImage.
func pullPrivate(h *harness) {
	h.Helper()
	h.fake.passwords = map[string]string{privateImage: "hush"}
	if err := h.startFirst(h.Context(), podWithImage(privateImage, withPullSecrets("good"))); err != nil {
		h.Fatal(err)
	}
}

// The attack: another tenant names the image that a pod on the same node has pulled with its credential.
func TestIMG8_PrivateImageOfOtherPod(t *testing.T) {
	tests := map[string]struct {
		policy  v1.PullPolicy
		secrets []string
		reason  string
	}{
		"without a credential":        {v1.PullIfNotPresent, nil, "ErrImagePull"},
		"with a wrong credential":     {v1.PullIfNotPresent, []string{"wrong"}, "ErrImagePull"},
		"never pulled, no credential": {v1.PullNever, nil, "ErrImageNeverPull"},
		"the same secret":             {v1.PullIfNotPresent, []string{"good"}, ""},
		"the same credential":         {v1.PullIfNotPresent, []string{"wrong", "copy"}, ""},
		"never, the same secret":      {v1.PullNever, []string{"good"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pullPrivate(h)
				pulls := h.pullCount()
				pod := podWithImage(privateImage, withUID("uid-2"), withPullSecrets(test.secrets...))
				pod.Spec.Containers[0].ImagePullPolicy = test.policy
				if err := h.startFirst(h.Context(), pod); waitingReason(err) != test.reason || (err != nil) != (test.reason != "") {
					h.Errorf("got %q, error %v; want %q", waitingReason(err), err, test.reason)
				}
				if test.reason == "" && h.pullCount() != pulls {
					h.Error("got a pull for a pod that may use the image")
				}
			}, withPrivateImage)
		})
	}
}

// Pods must not learn which private images the node has.
func TestIMG18_SameErrorAsAbsent(t *testing.T) {
	inBubble(t, func(h *harness) {
		pullPrivate(h)
		var messages []string
		for _, image := range []string{privateImage, "reg.io/team/absent:1"} {
			pod := podWithImage(image, withUID("uid-2"))
			pod.Spec.Containers[0].ImagePullPolicy = v1.PullNever
			err := h.startFirst(h.Context(), pod)
			if err == nil {
				h.Fatal("got no error, want one")
			}
			messages = append(messages, strings.ReplaceAll(err.Error(), image, "IMAGE"))
		}
		if messages[0] != messages[1] {
			h.Errorf("got %q for an image of others, %q for an absent one", messages[0], messages[1])
		}
	}, withPrivateImage)
}

func TestIMG9_Policies(t *testing.T) {
	tests := map[string]struct {
		policy                        pullmanager.Policy
		allowlist                     []string
		pulledByOther, preloaded, own bool // whether the node's image is used without a pull
	}{
		"default":            {"", nil, false, true, true},
		"preloaded":          {pullmanager.NeverVerifyPreloadedImages, nil, false, true, true},
		"never":              {pullmanager.NeverVerify, nil, true, true, true},
		"always":             {pullmanager.AlwaysVerify, nil, false, false, true},
		"allowlist, other":   {pullmanager.NeverVerifyAllowlistedImages, []string{"reg.io/x/*"}, false, false, true},
		"allowlist, prefix":  {pullmanager.NeverVerifyAllowlistedImages, []string{"reg.io/team/*"}, true, false, true},
		"allowlist, by name": {pullmanager.NeverVerifyAllowlistedImages, []string{"web"}, false, true, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pullPrivate(h)
				for i, request := range []struct {
					image   string
					secrets []string
					want    bool
				}{
					{privateImage, nil, test.pulledByOther}, {"web:1", nil, test.preloaded}, {privateImage, []string{"good"}, test.own},
				} {
					pulls := h.pullCount()
					pod := podWithImage(request.image, withUID(types.UID(string(rune('a'+i)))), withPullSecrets(request.secrets...))
					_ = h.startFirst(h.Context(), pod)
					if used := h.pullCount() == pulls; used != request.want {
						h.Errorf("image %s, secrets %v: used without a pull: got %v, want %v", request.image, request.secrets, used, request.want)
					}
				}
			}, withPrivateImage, func(config *cri.Config) {
				config.ImageVerification.Policy, config.ImageVerification.Allowlist = test.policy, test.allowlist
			})
		})
	}
}

func TestIMG16_PublicImage(t *testing.T) {
	inBubble(t, func(h *harness) {
		if err := h.startFirst(h.Context(), podWithImage("web:2")); err != nil {
			h.Fatal(err)
		}
		if err := h.startFirst(h.Context(), podWithImage("web:2", withUID("uid-2"))); err != nil || h.pullCount() != 1 {
			h.Errorf("got %d pulls, error %v; want one pull", h.pullCount(), err)
		}
	})
}

// The attack: the connection to the runtime breaks after the pull of a private image. No record of it can be written, and the
// image must not count as preloaded.
func TestIMG12_InterruptedPull(t *testing.T) {
	tests := map[string]fault{
		"lost response":          losesResponse,
		"failed after the pull":  completesAndFails,
		"runtime gone meanwhile": fails(codes.Unavailable, "connection refused"),
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.passwords = map[string]string{privateImage: "hush"}
				h.fake.inject("PullImage", fault)
				if err := h.startFirst(h.Context(), podWithImage(privateImage, withPullSecrets("good"))); err == nil {
					h.Fatal("got no error, want one")
				}
				digest := "reg.io/team/app@sha256:" + strings.Repeat("a", 64)
				h.fake.mu.Lock()
				if h.fake.images[privateImage] == nil { // the runtime completes it later
					h.fake.images[privateImage] = &runtimeapi.Image{Id: "sha256:later"}
				}
				h.fake.images[digest], h.fake.passwords[digest] = h.fake.images[privateImage], "hush"
				h.fake.mu.Unlock()
				for _, image := range []string{digest, privateImage} {
					for _, uid := range []types.UID{"b1", "b2"} { // the second after a pull that failed
						if err := h.startFirst(h.Context(), podWithImage(image, withUID(uid))); waitingReason(err) != "ErrImagePull" {
							h.Errorf("pod %s without the credential, image %s: got error %v, want ErrImagePull", uid, image, err)
						}
					}
				}
				if err := h.startFirst(h.Context(), podWithImage(privateImage, withUID("uid-3"), withPullSecrets("good"))); err != nil {
					h.Error("with the credential:", err)
				}
			}, withPrivateImage)
		})
	}
}

// An agent that was killed during a pull leaves the intent to the next one.
func TestIMG13_IntentOfKilledAgent(t *testing.T) {
	root := t.TempDir()
	before := newHarness(t, root, withPrivateImage)
	before.fake.inject("PullImage", hangs)
	go func() { _ = before.startFirst(before.Context(), podWithImage(privateImage, withPullSecrets("good"))) }()
	heraldtest.Eventually(t, func() error {
		if before.pullCount() == 0 {
			return errors.New("no pull has begun")
		}
		return nil
	})
	before.down()
	after := newHarness(t, root, withPrivateImage)
	after.fake.passwords = map[string]string{privateImage: "hush"}
	after.fake.images[privateImage] = after.fake.images["web:1"]
	for _, uid := range []types.UID{"b1", "b2"} {
		if err := after.startFirst(t.Context(), podWithImage(privateImage, withUID(uid))); waitingReason(err) != "ErrImagePull" {
			t.Errorf("pod %s without the credential: got error %v, want ErrImagePull", uid, err)
		}
	}
}

// A pod that has used the image restarts while the API server cannot be reached.
func TestIMG15_SecretsUnreadable(t *testing.T) {
	readable := secrets{"good": namedSecret("s1", "good", "hush")}
	inBubble(t, func(h *harness) {
		pullPrivate(h)
		delete(readable, "good")
		own := podWithImage(privateImage, withPullSecrets("good"))
		restart := firstStart(own)
		restart.RestartCount = 1
		if err := h.StartContainer(h.Context(), own, h.inspect(own).Sandboxes[0].ID, restart); err != nil {
			h.Error("restart:", err)
		}
		other := podWithImage(privateImage, withUID("uid-2"), withPullSecrets("good"))
		if err := h.startFirst(h.Context(), other); waitingReason(err) != "ErrImagePull" {
			h.Errorf("other pod: got error %v, want ErrImagePull", err)
		}
	}, func(config *cri.Config) { config.Secrets = readable })
}

func TestIMG17_PruneRecords(t *testing.T) {
	inBubble(t, func(h *harness) {
		pullPrivate(h)
		time.Sleep(2 * time.Hour)
		collect := func() int {
			if err := h.CollectGarbage(h.Context(), func(podid.UID) bool { return true }); err != nil {
				h.Error(err)
			}
			return len(listFiles(h.T, h.root+"/image_manager/pulled"))
		}
		if records := collect(); records != 1 {
			h.Errorf("image present: got %d records, want 1", records)
		}
		h.fake.mu.Lock()
		delete(h.fake.images, privateImage)
		h.fake.mu.Unlock()
		if records := collect(); records != 1 {
			h.Errorf("within an hour: got %d records, want 1", records)
		}
		time.Sleep(2 * time.Hour)
		if records := collect(); records != 0 {
			h.Errorf("image removed: got %d records, want 0", records)
		}
	}, withPrivateImage)
}

// A pull whose intent cannot be written does not take place.
func TestIMG12_IntentNotWritable(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.writeFile(h.root+"/image_manager/pulling", "not a directory")
		err := h.startFirst(h.Context(), podWithImage("web:2"))
		if waitingReason(err) != "ErrImagePull" || !strings.Contains(err.Error(), "record intent to pull image web:2") || h.pullCount() != 0 {
			h.Errorf("got %d pulls, error %v", h.pullCount(), err)
		}
	})
}

func TestConfig_ImageVerification(t *testing.T) {
	config := cri.Config{Endpoint: "unix:///x", Root: "/x/pods", Provisioner: fakeProvisioner{}}
	config.ImageVerification = pullmanager.Config{Policy: "Sometimes"}
	if _, err := cri.New(config); err == nil || !strings.Contains(err.Error(), "Policy must be one of") {
		t.Errorf("got error %v", err)
	}
}

// completesAndFails performs the call and fails as if it had not.
func completesAndFails(_ context.Context, execute func() (any, error)) (any, error) {
	if _, err := execute(); err != nil {
		return nil, err
	}
	return nil, errors.New("snapshot not found")
}

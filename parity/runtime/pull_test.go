package runtime_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
)

// store is a registry that lets in whoever has the password; "" lets in everybody.
type store struct {
	host   string
	inside http.Handler
}

func newStore(t *testing.T, password string) *store {
	t.Helper()
	s := &store{inside: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="store"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.inside.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

// push puts an image there that can only be pulled, and returns its name without a tag.
func (s *store) push(t *testing.T, repository string) string {
	t.Helper()
	image, err := random.Image(1024, 1)
	if err != nil {
		t.Fatal(err)
	}
	layers, errLayers := image.Layers()
	layer, errLayer := layers[0].Compressed()
	blob, errBlob := io.ReadAll(layer)
	config, errConfig := image.RawConfigFile()
	manifest, errManifest := image.RawManifest()
	kind, errKind := image.MediaType()
	if err := errors.Join(errLayers, errLayer, errBlob, errConfig, errManifest, errKind); err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{blob, config} {
		s.send(t, http.MethodPost, fmt.Sprintf("/v2/%s/blobs/uploads/?digest=sha256:%x", repository, sha256.Sum256(content)), "", content)
	}
	s.send(t, http.MethodPut, "/v2/"+repository+"/manifests/latest", string(kind), manifest)
	return s.host + "/" + repository
}

// send goes past the door.
func (s *store) send(t *testing.T, method, target, kind string, body []byte) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, target, bytes.NewReader(body))
	request.Header.Set("Content-Type", kind)
	answer := httptest.NewRecorder()
	s.inside.ServeHTTP(answer, request)
	if answer.Code != http.StatusCreated {
		t.Fatalf("%s %s: %d %s", method, target, answer.Code, answer.Body)
	}
}

// told notes events as "Reason: Message".
type told struct{ lines chan string }

func (e told) Event(_ runtime.Object, _, reason, message string) { e.lines <- reason + ": " + message }

func (e told) all() string {
	var all []string
	for len(e.lines) > 0 {
		all = append(all, <-e.lines)
	}
	return strings.Join(all, "\n")
}

type pullSecrets map[string]*v1.Secret

func (s pullSecrets) GetSecret(_ context.Context, _, name string) (*v1.Secret, error) {
	if found := s[name]; found != nil {
		return found, nil
	}
	return nil, errors.New("not found")
}

func pullSecret(host, password string) *v1.Secret {
	content := `{"auths": {"` + host + `": {"username": "ann", "password": "` + password + `"}}}`
	return &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(content)}}
}

// reasonOf is the reason that status.waiting shows.
func reasonOf(err error) string {
	var said interface{ WaitingReason() string }
	if errors.As(err, &said) {
		return said.WaitingReason()
	}
	return ""
}

// startOf asks for the image, in a sandbox that is there or made. The images here have no program: what was pulled fails
// only then.
func startOf(t *testing.T, r *cri.Runtime, pod *v1.Pod, image string, policy v1.PullPolicy) error {
	t.Helper()
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, policy
	sandbox, err := r.StartSandbox(t.Context(), pod, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0]})
}

func TestImagesArePulledFromARealRegistry(t *testing.T) {
	c := containerd.ForTest(t)
	events := told{make(chan string, 100)}
	open, locked := newStore(t, ""), newStore(t, "hush")
	r, _ := newRuntime(t, c, func(config *cri.Config) {
		config.Events = events
		config.Secrets = pullSecrets{"good": pullSecret(locked.host, "hush"), "bad": pullSecret(locked.host, "guess")}
	})
	free, secret := open.push(t, "free"), locked.push(t, "team/secret")
	cases := []struct {
		name, image string
		policy      v1.PullPolicy
		secrets     []string
		pulled      bool
		event       string
	}{
		{"open to all", free, v1.PullIfNotPresent, nil, true, `Pulled: Successfully pulled image "` + free + `" in `},
		{"there already", free, v1.PullIfNotPresent, nil, true, `Pulled: Container image "` + free + `" already present on machine`},
		{"not in the registry", free + ":none", v1.PullAlways, nil, false, `Failed: Failed to pull image "` + free + `:none": `},
		{"locked", secret, v1.PullAlways, nil, false, `Failed: Failed to pull image "` + secret + `": `},
		{"locked, with a wrong key", secret, v1.PullAlways, []string{"bad"}, false, "Failed: Error: ErrImagePull"},
		{"locked, with no such key", secret, v1.PullAlways, []string{"absent"}, false, "FailedToRetrieveImagePullSecret: "},
		{"locked, with a wrong and a right key", secret, v1.PullAlways, []string{"bad", "good"}, true, " bytes."},
	}
	for _, test := range cases { // in this order: the node remembers images
		t.Run(test.name, func(t *testing.T) {
			pod := newPod("pause")
			for _, one := range test.secrets {
				pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: one})
			}
			err := startOf(t, r, pod, test.image, test.policy)
			if pulled := reasonOf(err) == "RunContainerError"; pulled != test.pulled || (!pulled && reasonOf(err) != "ErrImagePull") {
				t.Errorf("it ended with %s: %v", reasonOf(err), err)
			}
			if heard := events.all(); !strings.Contains(heard, test.event) {
				t.Errorf("no event %q in:\n%s", test.event, heard)
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Error("a password is shown")
			}
			if !test.pulled {
				if err := startOf(t, r, pod, test.image, test.policy); reasonOf(err) != "ImagePullBackOff" {
					t.Errorf("at once again it ended with %s: %v", reasonOf(err), err)
				}
			}
			remove(t, r, pod)
			events.all()
		})
	}
}

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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
)

// fakeRegistry is an image registry.
type fakeRegistry struct {
	host    string
	handler http.Handler // without authentication
}

// newRegistry starts a registry that requires the password; "" means no authentication.
func newRegistry(t *testing.T, password string) *fakeRegistry {
	t.Helper()
	created := &fakeRegistry{handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		created.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	created.host = strings.TrimPrefix(server.URL, "http://")
	return created
}

// push pushes an image without a program, and returns its name without a tag.
func (r *fakeRegistry) push(t *testing.T, repository string) string {
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
		r.send(t, http.MethodPost, fmt.Sprintf("/v2/%s/blobs/uploads/?digest=sha256:%x", repository, sha256.Sum256(content)), "", content)
	}
	r.send(t, http.MethodPut, "/v2/"+repository+"/manifests/latest", string(kind), manifest)
	return r.host + "/" + repository
}

// send bypasses the authentication.
func (r *fakeRegistry) send(t *testing.T, method, target, kind string, body []byte) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, target, bytes.NewReader(body))
	request.Header.Set("Content-Type", kind)
	response := httptest.NewRecorder()
	r.handler.ServeHTTP(response, request)
	if response.Code != http.StatusCreated {
		t.Fatalf("%s %s: %d %s", method, target, response.Code, response.Body)
	}
}

// fakeRecorder records events as "Reason: Message".
type fakeRecorder struct{ lines chan string }

func (r fakeRecorder) Event(_ runtime.Object, _, reason, message string) {
	r.lines <- reason + ": " + message
}

// drain returns and forgets the recorded events.
func (r fakeRecorder) drain() string {
	var all []string
	for len(r.lines) > 0 {
		all = append(all, <-r.lines)
	}
	return strings.Join(all, "\n")
}

type pullSecrets map[string]*v1.Secret

func (s pullSecrets) GetSecret(_ context.Context, _, name string) (*v1.Secret, error) {
	if secret := s[name]; secret != nil {
		return secret, nil
	}
	return nil, errors.New("not found")
}

func newPullSecret(host, password string) *v1.Secret {
	content := `{"auths": {"` + host + `": {"username": "ann", "password": "` + password + `"}}}`
	return &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(content)}}
}

// waitingReason returns the reason that status.waiting shows for the error.
func waitingReason(err error) string {
	var withReason interface{ WaitingReason() string }
	if errors.As(err, &withReason) {
		return withReason.WaitingReason()
	}
	return ""
}

// startWithImage starts a container with the image. The images have no program, so the start fails after the pull at the latest.
func startWithImage(t *testing.T, r *cri.Runtime, pod *v1.Pod, image string, policy v1.PullPolicy) error {
	t.Helper()
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, policy
	sandbox, err := r.StartSandbox(t.Context(), pod, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0]})
}

func TestRuntime_PullImage(t *testing.T) {
	c := containerd.ForTest(t)
	events := fakeRecorder{make(chan string, 100)}
	open, locked := newRegistry(t, ""), newRegistry(t, "hush")
	r, _ := newRuntime(t, c, func(config *cri.Config) {
		config.Events = events
		config.Secrets = pullSecrets{"good": newPullSecret(locked.host, "hush"), "bad": newPullSecret(locked.host, "guess")}
	})
	public, private := open.push(t, "public"), locked.push(t, "team/private")
	cases := []struct {
		name, image string
		policy      v1.PullPolicy
		secrets     []string
		pulled      bool
		event       string
	}{
		{"public", public, v1.PullIfNotPresent, nil, true, `Pulled: Successfully pulled image "` + public + `" in `},
		{"already present", public, v1.PullIfNotPresent, nil, true, `Pulled: Container image "` + public + `" already present on machine`},
		{"unknown tag", public + ":none", v1.PullAlways, nil, false, `Failed: Failed to pull image "` + public + `:none": `},
		{"private without secret", private, v1.PullAlways, nil, false, `Failed: Failed to pull image "` + private + `": `},
		{"private with wrong secret", private, v1.PullAlways, []string{"bad"}, false, "Failed: Error: ErrImagePull"},
		{"private with missing secret", private, v1.PullAlways, []string{"absent"}, false, "FailedToRetrieveImagePullSecret: "},
		{"private with wrong and right secret", private, v1.PullAlways, []string{"bad", "good"}, true, " bytes."},
	}
	for _, test := range cases { // in this order: the node keeps images
		t.Run(test.name, func(t *testing.T) {
			pod := newPod("pause")
			for _, name := range test.secrets {
				pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
			}
			err := startWithImage(t, r, pod, test.image, test.policy)
			if pulled := waitingReason(err) == "RunContainerError"; pulled != test.pulled || (!pulled && waitingReason(err) != "ErrImagePull") {
				t.Errorf("got %s: %v; want pulled=%v", waitingReason(err), err, test.pulled)
			}
			if recorded := events.drain(); !strings.Contains(recorded, test.event) {
				t.Errorf("got events:\n%s\nwant %q", recorded, test.event)
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Error("the error contains a password")
			}
			if !test.pulled {
				if err := startWithImage(t, r, pod, test.image, test.policy); waitingReason(err) != "ImagePullBackOff" {
					t.Errorf("second attempt: got %s: %v; want ImagePullBackOff", waitingReason(err), err)
				}
			}
			remove(t, r, pod)
			events.drain()
		})
	}
}

// Pods of two tenants and one private image on one node.
func TestIMG8_PrivateImage(t *testing.T) {
	c := containerd.ForTest(t)
	locked := newRegistry(t, "hush")
	r, config := newRuntime(t, c, func(config *cri.Config) {
		config.Secrets = pullSecrets{"good": newPullSecret(locked.host, "hush"), "bad": newPullSecret(locked.host, "guess")}
	})
	private := locked.push(t, "team/private")
	attempt := func(r *cri.Runtime, image string, policy v1.PullPolicy, secrets ...string) string {
		t.Helper()
		pod := newPod("pause")
		for _, name := range secrets {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
		}
		reason := waitingReason(startWithImage(t, r, pod, image, policy))
		remove(t, r, pod)
		return reason
	}
	const pulled = "RunContainerError" // the image has no program
	if reason := attempt(r, private, v1.PullIfNotPresent, "good"); reason != pulled {
		t.Fatalf("first pull: got %s", reason)
	}
	images := imageService(t, c)
	status, err := images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: private}})
	if err != nil {
		t.Fatal(err)
	}
	digest, id := status.Image.RepoDigests[0], status.Image.Id
	restarted, err := cri.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = restarted.Close() })
	for name, agent := range map[string]*cri.Runtime{"same agent": r, "restarted agent": restarted} {
		for _, test := range []struct {
			image   string
			policy  v1.PullPolicy
			secrets []string
			want    string
		}{
			{private, v1.PullIfNotPresent, nil, "ErrImagePull"},
			{private, v1.PullIfNotPresent, []string{"bad"}, "ErrImagePull"},
			{private, v1.PullNever, nil, "ErrImageNeverPull"},
			{digest, v1.PullNever, nil, "ErrImageNeverPull"},
			{id, v1.PullNever, nil, "ErrImageNeverPull"},
			{private, v1.PullNever, []string{"good"}, pulled},
			{digest, v1.PullNever, []string{"good"}, pulled},
		} {
			if reason := attempt(agent, test.image, test.policy, test.secrets...); reason != test.want {
				t.Errorf("%s: image %s, policy %s, secrets %v: got %s, want %s", name, test.image, test.policy, test.secrets, reason, test.want)
			}
		}
	}
}

func imageService(t *testing.T, c *containerd.Containerd) runtimeapi.ImageServiceClient {
	t.Helper()
	return runtimeapi.NewImageServiceClient(connect(t, c))
}

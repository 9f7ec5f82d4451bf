package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a Runtime connected to a fake runtime.
type harness struct {
	*testing.T
	*cri.Runtime
	fake *fake
	root string

	mu       sync.Mutex // guards what follows
	server   *grpc.Server
	listener *bufconn.Listener // nil: the runtime is down
	recorded []string          // events
}

// inBubble runs the test with a harness in a synctest bubble.
func inBubble(t *testing.T, test func(h *harness), configure ...func(*cri.Config)) {
	t.Helper()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(newHarness(t, root, configure...)) })
}

// newHarness returns a harness outside of a bubble, for tests that need real sockets.
func newHarness(t *testing.T, root string, configure ...func(*cri.Config)) *harness {
	t.Helper()
	h := &harness{T: t, fake: newFake(), root: root}
	config := cri.Config{
		Endpoint: "unix:///fake.sock", Provisioner: fakeProvisioner{root}, Events: h, Root: root + "/pods", LogDir: root + "/logs",
		ResolvConf: root + "/resolv.conf", MemoryCapacity: 1 << 30,
	}
	config.Dial(h.dial)
	for _, change := range configure {
		change(&config)
	}
	var err error
	if h.Runtime, err = cri.New(config); err != nil {
		t.Fatal(err)
	}
	h.up()
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		h.down()
	})
	return h
}

func (h *harness) dial(ctx context.Context, _ string) (net.Conn, error) {
	h.mu.Lock()
	listener := h.listener
	h.mu.Unlock()
	if listener == nil {
		return nil, errors.New("connection refused")
	}
	return listener.DialContext(ctx)
}

// up starts the runtime's server with the state of the fake.
func (h *harness) up() {
	server := grpc.NewServer(grpc.UnaryInterceptor(h.fake.intercept), grpc.UnknownServiceHandler(h.fake.serveTasks))
	listener := bufconn.Listen(1 << 20)
	runtimeapi.RegisterRuntimeServiceServer(server, h.fake)
	runtimeapi.RegisterImageServiceServer(server, fakeImages{fake: h.fake})
	h.mu.Lock()
	h.server, h.listener = server, listener
	h.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

func (h *harness) down() {
	h.mu.Lock()
	server := h.server
	h.listener = nil
	h.mu.Unlock()
	server.Stop()
}

// Event records "Type Reason Field: Message".
func (h *harness) Event(object runtime.Object, eventType, reason, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	field := object.(*v1.ObjectReference).FieldPath
	h.recorded = append(h.recorded, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s", eventType, reason, field, message)))
}

func (h *harness) events() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.recorded
}

// fakeProvisioner provides the values of the spec, and directories below root named after the volumes.
type fakeProvisioner struct{ root string }

func (p fakeProvisioner) Path(_ *v1.Pod, volume string) (string, error) {
	if strings.HasPrefix(volume, "missing") {
		return "", errors.New("volume " + volume + " is not mounted")
	}
	return p.root + "/" + volume, nil
}

func (fakeProvisioner) PrepareEnvironment(*v1.Pod) {}

func (fakeProvisioner) Environment(_ context.Context, _ *v1.Pod, container *v1.Container, ips []netip.Addr) ([]v1.EnvVar, error) {
	if len(container.EnvFrom) > 0 {
		return nil, errors.New(`configmap "absent" not found`)
	}
	return append(container.Env, v1.EnvVar{Name: "POD_IPS", Value: fmt.Sprint(ips)}), nil
}

// newPod returns the pod prod/shop with UID uid-1 and the container web, whose image is present.
func newPod(mutate ...func(*v1.Pod)) *v1.Pod {
	defaults := func(pod *v1.Pod) {
		pod.Namespace, pod.UID = "prod", "uid-1"
		pod.Spec.Containers = []v1.Container{{Name: "web", Image: "web:1", ImagePullPolicy: v1.PullIfNotPresent}}
		pod.Spec.DNSPolicy = v1.DNSDefault
	}
	return heraldtest.NewPod("shop", append([]func(*v1.Pod){defaults}, mutate...)...)
}

// podWithImage returns a pod with another image, which is not present.
func podWithImage(image string, mutate ...func(*v1.Pod)) *v1.Pod {
	pod := newPod(mutate...)
	pod.Spec.Containers[0].Image = image
	return pod
}

func withUID(uid types.UID) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Name, pod.UID = string(uid), uid }
}

// firstStart starts the pod's first container for the first time.
func firstStart(pod *v1.Pod) plan.Start {
	return plan.Start{Container: &pod.Spec.Containers[0], Kind: derive.RegularContainer}
}

func (h *harness) startSandbox(pod *v1.Pod) string {
	h.Helper()
	id, err := h.StartSandbox(h.Context(), pod, 0)
	if err != nil {
		h.Fatal(err)
	}
	return id
}

// startFirst starts the pod's first container in its sandbox, which it starts too if necessary.
func (h *harness) startFirst(ctx context.Context, pod *v1.Pod) error {
	h.Helper()
	return h.StartContainer(ctx, pod, h.startSandbox(pod), firstStart(pod))
}

// startPod starts the pod and returns its container.
func (h *harness) startPod(pod *v1.Pod) observed.Container {
	h.Helper()
	if err := h.startFirst(h.Context(), pod); err != nil {
		h.Fatal(err)
	}
	return h.onlyContainer(pod)
}

// createdConfig starts the pod and returns the configuration of the first container that was created.
func (h *harness) createdConfig(pod *v1.Pod) *runtimeapi.ContainerConfig {
	h.Helper()
	h.startPod(pod)
	return requests[*runtimeapi.CreateContainerRequest](h.fake)[0].Config
}

func (h *harness) inspect(pod *v1.Pod) *observed.Pod {
	h.Helper()
	inspected, err := h.InspectPod(h.Context(), podid.UID(pod.UID))
	if err != nil {
		h.Fatal(err)
	}
	return inspected
}

func (h *harness) onlyContainer(pod *v1.Pod) observed.Container {
	h.Helper()
	inspected := h.inspect(pod)
	if len(inspected.Containers) != 1 {
		h.Fatalf("got %d containers, want 1: %+v", len(inspected.Containers), inspected.Containers)
	}
	return inspected.Containers[0]
}

// pullCount returns the number of PullImage calls.
func (h *harness) pullCount() int { return len(requests[*runtimeapi.PullImageRequest](h.fake)) }

func waitingReason(err error) string {
	var waiting interface{ WaitingReason() string }
	if errors.As(err, &waiting) {
		return waiting.WaitingReason()
	}
	return ""
}

func retryAfter(err error) time.Duration {
	var retry interface{ RetryAfter() time.Duration }
	if errors.As(err, &retry) {
		return retry.RetryAfter()
	}
	return 0
}

func (h *harness) mkdir(dir string) {
	h.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) writeFile(file, content string) {
	h.Helper()
	h.mkdir(filepath.Dir(file))
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		h.Fatal(err)
	}
}

// listFiles returns everything below a directory.
func listFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if name, _ := filepath.Rel(dir, path); name != "." {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

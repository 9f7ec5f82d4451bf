package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a node with a fake runtime, in a bubble in which time is moved.
type world struct {
	*testing.T
	*cri.Runtime
	fake *fake
	root string

	mu     sync.Mutex // guards what follows
	server *grpc.Server
	link   *bufconn.Listener // nil: the runtime is down
	story  []string          // events
}

// inWorld runs the test in a bubble.
func inWorld(t *testing.T, test func(w *world), change ...func(*cri.Config)) {
	t.Helper()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(newWorld(t, root, change...)) })
}

// outside is a world without a bubble, for what needs real sockets.
func outside(t *testing.T, change ...func(*cri.Config)) *world {
	t.Helper()
	return newWorld(t, t.TempDir(), change...)
}

func newWorld(t *testing.T, root string, change ...func(*cri.Config)) *world {
	t.Helper()
	w := &world{T: t, fake: newFake(), root: root}
	config := cri.Config{
		Endpoint: "unix:///fake.sock", Provisioner: provision{root}, Events: w, Root: root + "/pods", LogDir: root + "/logs",
		ResolvConf: root + "/resolv.conf", MemoryCapacity: 1 << 30,
	}
	config.Dial(w.dial)
	for _, one := range change {
		one(&config)
	}
	var err error
	if w.Runtime, err = cri.New(config); err != nil {
		t.Fatal(err)
	}
	w.up()
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		w.down()
	})
	return w
}

func (w *world) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	link := w.link
	w.mu.Unlock()
	if link == nil {
		return nil, errors.New("nobody listens")
	}
	return link.DialContext(ctx)
}

// up starts the runtime's server, on the state that it has.
func (w *world) up() {
	server, link := grpc.NewServer(grpc.UnaryInterceptor(w.fake.intercept)), bufconn.Listen(1<<20)
	runtimeapi.RegisterRuntimeServiceServer(server, w.fake)
	runtimeapi.RegisterImageServiceServer(server, fakeImages{fake: w.fake})
	w.mu.Lock()
	w.server, w.link = server, link
	w.mu.Unlock()
	go func() { _ = server.Serve(link) }()
}

func (w *world) down() {
	w.mu.Lock()
	server := w.server
	w.link = nil
	w.mu.Unlock()
	server.Stop()
}

// Event notes "Type Reason Field: Message".
func (w *world) Event(object runtime.Object, eventtype, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	about := object.(*v1.ObjectReference).FieldPath
	w.story = append(w.story, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s", eventtype, reason, about, message)))
}

func (w *world) events() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.story
}

// provision gives values that are written in the spec, and the folders below root named as the volumes.
type provision struct{ root string }

func (p provision) Path(_ *v1.Pod, volume string) (string, error) {
	if strings.HasPrefix(volume, "missing") {
		return "", errors.New("volume " + volume + " is not mounted")
	}
	return p.root + "/" + volume, nil
}

func (provision) Environment(_ context.Context, _ *v1.Pod, c *v1.Container, ips []netip.Addr) ([]v1.EnvVar, error) {
	if len(c.EnvFrom) > 0 {
		return nil, errors.New(`configmap "absent" not found`)
	}
	return append(c.Env, v1.EnvVar{Name: "POD_IPS", Value: fmt.Sprint(ips)}), nil
}

func newPod(change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "prod", UID: "uid-1"},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "web", Image: "web:1", ImagePullPolicy: v1.PullIfNotPresent}},
			DNSPolicy:  v1.DNSDefault,
		},
	}
	for _, one := range change {
		one(pod)
	}
	return pod
}

func first(pod *v1.Pod) plan.Start {
	return plan.Start{Container: &pod.Spec.Containers[0], Kind: derive.RegularContainer}
}

// sandbox starts the pod's sandbox.
func (w *world) sandbox(pod *v1.Pod) string {
	w.Helper()
	id, err := w.StartSandbox(w.Context(), pod, 0)
	if err != nil {
		w.Fatal(err)
	}
	return id
}

// run starts the pod and returns its container.
func (w *world) run(pod *v1.Pod) observed.Container {
	w.Helper()
	if err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod)); err != nil {
		w.Fatal(err)
	}
	return w.only(pod)
}

func (w *world) only(pod *v1.Pod) observed.Container {
	w.Helper()
	seen := w.inspect(pod)
	if len(seen.Containers) != 1 {
		w.Fatalf("the pod has %d containers: %+v", len(seen.Containers), seen.Containers)
	}
	return seen.Containers[0]
}

// made is the one container as it was asked for.
func (w *world) made(pod *v1.Pod) *runtimeapi.ContainerConfig {
	w.Helper()
	w.run(pod)
	return requests[*runtimeapi.CreateContainerRequest](w.fake)[0].Config
}

func reasonOf(err error) string {
	var told interface{ WaitingReason() string }
	if errors.As(err, &told) {
		return told.WaitingReason()
	}
	return ""
}

// Package runtime_test tests package cri with a real containerd.
package runtime_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// newRuntime returns a runtime for the containerd that is closed when the test ends.
func newRuntime(t *testing.T, c *containerd.Containerd, mutate ...func(*cri.Config)) (*cri.Runtime, cri.Config) {
	t.Helper()
	config := cri.Config{
		Endpoint:    c.Endpoint(),
		Provisioner: runtimesuite.Provisioner{},
		Root:        filepath.Join(c.Dir(), "pods"),
		LogDir:      filepath.Join(c.Dir(), "logs"),
	}
	for _, change := range mutate {
		change(&config)
	}
	r, err := cri.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, config
}

// connect returns a connection to the containerd that is closed when the test ends.
func connect(t *testing.T, c *containerd.Containerd) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// newPod returns a pod with one container that runs testpod.
func newPod(args ...string) *v1.Pod {
	return heraldtest.NewPod("test", heraldtest.WithContainers(v1.Container{
		Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullNever, Command: testpod(args...),
	}), func(pod *v1.Pod) {
		pod.UID = uuid.NewUUID()
		pod.Spec.DNSPolicy = v1.DNSDefault
	})
}

// testpod returns the command line of testpod.
func testpod(args ...string) []string { return append([]string{"/testpod"}, args...) }

// run starts the pod and returns its observed state.
func run(t *testing.T, r *cri.Runtime, pod *v1.Pod) *observed.Pod {
	t.Helper()
	sandbox, err := r.StartSandbox(t.Context(), pod, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0], Kind: derive.RegularContainer}); err != nil {
		t.Fatal(err)
	}
	return inspect(t, r, pod)
}

func inspect(t *testing.T, r *cri.Runtime, pod *v1.Pod) *observed.Pod {
	t.Helper()
	got, err := r.InspectPod(t.Context(), podid.UID(pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func remove(t *testing.T, r *cri.Runtime, pod *v1.Pod) {
	t.Helper()
	for _, sandbox := range inspect(t, r, pod).Sandboxes {
		if err := r.StopSandbox(t.Context(), sandbox.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.RemovePod(t.Context(), podid.UID(pod.UID)); err != nil {
		t.Fatal(err)
	}
}

func TestRuntime_Suite(t *testing.T) {
	c := containerd.ForTest(t)
	r, config := newRuntime(t, c)
	runtimesuite.Run(t, runtimesuite.Fixture{
		Runtime: r,
		Name:    "containerd",
		Image:   containerd.TestpodImage,
		LogDir:  config.LogDir,
		Restart: func() error { return c.Restart(t.Context()) },
		Programs: runtimesuite.Programs{
			Wait:       testpod("pause"),
			IgnoreTERM: testpod("sleep", "1h", "--ignore-term"),
			Exit: func(code int, message string) []string {
				return testpod("exit", strconv.Itoa(code), "--message", message)
			},
			PrintEnv:  testpod("env"),
			PrintFile: func(file string) []string { return testpod("cat", file) },
		},
	})
}

// Requests to a frozen containerd time out, and nothing is created twice.
func TestF22_FrozenContainerd(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	shortTimeout, _ := newRuntime(t, c, func(config *cri.Config) { config.RequestTimeout = time.Second })
	if _, _, err := shortTimeout.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := newPod("pause")
	if err := c.Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := shortTimeout.StartSandbox(t.Context(), pod, 0); err == nil {
		t.Error("frozen: StartSandbox got no error")
	}
	if _, err := shortTimeout.ListPods(t.Context()); err == nil {
		t.Error("frozen: ListPods got no error")
	}
	if err := c.Continue(); err != nil {
		t.Fatal(err)
	}
	// The requests of before may be executed now or never.
	heraldtest.Eventually(t, func() error {
		sandbox, err := r.StartSandbox(t.Context(), pod, 0)
		if err != nil {
			return err
		}
		return r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0]})
	})
	if got := inspect(t, r, pod); got.ReadySandboxes() != 1 || len(got.Containers) != 1 || got.Containers[0].State != observed.Running {
		t.Errorf("got %+v, want one sandbox and one running container", got)
	}
	remove(t, r, pod)
}

func TestF22_KilledDuringPodStart(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	pod := newPod("pause")
	started := make(chan error, 1)
	go func() {
		_, err := r.StartSandbox(t.Context(), pod, 0)
		started <- err
	}()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("StartSandbox of the killed containerd: %v", <-started)
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// An incomplete attempt keeps its name, so the next one needs a higher number, as the plan gives it.
	attempt := uint32(0)
	heraldtest.Eventually(t, func() error {
		observedPod, err := r.InspectPod(t.Context(), podid.UID(pod.UID))
		if err != nil {
			return err
		}
		for _, sandbox := range observedPod.Sandboxes {
			if !sandbox.Ready && sandbox.Attempt >= attempt {
				attempt = sandbox.Attempt + 1
			}
		}
		sandbox, err := r.StartSandbox(t.Context(), pod, attempt)
		if err != nil {
			return err
		}
		return r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0]})
	})
	if got := inspect(t, r, pod); got.ReadySandboxes() != 1 || len(got.Containers) != 1 {
		t.Errorf("got %+v, want one sandbox and one container", got)
	}
	remove(t, r, pod)
}

func TestF26_KilledShim(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	pod := newPod("pause")
	got := run(t, r, pod)
	if err := c.KillShim(got.Sandboxes[0].ID); err != nil {
		t.Fatal(err)
	}
	heraldtest.Eventually(t, func() error {
		got = inspect(t, r, pod)
		if state := got.Containers[0].State; state == observed.Running || got.ReadySandboxes() != 0 {
			return fmt.Errorf("container is %v, %d sandboxes are ready", state, got.ReadySandboxes())
		}
		return nil
	})
	if exit := got.Containers[0].Exit; exit == nil || exit.Code == 0 {
		t.Errorf("got exit %+v, want a failure", exit)
	}
	remove(t, r, pod)
}

func TestRuntime_ForeignSandbox(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	_, err := runtimeapi.NewRuntimeServiceClient(connect(t, c)).RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
		Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "foreign", Namespace: "x", Uid: "foreign"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if pods, err := r.ListPods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("got pods %v, %v; want none", pods, err)
	}
	if runtimeErr, networkErr := r.Ready(context.Background()); runtimeErr != nil || networkErr != nil {
		t.Errorf("Ready: got runtime %v, network %v", runtimeErr, networkErr)
	}
}

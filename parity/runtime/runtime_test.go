// Package runtime_test holds the runtime's side of pods against a real containerd.
package runtime_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func newRuntime(t *testing.T, c *containerd.Containerd, change ...func(*cri.Config)) (*cri.Runtime, cri.Config) {
	t.Helper()
	config := cri.Config{
		Endpoint:    c.Endpoint(),
		Provisioner: runtimesuite.Provisioner{},
		Root:        filepath.Join(c.Dir(), "pods"),
		LogDir:      filepath.Join(c.Dir(), "logs"),
	}
	for _, one := range change {
		one(&config)
	}
	r, err := cri.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, config
}

// newPod is a pod with one container that runs testpod.
func newPod(args ...string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "trial", Namespace: "default", UID: uuid.NewUUID()},
		Spec: v1.PodSpec{
			DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{
				Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullNever, Command: testpod(args...),
			}},
		},
	}
}

// run starts the pod and returns what is seen of it.
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
	seen, err := r.InspectPod(t.Context(), podid.UID(pod.UID))
	if err != nil {
		t.Fatal(err)
	}
	return seen
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

// eventually fails the test if try never succeeds.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal(errors.Join(ctx.Err(), err))
		}
	}
}

func testpod(args ...string) []string { return append([]string{"/testpod"}, args...) }

func TestContainerdDoesWhatPodsNeed(t *testing.T) {
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

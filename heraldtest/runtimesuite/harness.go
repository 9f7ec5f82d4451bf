package runtimesuite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

const (
	containerName = "main"
	// timeout bounds every operation that is expected to succeed.
	timeout = 30 * time.Second
)

// harness runs one test with one pod that has one container. Its methods fail the test on errors.
type harness struct {
	*testing.T
	Fixture
	pod       *v1.Pod
	sandboxID string
}

func newHarness(t *testing.T, fixture Fixture) *harness {
	t.Helper()
	h := &harness{T: t, Fixture: fixture}
	h.pod = heraldtest.NewPod("suite", heraldtest.WithContainers(v1.Container{
		Name: containerName, Image: fixture.Image, ImagePullPolicy: v1.PullNever,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
	}), func(pod *v1.Pod) {
		pod.UID = uuid.NewUUID()
		pod.Spec.HostNetwork = fixture.HostNetwork
		pod.Spec.DNSPolicy = v1.DNSDefault
		pod.Spec.TerminationGracePeriodSeconds = new(int64(2))
	})
	t.Cleanup(h.removePod)
	return h
}

// container returns the pod's container. Tests may change it before they start it.
func (h *harness) container() *v1.Container { return &h.pod.Spec.Containers[0] }

func (h *harness) uid() podid.UID { return podid.UID(h.pod.UID) }

// run starts the pod with the program in its container.
func (h *harness) run(program []string) observed.Container {
	h.Helper()
	h.startSandbox()
	if err := h.start(program, 0); err != nil {
		h.Fatal(err)
	}
	return h.onlyContainer()
}

func (h *harness) startSandbox() {
	h.Helper()
	var err error
	if h.sandboxID, err = h.Runtime.StartSandbox(h.Context(), h.pod, 0); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) start(program []string, restartCount int) error {
	h.container().Command = program
	return h.Runtime.StartContainer(h.Context(), h.pod, h.sandboxID,
		plan.Start{Container: h.container(), Kind: derive.RegularContainer, RestartCount: restartCount})
}

func (h *harness) stop(ctx context.Context, id observed.ContainerID, grace time.Duration) error {
	return h.Runtime.StopContainer(ctx, h.pod, plan.Stop{ID: id, Container: h.container(), Grace: grace})
}

func (h *harness) inspect() *observed.Pod {
	h.Helper()
	pod, err := h.Runtime.InspectPod(h.Context(), h.uid())
	if err != nil {
		h.Fatal(err)
	}
	return pod
}

// onlyContainer returns the pod's only container instance.
func (h *harness) onlyContainer() observed.Container {
	h.Helper()
	pod := h.inspect()
	if len(pod.Containers) != 1 {
		h.Fatalf("got containers %+v, want one", pod.Containers)
	}
	return pod.Containers[0]
}

// waitForExit returns the newest container instance after it has exited.
func (h *harness) waitForExit() observed.Container {
	h.Helper()
	var newest observed.Container
	heraldtest.Eventually(h.T, func() error {
		newest = h.inspect().Containers[0]
		if newest.State != observed.Exited {
			return fmt.Errorf("container %s is %v", newest.ID, newest.State)
		}
		return nil
	})
	if newest.Exit == nil {
		h.Fatalf("container %s exited without an exit record", newest.ID)
	}
	return newest
}

// waitForOutput waits until the container has logged a line. Its program handles signals by then.
func (h *harness) waitForOutput() {
	h.Helper()
	heraldtest.Eventually(h.T, func() error {
		for _, dir := range h.logDirs() {
			log, err := os.ReadFile(filepath.Join(dir, containerName, "0.log"))
			if err == nil && bytes.HasSuffix(log, []byte("\n")) {
				return nil
			}
		}
		return errors.New("container has not logged a line")
	})
}

// logDirs returns the log directories of the pod.
func (h *harness) logDirs() []string {
	h.Helper()
	dirs, err := filepath.Glob(filepath.Join(h.LogDir, "*_"+string(h.pod.UID)))
	if err != nil {
		h.Fatal(err)
	}
	return dirs
}

func (h *harness) wantSandboxReady(want bool) {
	h.Helper()
	pod := h.inspect()
	newest, found := pod.NewestSandbox()
	if !found || newest.Ready != want || newest.ID != h.sandboxID || newest.HostNetwork != h.HostNetwork {
		h.Errorf("got sandbox %+v, want %s with ready %v", newest, h.sandboxID, want)
	}
	if hasIP := len(pod.IPs) > 0; hasIP != (want && !h.HostNetwork) {
		h.Errorf("got pod IPs %v", pod.IPs)
	}
}

func (h *harness) wantListed(want bool) {
	h.Helper()
	pods, err := h.Runtime.ListPods(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	index := slices.IndexFunc(pods, func(pod *observed.Pod) bool { return pod.UID == h.uid() })
	if (index >= 0) != want {
		h.Fatalf("pod listed: got %v, want %v", index >= 0, want)
	}
	if !want {
		return
	}
	pod := pods[index]
	if len(pod.Sandboxes) != 1 || len(pod.Containers) != 1 || pod.Name != podid.FullNameOf(h.pod) {
		h.Errorf("got pod %+v, want one sandbox and one container", pod)
	}
}

func (h *harness) wantReason(err error, want string) {
	h.Helper()
	var waiting interface{ WaitingReason() string }
	if !errors.As(err, &waiting) || waiting.WaitingReason() != want {
		h.Fatalf("got %v, want an error with reason %s", err, want)
	}
}

// removePod stops the pod without a grace period and removes it.
func (h *harness) removePod() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Context()), timeout)
	defer cancel()
	pod, err := h.Runtime.InspectPod(ctx, h.uid())
	if err != nil {
		h.Error(err)
		return
	}
	for _, sandbox := range pod.Sandboxes {
		if err := h.Runtime.StopSandbox(ctx, sandbox.ID); err != nil {
			h.Error(err)
		}
	}
	if err := h.Runtime.RemovePod(ctx, h.uid()); err != nil {
		h.Error(err)
	}
}

func (h *harness) writeFile(path, content string) {
	h.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		h.Fatal(err)
	}
}

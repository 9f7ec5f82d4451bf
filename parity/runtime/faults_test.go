package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func TestF22AFrozenContainerdHoldsNobodyAndMakesNothingTwice(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	impatient, _ := newRuntime(t, c, func(config *cri.Config) { config.RequestTimeout = time.Second })
	if _, _, err := impatient.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := newPod("pause")
	if err := c.Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := impatient.StartSandbox(t.Context(), pod, 0); err == nil {
		t.Error("frozen, it makes a sandbox")
	}
	if _, err := impatient.ListPods(t.Context()); err == nil {
		t.Error("frozen, it lists pods")
	}
	if err := c.Continue(); err != nil {
		t.Fatal(err)
	}
	// What was asked for while it stood still may be done now, or never.
	eventually(t, func() error {
		sandbox, err := r.StartSandbox(t.Context(), pod, 0)
		if err != nil {
			return err
		}
		return r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0]})
	})
	seen := inspect(t, r, pod)
	if seen.ReadySandboxes() != 1 || len(seen.Containers) != 1 || seen.Containers[0].State != observed.Running {
		t.Errorf("seen are %+v", seen)
	}
	remove(t, r, pod)
}

func TestF22AContainerdThatIsKilledWhileItStartsAPodIsAskedAgain(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	pod := newPod("pause")
	ended := make(chan error, 1)
	go func() {
		_, err := r.StartSandbox(t.Context(), pod, 0)
		ended <- err
	}()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed, the sandbox ended with: %v", <-ended)
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// An attempt that died half-way keeps its name: the plan would count on.
	attempt := uint32(0)
	eventually(t, func() error {
		seen, err := r.InspectPod(t.Context(), podid.UID(pod.UID))
		if err != nil {
			return err
		}
		for _, sandbox := range seen.Sandboxes {
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
	if seen := inspect(t, r, pod); seen.ReadySandboxes() != 1 || len(seen.Containers) != 1 {
		t.Errorf("seen are %+v", seen)
	}
	remove(t, r, pod)
}

func TestF26AShimThatIsKilledIsSeenAsAnEnd(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	pod := newPod("pause")
	seen := run(t, r, pod)
	if err := c.KillShim(seen.Sandboxes[0].ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		seen = inspect(t, r, pod)
		if state := seen.Containers[0].State; state == observed.Running || seen.ReadySandboxes() != 0 {
			return fmt.Errorf("the container is %v, the sandbox ready: %v", state, seen.ReadySandboxes())
		}
		return nil
	})
	if exit := seen.Containers[0].Exit; exit == nil || exit.Code == 0 {
		t.Errorf("it ended with %+v", exit)
	}
	remove(t, r, pod)
}

func TestWhatWasNotMadeForAPodIsLeftAlone(t *testing.T) {
	c := containerd.ForTest(t)
	r, _ := newRuntime(t, c)
	connection, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, err = runtimeapi.NewRuntimeServiceClient(connection).RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
		Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "foreign", Namespace: "x", Uid: "foreign"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if pods, err := r.ListPods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("listed are %v: %v", pods, err)
	}
	if runtime, network := r.Ready(context.Background()); runtime != nil || network != nil {
		t.Errorf("runtime %v, network %v", runtime, network)
	}
}

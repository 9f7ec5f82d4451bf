package containerd_test

import (
	"context"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/parity/containerd"
)

func TestContainersLiveOnWhileContainerdIsGone(t *testing.T) {
	cases := map[string]func(*containerd.Containerd) error{
		"killed":  (*containerd.Containerd).Kill,
		"stopped": func(c *containerd.Containerd) error { return c.Stop(t.Context()) },
		"frozen and stopped": func(c *containerd.Containerd) error {
			if err := c.Freeze(); err != nil {
				return err
			}
			return c.Stop(t.Context())
		},
		"restarted at once": func(*containerd.Containerd) error { return nil },
	}
	c := containerd.ForTest(t)
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			before := newNode(t, c)
			pod := before.runPod("survivor")
			id := before.runContainer(pod, "serve", "serve", "--port", "8080")
			started := before.containerStatus(id).StartedAt

			if err := end(c); err != nil {
				t.Fatal(err)
			}
			if err := c.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}

			after := newNode(t, c)
			got := after.containerStatus(id)
			if got.State != cri.ContainerState_CONTAINER_RUNNING || got.StartedAt != started {
				t.Errorf("the container is %v since %d, want running since %d", got.State, got.StartedAt, started)
			}
			list, err := after.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Containers) != 1 || list.Containers[0].Id != id {
				t.Errorf("listed are %v, want %s alone", list.Containers, id)
			}
			after.removePod(pod)
		})
	}
}

func TestAFrozenContainerdAnswersWhenItGoesOn(t *testing.T) {
	c := containerd.ForTest(t)
	n := newNode(t, c)
	version := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := n.runtime.Version(ctx, &cri.VersionRequest{})
		return err
	}
	if err := version(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := version(300 * time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("frozen, it answers %v, want silence", err)
	}
	if err := c.Continue(); err != nil {
		t.Fatal(err)
	}
	if err := version(time.Minute); err != nil {
		t.Errorf("going on, it answers %v", err)
	}
}

func TestWhatDoesNotRunCannotBeUsed(t *testing.T) {
	c := containerd.ForTest(t)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	actions := map[string]func() error{
		"Stop":     func() error { return c.Stop(t.Context()) },
		"Kill":     c.Kill,
		"Freeze":   c.Freeze,
		"Continue": c.Continue,
		"Image":    func() error { return c.ImportImage(t.Context(), containerd.TestpodImage, os.Args[0]) },
	}
	for name, act := range actions {
		t.Run(name, func(t *testing.T) {
			if err := act(); err == nil {
				t.Error("no error")
			}
		})
	}
}

package runtimesuite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

const (
	containerName = "main"
	// soon is how long anything may take that ought to happen.
	soon = 30 * time.Second
)

// scene is one test: a pod with one container, and what is done to it. What fails fails the test.
type scene struct {
	*testing.T
	Fixture
	pod     *v1.Pod
	sandbox string
}

func newScene(t *testing.T, fixture Fixture) *scene {
	t.Helper()
	s := &scene{T: t, Fixture: fixture}
	s.pod = &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "suite", Namespace: "default", UID: uuid.NewUUID()},
		Spec: v1.PodSpec{
			HostNetwork:                   fixture.HostNetwork,
			DNSPolicy:                     v1.DNSDefault,
			TerminationGracePeriodSeconds: new(int64(2)),
			Containers: []v1.Container{{
				Name: containerName, Image: fixture.Image, ImagePullPolicy: v1.PullNever,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	t.Cleanup(s.remove)
	return s
}

// container is the pod's one, for the test to change before it is started.
func (s *scene) container() *v1.Container { return &s.pod.Spec.Containers[0] }

func (s *scene) uid() podid.UID { return podid.UID(s.pod.UID) }

// run starts the pod with this program in its container.
func (s *scene) run(program []string) observed.Container {
	s.Helper()
	s.startSandbox()
	if err := s.tryStart(program, 0); err != nil {
		s.Fatal(err)
	}
	return s.only()
}

func (s *scene) startSandbox() {
	s.Helper()
	var err error
	if s.sandbox, err = s.Runtime.StartSandbox(s.Context(), s.pod, 0); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) tryStart(program []string, restarts int) error {
	s.container().Command = program
	return s.Runtime.StartContainer(s.Context(), s.pod, s.sandbox,
		plan.Start{Container: s.container(), Kind: derive.RegularContainer, RestartCount: restarts})
}

func (s *scene) stop(ctx context.Context, id observed.ContainerID, grace time.Duration) error {
	return s.Runtime.StopContainer(ctx, s.pod, plan.Stop{ID: id, Container: s.container(), Grace: grace})
}

func (s *scene) inspect() *observed.Pod {
	s.Helper()
	seen, err := s.Runtime.InspectPod(s.Context(), s.uid())
	if err != nil {
		s.Fatal(err)
	}
	return seen
}

// only is the pod's one container.
func (s *scene) only() observed.Container {
	s.Helper()
	seen := s.inspect()
	if len(seen.Containers) != 1 {
		s.Fatalf("the pod has containers %+v, want one", seen.Containers)
	}
	return seen.Containers[0]
}

// awaitExit returns the newest container once it has ended.
func (s *scene) awaitExit() observed.Container {
	s.Helper()
	var newest observed.Container
	s.eventually(func() error {
		newest = s.inspect().Containers[0]
		if newest.State != observed.Exited {
			return fmt.Errorf("container %s is %v", newest.ID, newest.State)
		}
		return nil
	})
	if newest.Exit == nil {
		s.Fatalf("container %s has exited, but how is not known", newest.ID)
	}
	return newest
}

func (s *scene) eventually(try func() error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), soon)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			s.Fatal(errors.Join(ctx.Err(), err))
		}
	}
}

// logs are the folders with logs of the pod.
func (s *scene) logs() []string {
	s.Helper()
	found, err := filepath.Glob(filepath.Join(s.LogDir, "*_"+string(s.pod.UID)))
	if err != nil {
		s.Fatal(err)
	}
	return found
}

// remove ends the pod without grace, whatever the test left of it.
func (s *scene) remove() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), soon)
	defer cancel()
	seen, err := s.Runtime.InspectPod(ctx, s.uid())
	if err != nil {
		s.Error(err)
		return
	}
	for _, sandbox := range seen.Sandboxes {
		if err := s.Runtime.StopSandbox(ctx, sandbox.ID); err != nil {
			s.Error(err)
		}
	}
	if err := s.Runtime.RemovePod(ctx, s.uid()); err != nil {
		s.Error(err)
	}
}

func tempFile(t *testing.T, content string) (dir, name string) {
	t.Helper()
	dir, name = t.TempDir(), "file"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, name
}

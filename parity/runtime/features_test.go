package runtime_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// reportsFeatures reports whether the runtime reports handlers and features, as containerd does since 2.0.
func reportsFeatures(t *testing.T, r *cri.Runtime) bool {
	t.Helper()
	if runtime, network := r.Ready(t.Context()); runtime != nil || network != nil {
		t.Fatalf("not ready: %v, %v", runtime, network)
	}
	handlers, _ := r.NodeFeatures()
	if containerd.DefaultVersion() == containerd.Version2 && len(handlers) == 0 {
		t.Fatal("containerd 2 reports no handlers")
	}
	return len(handlers) > 0
}

func TestRuntime_NodeFeatures(t *testing.T) {
	r, _ := newRuntime(t, containerd.ForTest(t))
	if driver, err := r.CgroupDriver(t.Context()); err != nil || driver != cgroup.DriverCgroupfs {
		t.Errorf("got cgroup driver %q, %v, want %s", driver, err, cgroup.DriverCgroupfs)
	}
	reports := reportsFeatures(t, r)
	handlers, features := r.NodeFeatures()
	if !reports {
		if handlers == nil || features != nil {
			t.Errorf("got handlers %v and features %v, want an empty list and none", handlers, features)
		}
		return
	}
	var names []string
	for _, handler := range handlers {
		names = append(names, handler.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"", "runc", containerd.SecondHandler}) || !*handlers[0].Features.RecursiveReadOnlyMounts {
		t.Errorf("got handlers %+v, want the default, runc and %s, with recursive read-only mounts", handlers, containerd.SecondHandler)
	}
	if features == nil || !*features.SupplementalGroupsPolicy {
		t.Errorf("got features %+v, want supplementalGroupsPolicy", features)
	}
}

// containerd reports events since 1.7. The suite tests that they are received where they are reported.
func TestRuntime_Events(t *testing.T) {
	r, _ := newRuntime(t, containerd.ForTest(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed, done := make(chan podid.UID, 100), make(chan error, 1)
	go func() { done <- r.WatchPods(ctx, func(uid podid.UID) { changed <- uid }) }()
	pod := newPod("pause")
	heraldtest.Eventually(t, func() error {
		run(t, r, pod) // the watch may begin after the first events
		remove(t, r, pod)
		select {
		case uid := <-changed:
			if uid != podid.UID(pod.UID) {
				t.Errorf("got an event of pod %q, want %q", uid, pod.UID)
			}
		case err := <-done:
			if !errors.Is(err, errors.ErrUnsupported) || containerd.DefaultVersion() == containerd.Version2 {
				t.Errorf("watch ended: %v", err)
			}
		default:
			return errors.New("no event")
		}
		return nil
	})
}

// The kernel enforces a recursive read-only mount in the mounts below the volume, too.
func TestRuntime_RecursiveReadOnly(t *testing.T) {
	r, _ := newRuntime(t, containerd.ForTest(t))
	supported := reportsFeatures(t, r)
	volume := t.TempDir()
	below := filepath.Join(volume, "below")
	if err := unix.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", below, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(below, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for mode, want := range map[v1.RecursiveReadOnlyMode]struct{ started, writable bool }{
		v1.RecursiveReadOnlyDisabled:   {started: true, writable: true},
		v1.RecursiveReadOnlyIfPossible: {started: true, writable: !supported},
		v1.RecursiveReadOnlyEnabled:    {started: supported},
	} {
		t.Run(string(mode), func(t *testing.T) {
			pod := newPod("pause")
			pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: volume}}}}
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &mode}}
			sandbox, err := r.StartSandbox(t.Context(), pod, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer remove(t, r, pod)
			err = r.StartContainer(t.Context(), pod, sandbox, plan.Start{Container: &pod.Spec.Containers[0]})
			if !want.started {
				if waitingReason(err) != "CreateContainerConfigError" {
					t.Errorf("got %v, want CreateContainerConfigError", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			id := inspect(t, r, pod).Containers[0].ID
			for file, writable := range map[string]bool{"/d/note": false, "/d/below/note": want.writable} {
				output, code, err := r.Exec(t.Context(), id, testpod("note", file, "text"))
				if err != nil || (code == 0) != writable || !writable && !strings.Contains(string(output), "read-only file system") {
					t.Errorf("write %s: got code %d, output %q, %v, want writable %t", file, code, output, err, writable)
				}
			}
		})
	}
}

// With the policy Strict, the groups of the image's user database are not added. A runtime that would ignore it starts no pod.
func TestRuntime_SupplementalGroupsPolicy(t *testing.T) {
	r, _ := newRuntime(t, containerd.ForTest(t))
	supported := reportsFeatures(t, r)
	pod := newPod("pause")
	pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
	if _, err := r.StartSandbox(t.Context(), pod, 0); (err == nil) != supported {
		t.Errorf("got %v, supported %t", err, supported)
	}
	if supported {
		remove(t, r, pod)
	}
}

// runtimeClass is a runtime class for all pods.
type runtimeClass struct{ handler string }

func (c runtimeClass) RuntimeHandler(context.Context, *v1.Pod) (string, error) { return c.handler, nil }

// A pod runs with the handler of its runtime class, its containers too.
func TestRuntime_RuntimeClass(t *testing.T) {
	c := containerd.ForTest(t)
	client := runtimeapi.NewRuntimeServiceClient(connect(t, c))
	withoutClasses, _ := newRuntime(t, c)
	withClasses, _ := newRuntime(t, c, func(config *cri.Config) { config.RuntimeClasses = runtimeClass{containerd.SecondHandler} })
	reports := reportsFeatures(t, withoutClasses)
	for name, test := range map[string]struct {
		runtime *cri.Runtime
		class   string
		starts  bool
	}{
		"class of the cluster":              {withClasses, "any-class", true},
		"handler":                           {withoutClasses, containerd.SecondHandler, reports},
		"neither a class nor a handler":     {withoutClasses, "absent", false},
		"class with a handler that is gone": {withGoneHandler(t, c), "any-class", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("pause")
			pod.Spec.RuntimeClassName = &test.class
			if !test.starts {
				if _, err := test.runtime.StartSandbox(t.Context(), pod, 0); waitingReason(err) != "CreatePodSandboxError" {
					t.Errorf("got error %v, want CreatePodSandboxError", err)
				}
				return
			}
			running := run(t, test.runtime, pod)
			defer remove(t, test.runtime, pod)
			response, err := client.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: running.Sandboxes[0].ID})
			if err != nil || response.Status.RuntimeHandler != containerd.SecondHandler {
				t.Errorf("got %v, %v, want handler %s", response.GetStatus(), err, containerd.SecondHandler)
			}
			if got := running.Containers[0].State; got != observed.Running {
				t.Errorf("got container %v, want running", got)
			}
		})
	}
}

func withGoneHandler(t *testing.T, c *containerd.Containerd) *cri.Runtime {
	t.Helper()
	r, _ := newRuntime(t, c, func(config *cri.Config) { config.RuntimeClasses = runtimeClass{"gone"} })
	return r
}

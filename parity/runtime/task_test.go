package runtime_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// If the client of StartContainer dies at the wrong moment, containerd reports the container as exited, but its task remains and
// may run (containerd/containerd#11037). The CRI can neither stop nor remove such a container.
func TestF15_TaskOfExitedContainer(t *testing.T) {
	c := containerd.ForTest(t)
	parent := "/" + filepath.Base(c.Dir())
	r, _ := newRuntime(t, c, withCgroups(t, c, parent))
	t.Cleanup(func() { removeCgroups(t, parent) })
	for name, test := range map[string]struct {
		// act must end the process.
		act func(t *testing.T, pod *v1.Pod, sandbox string)
	}{
		"next instance": {func(t *testing.T, pod *v1.Pod, sandbox string) {
			start := plan.Start{Container: &pod.Spec.Containers[0], Kind: derive.RegularContainer, RestartCount: 1}
			if err := r.StartContainer(t.Context(), pod, sandbox, start); err != nil {
				t.Fatal(err)
			}
		}},
		"stop": {func(t *testing.T, _ *v1.Pod, sandbox string) {
			if err := r.StopSandbox(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
		}},
		"removal": {func(t *testing.T, pod *v1.Pod, _ string) {
			if err := r.RemovePod(t.Context(), podid.UID(pod.UID)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("pause")
			sandbox, err := r.StartSandbox(t.Context(), pod, 0)
			if err != nil {
				t.Fatal(err)
			}
			id := startTaskOfExitedContainer(t, c, pod, sandbox)
			if got := inspect(t, r, pod).Containers[0]; got.State != observed.Exited || got.Exit.Reason != "StartError" {
				t.Fatalf("got container %+v, want one that exited with StartError", got)
			}
			if len(containerProcesses(t, pod, id)) == 0 {
				t.Fatal("the task has no process")
			}
			test.act(t, pod, sandbox)
			if left := containerProcesses(t, pod, id); len(left) > 0 {
				t.Errorf("got processes %v of the exited container, want none", left)
			}
			remove(t, r, pod)
			if got := inspect(t, r, pod); len(got.Containers)+len(got.Sandboxes) > 0 {
				t.Errorf("got %+v after the removal, want nothing", got)
			}
			if left := podCgroups(t, pod); len(left) > 0 {
				t.Errorf("got cgroups %v, want none", left)
			}
		})
	}
}

// startTaskOfExitedContainer creates the pod's container, starts its task without the CRI, and then lets the CRI try the same,
// which fails. It returns the container's ID.
func startTaskOfExitedContainer(t *testing.T, c *containerd.Containerd, pod *v1.Pod, sandbox string) string {
	t.Helper()
	client := runtimeapi.NewRuntimeServiceClient(connect(t, c))
	container := pod.Spec.Containers[0]
	created, err := client.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: container.Name},
			Image:    &runtimeapi.ImageSpec{Image: container.Image}, Command: container.Command,
			Labels: map[string]string{
				criconfig.LabelPodName: pod.Name, criconfig.LabelPodNamespace: pod.Namespace, criconfig.LabelPodUID: string(pod.UID),
				criconfig.LabelContainerName: container.Name,
			},
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}, // outlives the sandbox
			}},
		},
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
			Linux: &runtimeapi.LinuxPodSandboxConfig{
				CgroupParent: filepath.Join("/"+filepath.Base(c.Dir()), "kubepods/besteffort/pod"+string(pod.UID)),
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := created.ContainerId
	start := exec.CommandContext(t.Context(), "ctr", "--address", strings.TrimPrefix(c.Endpoint(), "unix://"), "--namespace", "k8s.io",
		"tasks", "start", "--detach", "--null-io", id)
	if output, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", start.Args, err, output)
	}
	if _, err := client.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil {
		t.Fatal("the CRI started a container whose task exists")
	}
	return id
}

// containerProcesses returns the processes in the container's cgroup.
func containerProcesses(t *testing.T, pod *v1.Pod, id string) (processes []string) {
	t.Helper()
	for _, group := range podCgroups(t, pod) {
		content, err := os.ReadFile(filepath.Join(group, id, "cgroup.procs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		processes = append(processes, strings.Fields(string(content))...)
	}
	return processes
}

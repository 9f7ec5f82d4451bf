package criconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/plan"
)

// newPod returns the pod prod/shop with UID uid-1 and the container web.
func newPod(mutate ...func(*v1.Pod)) *v1.Pod {
	defaults := func(pod *v1.Pod) {
		pod.Namespace, pod.UID = "prod", "uid-1"
		pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "web", "web:1"
	}
	return heraldtest.NewPod("shop", append([]func(*v1.Pod){defaults}, mutate...)...)
}

// newGenerator returns the settings of a machine with 1 GiB of memory.
func newGenerator(mutate ...func(*criconfig.Generator)) *criconfig.Generator {
	generator := &criconfig.Generator{LogDir: "/logs", SeccompDir: "/profiles", MemoryCapacity: 1 << 30}
	for _, change := range mutate {
		change(generator)
	}
	return generator
}

func sandboxConfig(t *testing.T, generator *criconfig.Generator, pod *v1.Pod) *runtimeapi.PodSandboxConfig {
	t.Helper()
	config, err := generator.SandboxConfig(pod, 0, cgroup.DriverCgroupfs)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// containerConfig returns the configuration of the pod's first container.
func containerConfig(
	t *testing.T, generator *criconfig.Generator, pod *v1.Pod, inputs criconfig.ContainerInputs,
) *runtimeapi.ContainerConfig {
	t.Helper()
	config, err := generator.ContainerConfig(pod, plan.Start{Container: &pod.Spec.Containers[0]}, inputs)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestGenerator_SandboxConfig(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Labels = map[string]string{"app": "shop", "io.kubernetes.pod.uid": "forged"}
		pod.Annotations = map[string]string{"note": "x"}
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{
			{ContainerPort: 80}, {ContainerPort: 53, HostPort: 5353, Protocol: v1.ProtocolUDP, HostIP: "192.0.2.1"},
		}
		pod.Spec.InitContainers = []v1.Container{
			{Name: "once", Ports: []v1.ContainerPort{{ContainerPort: 1, HostPort: 1}}},
			{Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways), Ports: []v1.ContainerPort{{ContainerPort: 2, HostPort: 2}}},
		}
	})
	config := sandboxConfig(t, newGenerator(), pod)
	if m := config.Metadata; m.Name != "shop" || m.Namespace != "prod" || m.Uid != "uid-1" || m.Attempt != 0 {
		t.Errorf("got metadata %v", m)
	}
	wantLabels := map[string]string{
		"app": "shop", "io.kubernetes.pod.name": "shop", "io.kubernetes.pod.namespace": "prod", "io.kubernetes.pod.uid": "uid-1",
	}
	if diff := cmp.Diff(wantLabels, config.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	if config.Annotations["note"] != "x" || config.LogDirectory != "/logs/prod_shop_uid-1" || config.Hostname != "shop" {
		t.Errorf("got annotations %v, log directory %s, hostname %s", config.Annotations, config.LogDirectory, config.Hostname)
	}
	var ports []string
	for _, p := range config.PortMappings {
		ports = append(ports, fmt.Sprintf("%s:%d->%d/%v", p.HostIp, p.HostPort, p.ContainerPort, p.Protocol))
	}
	if diff := cmp.Diff([]string{":2->2/TCP", "192.0.2.1:5353->53/UDP"}, ports); diff != "" {
		t.Errorf("port mappings: %s", diff)
	}
}

func TestGenerator_RejectsEscapingNames(t *testing.T) {
	tests := map[string]func(pod *v1.Pod, name string){
		"metadata.uid":                func(pod *v1.Pod, name string) { pod.UID = types.UID(name) },
		"metadata.name":               func(pod *v1.Pod, name string) { pod.Name = name },
		"metadata.namespace":          func(pod *v1.Pod, name string) { pod.Namespace = name },
		"spec.containers[0].name":     func(pod *v1.Pod, name string) { pod.Spec.Containers[0].Name = name },
		"spec.initContainers[0].name": func(pod *v1.Pod, name string) { pod.Spec.InitContainers = []v1.Container{{Name: name}} },
		"spec.ephemeralContainers[0].name": func(pod *v1.Pod, name string) {
			pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name}}}
		},
	}
	for field, set := range tests {
		t.Run(field, func(t *testing.T) {
			for _, name := range []string{"../../etc", "a/b", "..", ".hidden", "nul\x00", "", strings.Repeat("x", 256)} {
				pod := newPod(func(pod *v1.Pod) { set(pod, name) })
				_, err := newGenerator().SandboxConfig(pod, 0, cgroup.DriverCgroupfs)
				if err == nil || !strings.HasPrefix(err.Error(), field+": ") {
					t.Errorf("%q: got error %v, want one about %s", name, err, field)
				}
			}
		})
	}
}

func TestPW53_ContainerLabelsAndAnnotations(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(45))
		c := &pod.Spec.Containers[0]
		c.TerminationMessagePath, c.TerminationMessagePolicy = "/msg", v1.TerminationMessageReadFile
		c.Ports = []v1.ContainerPort{{ContainerPort: 80}}
		c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}}}
		c.Stdin, c.StdinOnce, c.TTY = true, true, true
	})
	config := containerConfig(t, newGenerator(), pod, criconfig.ContainerInputs{ImageRef: "sha256:web"})
	wantLabels := map[string]string{
		"io.kubernetes.container.name": "web", "io.kubernetes.pod.name": "shop", "io.kubernetes.pod.namespace": "prod",
		"io.kubernetes.pod.uid": "uid-1",
	}
	if diff := cmp.Diff(wantLabels, config.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	hash := plan.HashContainer(&pod.Spec.Containers[0])
	wantAnnotations := map[string]string{
		"io.kubernetes.container.hash":                     fmt.Sprintf("%x", hash),
		"io.kubernetes.container.restartCount":             "0",
		"io.kubernetes.container.terminationMessagePath":   "/msg",
		"io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.container.ports":                    `[{"containerPort":80}]`,
		"io.kubernetes.container.preStopHandler":           `{"sleep":{"seconds":3}}`,
		"io.kubernetes.pod.terminationGracePeriod":         "45",
	}
	if diff := cmp.Diff(wantAnnotations, config.Annotations); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
	if config.LogPath != "web/0.log" || config.Metadata.Name != "web" || config.Metadata.Attempt != 0 ||
		!config.Stdin || !config.StdinOnce || !config.Tty {
		t.Errorf("got %v", config)
	}
	if config.Image.Image != "sha256:web" || config.Image.UserSpecifiedImage != "web:1" {
		t.Errorf("got image %v", config.Image)
	}
	if got := criconfig.SpecHash(config.Annotations); got != hash {
		t.Errorf("got hash %x, want %x", got, hash)
	}
}

func TestGenerator_ExpandsVariables(t *testing.T) {
	expanded := map[string]string{
		"$(A)": "1", "x$(A)y$(B)z": "x1y$(A)z", "$$(A)": "$(A)", "$(C)": "$(C)", "$A": "$A", "$": "$", "$(": "$(", "$$": "$",
		"$$$(A)": "$1", "$(A": "$(A", "": "",
	}
	pod := newPod(func(pod *v1.Pod) {
		c := &pod.Spec.Containers[0]
		c.WorkingDir = "/w/$(A)"
		for text := range expanded {
			c.Command = append(c.Command, text)
		}
		c.Args = []string{"$(B)"}
	})
	env := []v1.EnvVar{{Name: "A", Value: "0"}, {Name: "B", Value: "$(A)"}, {Name: "A", Value: "1"}}
	config := containerConfig(t, newGenerator(), pod, criconfig.ContainerInputs{Env: env})
	for i, text := range pod.Spec.Containers[0].Command {
		if config.Command[i] != expanded[text] {
			t.Errorf("%q: got %q, want %q", text, config.Command[i], expanded[text])
		}
	}
	if config.Args[0] != "$(A)" || config.WorkingDir != "/w/$(A)" || len(config.Envs) != 3 {
		t.Errorf("got args %q, working directory %s, variables %v", config.Args, config.WorkingDir, config.Envs)
	}
}

func TestGenerator_StopSignal(t *testing.T) {
	for signal, want := range map[v1.Signal]runtimeapi.Signal{
		v1.SIGUSR1: runtimeapi.Signal_SIGUSR1, "SIGRTMIN+1": runtimeapi.Signal_SIGRTMINPLUS1,
	} {
		pod := newPod(func(pod *v1.Pod) { pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: &signal} })
		if got := containerConfig(t, newGenerator(), pod, criconfig.ContainerInputs{}).StopSignal; got != want {
			t.Errorf("%s: got %v, want %v", signal, got, want)
		}
	}
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: new(v1.Signal("SIGNOT"))}
	})
	_, err := newGenerator().ContainerConfig(pod, plan.Start{Container: &pod.Spec.Containers[0]}, criconfig.ContainerInputs{})
	if err == nil || !strings.HasPrefix(err.Error(), "lifecycle.stopSignal: ") {
		t.Errorf("got error %v", err)
	}
}

func TestTargetContainer(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}, TargetContainerName: "web",
		}}
	})
	container := func(id, name string, state runtimeapi.ContainerState, createdAt int64) *runtimeapi.Container {
		return &runtimeapi.Container{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: name}, State: state, CreatedAt: createdAt}
	}
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	containers := []*runtimeapi.Container{
		container("other", "proxy", running, 9), container("old", "web", running, 1), container("new", "web", running, 2),
		container("exited", "web", exited, 3),
	}
	if id, err := criconfig.TargetContainer(pod, "debug", containers); id != "new" || err != nil {
		t.Errorf("got %q, %v, want the newest running instance", id, err)
	}
	if id, err := criconfig.TargetContainer(pod, "web", containers); id != "" || err != nil {
		t.Errorf("container without target: got %q, %v", id, err)
	}
	if id, err := criconfig.TargetContainer(pod, "debug", containers[3:]); err == nil {
		t.Errorf("no running target: got %q, want an error", id)
	}
}

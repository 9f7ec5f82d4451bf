package diff_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// generateRecordPod generates a pod with what sandboxes and containers are labelled and annotated with.
func generateRecordPod(g *generator) *v1.Pod {
	pod := generatePod(g)
	if g.chance(50) {
		pod.Labels = map[string]string{"app": oneOf(g, "web", "<&>", ""), "io.kubernetes.pod.name": "forged"}
	}
	if g.chance(50) {
		pod.Annotations = map[string]string{
			podid.SourceAnnotation: "file", podid.HashAnnotation: "abc", podid.SeenAnnotation: "2026-11-15T06:30:00.123456789Z", "note": "é\n",
		}
	}
	pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC = g.chance(30), g.chance(20), g.chance(20)
	if g.chance(30) {
		pod.Spec.ShareProcessNamespace = new(g.chance(50))
	}
	if g.chance(50) {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(g.IntN(100)))
	}
	if g.chance(30) {
		pod.DeletionGracePeriodSeconds = new(int64(g.IntN(100)))
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			generateRecordFields(g, &containers[i])
		}
	}
	return pod
}

func generateRecordFields(g *generator, container *v1.Container) {
	container.Image = oneOf(g, "web", "registry.test:5000/a/b@sha256:0123", "<&>  é", "")
	container.TerminationMessagePath = oneOf(g, "", "/dev/termination-log", "message")
	container.TerminationMessagePolicy = oneOf(g, "", v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	if g.chance(40) {
		container.Ports = []v1.ContainerPort{
			{Name: "http", ContainerPort: 80, HostPort: int32(g.IntN(2)) * 8080, Protocol: v1.ProtocolTCP, HostIP: oneOf(g, "", "127.0.0.1")},
			{ContainerPort: 53, Protocol: v1.ProtocolUDP},
		}[:1+g.IntN(2)]
	}
	if g.chance(40) {
		container.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}, PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}}
		switch handler := container.Lifecycle.PreStop; g.IntN(3) {
		case 0:
			handler.Exec = &v1.ExecAction{Command: []string{"sh", "-c", "a <b >&2"}}
		case 1:
			handler.HTTPGet = &v1.HTTPGetAction{Path: "/x", Port: intstr.FromString("http"), HTTPHeaders: []v1.HTTPHeader{{Name: "A", Value: "b"}}}
		default:
			handler.Sleep = &v1.SleepAction{Seconds: 3}
		}
	}
}

// TestPW53_KubeletRecords compares what sandboxes and containers are recognized by, so that a kubelet that takes over a node
// keeps them, and vice versa. CGR-3 is compared by TestCGR3_KubeletNames.
func TestPW53_KubeletRecords(t *testing.T) {
	type input struct {
		Pod          *v1.Pod
		RestartCount int
	}
	generate := func(g *generator) input { return input{generateRecordPod(g), g.IntN(12)} }
	generator := &criconfig.Generator{LogDir: "/var/log/pods"}
	equateEmpty := cmpopts.EquateEmpty()
	newComparison(generate, func(in input) string {
		sandbox, err := generator.SandboxConfig(in.Pod, 0, "")
		if err != nil {
			return err.Error()
		}
		record := kubelet.Record{
			Name: sandbox.Metadata.Name, Namespace: sandbox.Metadata.Namespace, UID: sandbox.Metadata.Uid, Attempt: sandbox.Metadata.Attempt,
			Labels: sandbox.Labels, Annotations: sandbox.Annotations, LogPath: sandbox.LogDirectory,
		}
		if diff := cmp.Diff(kubelet.SandboxRecord(in.Pod, generator.LogDir), record, equateEmpty); diff != "" {
			return "sandbox: kubelet (-), Herald (+):" + diff
		}
		if kubelet.NeedsNewSandbox(in.Pod, sandbox) {
			return "the kubelet replaces the sandbox"
		}
		for _, container := range slices.Concat(in.Pod.Spec.InitContainers, in.Pod.Spec.Containers) {
			if diff := compareContainerRecord(generator, in.Pod, plan.Start{Container: &container, RestartCount: in.RestartCount}); diff != "" {
				return diff
			}
		}
		return ""
	}).run(t)
}

func compareContainerRecord(generator *criconfig.Generator, pod *v1.Pod, start plan.Start) string {
	if theirs, ours := kubecontainer.HashContainer(start.Container), plan.HashContainer(start.Container); theirs != ours {
		return fmt.Sprintf("hash of container %s: the kubelet computes %x, Herald %x", start.Container.Name, theirs, ours)
	}
	config, err := generator.ContainerConfig(pod, start, criconfig.ContainerInputs{})
	if err != nil {
		return err.Error()
	}
	record := kubelet.Record{
		Name: config.Metadata.Name, Attempt: config.Metadata.Attempt, Labels: config.Labels, Annotations: config.Annotations,
		LogPath: config.LogPath,
	}
	if diff := cmp.Diff(kubelet.ContainerRecord(pod, start.Container, start.RestartCount), record, cmpopts.EquateEmpty()); diff != "" {
		return "container: kubelet (-), Herald (+):" + diff
	}
	return ""
}

package kubelet

import (
	"context"
	"path/filepath"
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	runtimeutil "k8s.io/kubernetes/pkg/kubelet/kuberuntime/util"
)

//go:linkname newPodLabels k8s.io/kubernetes/pkg/kubelet/kuberuntime.newPodLabels
func newPodLabels(pod *v1.Pod) map[string]string

//go:linkname newPodAnnotations k8s.io/kubernetes/pkg/kubelet/kuberuntime.newPodAnnotations
func newPodAnnotations(pod *v1.Pod) map[string]string

//go:linkname newContainerLabels k8s.io/kubernetes/pkg/kubelet/kuberuntime.newContainerLabels
func newContainerLabels(container *v1.Container, pod *v1.Pod) map[string]string

//go:linkname newContainerAnnotations k8s.io/kubernetes/pkg/kubelet/kuberuntime.newContainerAnnotations
func newContainerAnnotations(
	ctx context.Context, container *v1.Container, pod *v1.Pod, restartCount int, options *kubecontainer.RunContainerOptions,
) map[string]string

//go:linkname buildContainerLogsPath k8s.io/kubernetes/pkg/kubelet/kuberuntime.buildContainerLogsPath
func buildContainerLogsPath(containerName string, restartCount int) string

// Record is what the kubelet recognizes its sandboxes and containers by.
type Record struct {
	Name, Namespace, UID string // of a sandbox
	Attempt              uint32
	Labels, Annotations  map[string]string
	LogPath              string
}

// SandboxRecord returns what the kubelet stores with the first sandbox of a pod.
func SandboxRecord(pod *v1.Pod, logDir string) Record {
	return Record{
		Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID), Labels: newPodLabels(pod), Annotations: newPodAnnotations(pod),
		LogPath: kuberuntime.BuildPodLogsDirectory(logDir, pod.Namespace, pod.Name, pod.UID),
	}
}

// ContainerRecord returns what the kubelet stores with a container.
func ContainerRecord(pod *v1.Pod, container *v1.Container, restartCount int) Record {
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	return Record{
		Name: container.Name, Attempt: uint32(restartCount), Labels: newContainerLabels(container, pod),
		Annotations: newContainerAnnotations(ctx, container, pod, restartCount, &kubecontainer.RunContainerOptions{}),
		LogPath:     filepath.Clean(buildContainerLogsPath(container.Name, restartCount)),
	}
}

// NeedsNewSandbox reports whether the kubelet replaces the sandbox that was created with this configuration, and is ready.
func NeedsNewSandbox(pod *v1.Pod, config *runtimeapi.PodSandboxConfig) bool {
	changed, _, _ := runtimeutil.PodSandboxChanged(pod, &kubecontainer.PodStatus{SandboxStatuses: []*runtimeapi.PodSandboxStatus{{
		Id: "sandbox", Metadata: config.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.7"},
		Linux: &runtimeapi.LinuxPodSandboxStatus{
			Namespaces: &runtimeapi.Namespace{Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
		},
	}}})
	return changed
}

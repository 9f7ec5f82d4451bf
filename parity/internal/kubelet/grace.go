package kubelet

import (
	"context"
	"time"
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
)

// What is linked below is there only if somebody uses its package.
var _ = kuberuntime.HasAnyRegularContainerCreated

//nolint:revive // argument-limit: as the kubelet has it
//go:linkname setTerminationGracePeriod k8s.io/kubernetes/pkg/kubelet/kuberuntime.setTerminationGracePeriod
func setTerminationGracePeriod(
	ctx context.Context, pod *v1.Pod, container *v1.Container, name string, id kubecontainer.ContainerID, reason string,
) int64

// GracePeriod is what the kubelet gives a container that it stops for that reason, before hooks and its minimum.
func GracePeriod(pod *v1.Pod, container *v1.Container, reason string) time.Duration {
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	seconds := setTerminationGracePeriod(ctx, pod, container, container.Name, kubecontainer.ContainerID{}, reason)
	return time.Duration(seconds) * time.Second
}

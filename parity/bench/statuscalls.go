package bench

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/status"
)

// statusCalls compares what setters and getters of the two status managers cost, without an API server.
func statusCalls(_ context.Context, lab *Lab) ([]Row, error) {
	p := threeContainers("web", "u")
	theirPods, ourPods := kubeletpod.NewBasicPodManager(), pod.NewManager()
	theirPods.AddPod(p)
	ourPods.AddPod(p)
	theirs := newKubeletStatus(nil, theirPods)
	ours, err := status.New(status.Config{Pods: ourPods})
	if err != nil {
		return nil, fmt.Errorf("make a status manager: %w", err)
	}
	same := runningStatus()
	theirs.SetPodStatus(klog.Logger{}, p, same)
	ours.SetPodStatus(p, same)

	lab.say("SetPodStatus, unchanged")
	unchanged, allocs, err := compareOne(lab.Effort, call{
		name: "set_unchanged", what: "SetPodStatus, unchanged",
		kubelet: loop(func(int) { theirs.SetPodStatus(klog.Logger{}, p, same) }),
		herald:  loop(func(int) { ours.SetPodStatus(p, same) }),
		goal:    AtLeast(10),
	})
	if err != nil {
		return nil, err
	}
	others, err := compare(lab, changingCalls(theirs, ours, p))
	return append([]Row{unchanged, {
		Name: "set_unchanged_allocs", What: "SetPodStatus, unchanged: allocations of Herald's",
		Kubelet: fmt.Sprint(allocs[0]), Herald: fmt.Sprint(allocs[1]), Value: float64(allocs[1]), Goal: AtMost(8),
	}}, others...), err
}

func changingCalls(theirs kubeletstatus.Manager, ours *status.Manager, p *v1.Pod) []call {
	quiet := klog.Logger{}
	turns := []v1.PodStatus{runningStatus(), runningStatus()}
	turns[0].ContainerStatuses[1].RestartCount = 1
	id := containerID(1)
	return []call{
		{
			name: "set_changed", what: "SetPodStatus, changed",
			kubelet: loop(func(i int) { theirs.SetPodStatus(quiet, p, turns[i%2]) }),
			herald:  loop(func(i int) { ours.SetPodStatus(p, turns[i%2]) }),
			goal:    AtLeast(3),
		},
		{
			name: "set_readiness", what: "SetContainerReadiness",
			kubelet: loop(func(i int) {
				theirs.SetContainerReadiness(quiet, p.UID, kubecontainer.ContainerID{Type: runtimeName, ID: id}, i%2 == 0)
			}),
			herald: loop(func(i int) {
				ours.SetContainerReadiness(p.UID, observed.ContainerID{Runtime: runtimeName, ID: id}, i%2 == 0)
			}),
			goal: AtLeast(3),
		},
		{
			name: "get_status", what: "GetPodStatus",
			kubelet: loop(func(int) { _, found := theirs.GetPodStatus(p.UID); keep(nil, found) }),
			herald:  loop(func(int) { _, found := ours.GetPodStatus(p.UID); keep(nil, found) }),
			goal:    AtLeast(1),
		},
	}
}

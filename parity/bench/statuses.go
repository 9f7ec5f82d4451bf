package bench

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// idle is a node on which nothing runs, for both managers.
type idle struct{}

func (idle) RecordStatusUpdated(*v1.Pod)                          {}
func (idle) DeletePodStartupState(types.UID)                      {}
func (idle) PodResourcesAreReclaimed(*v1.Pod, *v1.PodStatus) bool { return true }

// idleKubelet and idleHerald answer the same question, each in its own words.
type idleKubelet struct{ idle }

func (idleKubelet) PodCouldHaveRunningContainers(*v1.Pod) bool { return false }

type idleHerald struct{ idle }

func (idleHerald) PodCouldHaveRunningContainers(podid.UID) bool { return false }

func newKubeletManager(client kubernetes.Interface, pods kubeletpod.Manager) kubeletstatus.Manager {
	return kubeletstatus.NewManager(client, pods, idleKubelet{}, idle{})
}

// runningStatus is that of a pod with three containers, all ready.
func runningStatus() v1.PodStatus {
	now, started := metav1.NewTime(time.Now().Truncate(time.Second)), true
	s := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, StartTime: &now}
	for _, kind := range []v1.PodConditionType{
		v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
	} {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue})
	}
	for i := range 3 {
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example/app:1", ImageID: "registry.example/app@sha256:0123456789abcdef",
			ContainerID: fmt.Sprintf("containerd://%064d", i), Ready: true, Started: &started,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}

func threeContainers(name string, uid types.UID) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid}}
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
	for i := range 3 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example/app:1", ReadinessProbe: probe,
		})
	}
	return p
}

// Statuses compares what setters and getters of the two status managers cost, without an API server.
func Statuses() ([]Case, error) {
	p := threeContainers("web", "u")
	theirPods, ourPods := kubeletpod.NewBasicPodManager(), pod.NewManager()
	theirPods.AddPod(p)
	ourPods.AddPod(p)
	theirs := newKubeletManager(nil, theirPods)
	ours, err := status.New(status.Config{Pods: ourPods})
	if err != nil {
		return nil, fmt.Errorf("make a status manager: %w", err)
	}
	quiet := klog.Logger{}
	same, other := runningStatus(), runningStatus()
	other.ContainerStatuses[1].RestartCount = 1
	turns := []v1.PodStatus{other, same}
	theirs.SetPodStatus(quiet, p, same)
	ours.SetPodStatus(p, same)
	id := fmt.Sprintf("%064d", 1)
	return []Case{
		{
			Name: "set_unchanged", What: "SetPodStatus, unchanged",
			Kubelet: loop(func(int) { theirs.SetPodStatus(quiet, p, same) }),
			Herald:  loop(func(int) { ours.SetPodStatus(p, same) }),
		},
		{
			Name: "set_changed", What: "SetPodStatus, changed",
			Kubelet: loop(func(i int) { theirs.SetPodStatus(quiet, p, turns[i%2]) }),
			Herald:  loop(func(i int) { ours.SetPodStatus(p, turns[i%2]) }),
		},
		{
			Name: "set_readiness", What: "SetContainerReadiness",
			Kubelet: loop(func(i int) {
				theirs.SetContainerReadiness(quiet, "u", kubecontainer.ContainerID{Type: "containerd", ID: id}, i%2 == 0)
			}),
			Herald: loop(func(i int) {
				ours.SetContainerReadiness("u", observed.ContainerID{Runtime: "containerd", ID: id}, i%2 == 0)
			}),
		},
		{
			Name: "get_status", What: "GetPodStatus",
			Kubelet: loop(func(int) { _, found := theirs.GetPodStatus("u"); keep(nil, found) }),
			Herald:  loop(func(int) { _, found := ours.GetPodStatus("u"); keep(nil, found) }),
		},
	}, nil
}

func loop(do func(i int)) func(*testing.B) {
	return func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			do(i)
		}
	}
}

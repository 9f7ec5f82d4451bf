package bench

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// manager is what the cases ask of both status managers.
type manager interface {
	// learn tells the node's address book what the API server says of a pod.
	learn(p *v1.Pod)
	// set is a new status of the pod.
	set(p *v1.Pod, s v1.PodStatus)
	// setReady is what a probe found out about the pod's second container.
	setReady(p *v1.Pod, ready bool)
	// end ends all that the manager does.
	end()
}

// start makes a manager of pods that the node knows, and lets it work.
type start func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (manager, error)

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

func newKubeletStatus(client kubernetes.Interface, pods kubeletstatus.PodManager) kubeletstatus.Manager {
	return kubeletstatus.NewManager(client, pods, idleKubelet{}, idle{})
}

type kubeletManager struct {
	book   kubeletpod.Manager
	status kubeletstatus.Manager
	stop   context.CancelFunc
}

func startKubelet(ctx context.Context, config *rest.Config, pods []*v1.Pod) (manager, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the kubelet's client: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	book := kubeletpod.NewBasicPodManager()
	book.SetPods(pods)
	m := &kubeletManager{book: book, status: newKubeletStatus(client, book), stop: stop}
	m.status.Start(ctx)
	return m, nil
}

func (m *kubeletManager) learn(p *v1.Pod)               { m.book.UpdatePod(p) }
func (m *kubeletManager) set(p *v1.Pod, s v1.PodStatus) { m.status.SetPodStatus(klog.Logger{}, p, s) }
func (m *kubeletManager) setReady(p *v1.Pod, ready bool) {
	m.status.SetContainerReadiness(klog.Logger{}, p.UID, kubecontainer.ContainerID{Type: runtimeName, ID: containerID(1)}, ready)
}

// end leaves the kubelet's goroutine, which has no end, without work.
func (m *kubeletManager) end() {
	m.stop()
	m.status.RemoveOrphanedStatuses(klog.Logger{}, nil)
}

type heraldManager struct {
	book   *pod.Manager
	status *status.Manager
	stop   context.CancelFunc
	ended  chan struct{}
}

func startHerald(ctx context.Context, config *rest.Config, pods []*v1.Pod) (manager, error) {
	return startHeraldWith(status.Config{})(ctx, config, pods)
}

// startHeraldWith starts our manager with other settings than the defaults.
func startHeraldWith(settings status.Config) start {
	return func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (manager, error) {
		client, err := kubeapi.New(config)
		if err != nil {
			return nil, fmt.Errorf("make our client: %w", err)
		}
		book := pod.NewManager()
		book.SetPods(pods)
		settings := settings
		settings.API, settings.Pods, settings.Deletion = client, book, idleHerald{}
		settings.FlushTimeout = 1 // what is not sent when a case ends is of no interest
		ours, err := status.New(settings)
		if err != nil {
			return nil, fmt.Errorf("make our manager: %w", err)
		}
		ctx, stop := context.WithCancel(ctx)
		m := &heraldManager{book: book, status: ours, stop: stop, ended: make(chan struct{})}
		go func() {
			defer close(m.ended)
			_ = ours.Run(ctx)
		}()
		return m, nil
	}
}

func (m *heraldManager) learn(p *v1.Pod) {
	m.book.UpdatePod(p)
	m.status.Reconcile(p)
}
func (m *heraldManager) set(p *v1.Pod, s v1.PodStatus) { m.status.SetPodStatus(p, s) }
func (m *heraldManager) setReady(p *v1.Pod, ready bool) {
	m.status.SetContainerReadiness(p.UID, observed.ContainerID{Runtime: runtimeName, ID: containerID(1)}, ready)
}

func (m *heraldManager) end() {
	m.stop()
	<-m.ended
}

package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/status/patch"
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

// bare is no manager: it sends patches that were made beforehand, and does nothing else. Nobody can be faster with as many
// requests in flight.
type bare struct {
	patches map[*v1.Pod][]byte
	waiting chan *v1.Pod
	stop    context.CancelFunc
	senders sync.WaitGroup
}

func startBare(inFlight int) start {
	return func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (manager, error) {
		client, err := kubeapi.New(config)
		if err != nil {
			return nil, fmt.Errorf("make a client: %w", err)
		}
		ctx, stop := context.WithCancel(ctx)
		b := &bare{patches: map[*v1.Pod][]byte{}, waiting: make(chan *v1.Pod, len(pods)), stop: stop}
		for _, p := range pods {
			if b.patches[p], err = barePatch(p); err != nil {
				stop()
				return nil, err
			}
		}
		for range inFlight {
			b.senders.Go(func() { b.send(ctx, client) })
		}
		return b, nil
	}
}

// barePatch says what our manager's patch says.
func barePatch(p *v1.Pod) ([]byte, error) {
	s := runningStatus()
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = *s.StartTime
	}
	s.QOSClass = p.Status.QOSClass
	absent := []v1.PodConditionType{}
	for _, kind := range derive.OwnedConditions() {
		if !slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == kind }) {
			absent = append(absent, kind)
		}
	}
	return patch.Build(patch.Request{UID: p.UID, ResourceVersion: p.ResourceVersion, Status: &s, Absent: absent})
}

// send takes pods until ctx ends. A patch that fails makes its pod invisible, and so the measurement fails.
func (b *bare) send(ctx context.Context, client *kubeapi.Client) {
	for {
		select {
		case p := <-b.waiting:
			_, _ = client.PatchPodStatus(ctx, p.Namespace, p.Name, b.patches[p])
		case <-ctx.Done():
			return
		}
	}
}

func (b *bare) learn(*v1.Pod)                 {}
func (b *bare) set(p *v1.Pod, _ v1.PodStatus) { b.waiting <- p }
func (b *bare) setReady(*v1.Pod, bool)        {}

func (b *bare) end() {
	b.stop()
	b.senders.Wait()
}

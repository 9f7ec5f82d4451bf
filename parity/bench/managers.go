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

// statusManager is what the cases need from both status managers.
type statusManager interface {
	// updatePod passes the API server's version of a pod to the pod manager.
	updatePod(p *v1.Pod)
	// setStatus sets the pod's status.
	setStatus(p *v1.Pod, s v1.PodStatus)
	// setReadiness sets a probe result for the pod's second container.
	setReadiness(p *v1.Pod, ready bool)
	// close stops the manager.
	close()
}

// startFunc starts a manager for the pods of a node.
type startFunc func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (statusManager, error)

// noopCallbacks is a node on which nothing runs, for both managers.
type noopCallbacks struct{}

func (noopCallbacks) RecordStatusUpdated(*v1.Pod)                          {}
func (noopCallbacks) DeletePodStartupState(types.UID)                      {}
func (noopCallbacks) PodResourcesAreReclaimed(*v1.Pod, *v1.PodStatus) bool { return true }

// kubeletCallbacks and heraldCallbacks add the method whose signature differs.
type kubeletCallbacks struct{ noopCallbacks }

func (kubeletCallbacks) PodCouldHaveRunningContainers(*v1.Pod) bool { return false }

type heraldCallbacks struct{ noopCallbacks }

func (heraldCallbacks) PodCouldHaveRunningContainers(podid.UID) bool { return false }

func newKubeletStatusManager(client kubernetes.Interface, pods kubeletstatus.PodManager) kubeletstatus.Manager {
	return kubeletstatus.NewManager(client, pods, kubeletCallbacks{}, noopCallbacks{})
}

type kubeletManager struct {
	pods   kubeletpod.Manager
	status kubeletstatus.Manager
	cancel context.CancelFunc
}

func startKubelet(ctx context.Context, config *rest.Config, pods []*v1.Pod) (statusManager, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the kubelet's client: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	podManager := kubeletpod.NewBasicPodManager()
	podManager.SetPods(pods)
	m := &kubeletManager{pods: podManager, status: newKubeletStatusManager(client, podManager), cancel: cancel}
	m.status.Start(ctx)
	return m, nil
}

func (m *kubeletManager) updatePod(p *v1.Pod) { m.pods.UpdatePod(p) }
func (m *kubeletManager) setStatus(p *v1.Pod, s v1.PodStatus) {
	m.status.SetPodStatus(klog.Logger{}, p, s)
}
func (m *kubeletManager) setReadiness(p *v1.Pod, ready bool) {
	m.status.SetContainerReadiness(klog.Logger{}, p.UID, kubecontainer.ContainerID{Type: runtimeName, ID: containerID(1)}, ready)
}

// close leaves the kubelet's goroutine, which cannot be stopped, without work.
func (m *kubeletManager) close() {
	m.cancel()
	m.status.RemoveOrphanedStatuses(klog.Logger{}, nil)
}

type heraldManager struct {
	pods   *pod.Manager
	status *status.Manager
	cancel context.CancelFunc
	done   chan struct{}
}

func startHerald(ctx context.Context, config *rest.Config, pods []*v1.Pod) (statusManager, error) {
	return startHeraldWithConfig(status.Config{})(ctx, config, pods)
}

// startHeraldWithConfig starts Herald's manager with non-default settings.
func startHeraldWithConfig(settings status.Config) startFunc {
	return func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (statusManager, error) {
		client, err := kubeapi.New(config)
		if err != nil {
			return nil, fmt.Errorf("create Herald's client: %w", err)
		}
		podManager := pod.NewManager()
		podManager.SetPods(pods)
		settings := settings
		settings.API, settings.Pods, settings.Deletion = client, podManager, heraldCallbacks{}
		settings.FlushTimeout = 1 // unsent statuses are irrelevant once a case is done
		manager, err := status.New(settings)
		if err != nil {
			return nil, fmt.Errorf("create Herald's status manager: %w", err)
		}
		ctx, cancel := context.WithCancel(ctx)
		m := &heraldManager{pods: podManager, status: manager, cancel: cancel, done: make(chan struct{})}
		go func() {
			defer close(m.done)
			_ = manager.Run(ctx)
		}()
		return m, nil
	}
}

func (m *heraldManager) updatePod(p *v1.Pod) {
	m.pods.UpdatePod(p)
	m.status.Reconcile(p)
}
func (m *heraldManager) setStatus(p *v1.Pod, s v1.PodStatus) { m.status.SetPodStatus(p, s) }
func (m *heraldManager) setReadiness(p *v1.Pod, ready bool) {
	m.status.SetContainerReadiness(p.UID, observed.ContainerID{Runtime: runtimeName, ID: containerID(1)}, ready)
}

func (m *heraldManager) close() {
	m.cancel()
	<-m.done
}

// patchSender sends patches that were built beforehand and does nothing else: the lower bound for a given number of
// requests in flight.
type patchSender struct {
	patches map[*v1.Pod][]byte
	queue   chan *v1.Pod
	cancel  context.CancelFunc
	senders sync.WaitGroup
}

func startPatchSender(inFlight int) startFunc {
	return func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (statusManager, error) {
		client, err := kubeapi.New(config)
		if err != nil {
			return nil, fmt.Errorf("create client: %w", err)
		}
		ctx, cancel := context.WithCancel(ctx)
		sender := &patchSender{patches: map[*v1.Pod][]byte{}, queue: make(chan *v1.Pod, len(pods)), cancel: cancel}
		for _, p := range pods {
			if sender.patches[p], err = buildPatch(p); err != nil {
				cancel()
				return nil, err
			}
		}
		for range inFlight {
			sender.senders.Go(func() { sender.send(ctx, client) })
		}
		return sender, nil
	}
}

// buildPatch returns the patch that Herald's manager sends.
func buildPatch(p *v1.Pod) ([]byte, error) {
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

// send sends queued patches until ctx is done. A failed patch leaves its pod invisible, which fails the measurement.
func (b *patchSender) send(ctx context.Context, client *kubeapi.Client) {
	for {
		select {
		case p := <-b.queue:
			_, _ = client.PatchPodStatus(ctx, p.Namespace, p.Name, b.patches[p])
		case <-ctx.Done():
			return
		}
	}
}

func (b *patchSender) updatePod(*v1.Pod)                   {}
func (b *patchSender) setStatus(p *v1.Pod, _ v1.PodStatus) { b.queue <- p }
func (b *patchSender) setReadiness(*v1.Pod, bool)          {}

func (b *patchSender) close() {
	b.cancel()
	b.senders.Wait()
}

package bench

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
)

// startKubeletProber probes with the kubelet's code. Somebody takes its results, or it would stop.
func startKubeletProber(ctx context.Context, p *v1.Pod) (func(), error) {
	book := kubeletpod.NewBasicPodManager()
	book.AddPod(p)
	status := newKubeletStatus(&fake.Clientset{}, book)
	status.SetPodStatus(klog.Logger{}, p, p.Status)
	readiness := results.NewManager()
	manager := prober.NewManager(status, results.NewManager(), readiness, results.NewManager(), nil, &record.FakeRecorder{})
	ctx, stop := context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-readiness.Updates():
			}
		}
	}()
	manager.AddPod(ctx, p)
	return func() {
		manager.RemovePod(p)
		stop()
	}, nil
}

// probedNode is what Herald's prober sees of the pod, and tells.
type probedNode struct{ pod *observed.Pod }

func (n probedNode) Get(podid.UID) *observed.Pod                                 { return n.pod }
func (n probedNode) GetPodStatus(types.UID) (v1.PodStatus, bool)                 { return v1.PodStatus{}, false }
func (n probedNode) SetContainerReadiness(types.UID, observed.ContainerID, bool) {}
func (n probedNode) SetContainerStartup(types.UID, observed.ContainerID, bool)   {}

func startHeraldProber(ctx context.Context, p *v1.Pod) (func(), error) {
	node := probedNode{pod: &observed.Pod{UID: podid.UID(p.UID), IPs: []netip.Addr{netip.MustParseAddr(p.Status.PodIP)}}}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		node.pod.Containers = append(node.pod.Containers, observed.Container{
			ID: observed.ParseContainerID(c.ContainerID), Name: c.Name, State: observed.Running, StartedAt: c.State.Running.StartedAt.Time,
		})
	}
	ours, err := probe.New(probe.Config{Observations: node, Statuses: node, Metrics: prometheus.NewRegistry()})
	if err != nil {
		return nil, fmt.Errorf("make a prober: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = ours.Run(ctx)
	}()
	ours.AddPod(p)
	return func() {
		stop()
		<-ended
	}, nil
}

package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/status"
)

// Burst is many pods that turn Running at once, on a real API server.
type Burst struct {
	// Cluster is where it happens.
	Cluster *controlplane.ControlPlane
	Pods    int
	// Delay is added to each request of the manager.
	Delay time.Duration

	serial int // makes the names of nodes and pods unique
}

// Outcome is what one side needed.
type Outcome struct {
	// Visible is the time until a watch has shown all pods as Running.
	Visible time.Duration
	// Requests is how many the manager sent.
	Requests int
}

// Kubelet lets the kubelet's manager report the burst.
func (b *Burst) Kubelet(ctx context.Context) (Outcome, error) {
	return b.run(ctx, func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (func(), error) {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("make the kubelet's client: %w", err)
		}
		book := kubeletpod.NewBasicPodManager()
		book.SetPods(pods)
		manager := newKubeletManager(client, book)
		manager.Start(ctx)
		return func() {
			for _, p := range pods {
				manager.SetPodStatus(klog.Logger{}, p, runningStatus())
			}
		}, nil
	})
}

// Herald lets ours do it.
func (b *Burst) Herald(ctx context.Context) (Outcome, error) {
	return b.run(ctx, func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (func(), error) {
		client, err := kubeapi.New(config)
		if err != nil {
			return nil, fmt.Errorf("make our client: %w", err)
		}
		book := pod.NewManager()
		book.SetPods(pods)
		manager, err := status.New(status.Config{API: client, Pods: book, Deletion: idleHerald{}})
		if err != nil {
			return nil, fmt.Errorf("make our manager: %w", err)
		}
		go func() { _ = manager.Run(ctx) }()
		return func() {
			for _, p := range pods {
				manager.SetPodStatus(p, runningStatus())
			}
		}, nil
	})
}

// side starts a manager on the node's pods and returns what makes them all Running.
type side func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (burst func(), err error)

func (b *Burst) run(ctx context.Context, start side) (Outcome, error) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	b.serial++
	node := fmt.Sprintf("burst-%d", b.serial)
	if _, err := b.Cluster.CreateNode(ctx, node); err != nil {
		return Outcome{}, err
	}
	pods, err := b.create(ctx, node)
	if err != nil {
		return Outcome{}, err
	}
	script := fault.NewScript()
	if b.Delay > 0 {
		script.Add(fault.On("*", "/pods/").Delay(b.Delay))
	}
	config := b.Cluster.NodeConfig(node)
	config.Wrap(script.Wrap)
	burst, err := start(ctx, config, pods)
	if err != nil {
		return Outcome{}, err
	}
	visible, err := b.visible(ctx, node, burst)
	return Outcome{Visible: visible, Requests: len(script.Requests())}, err
}

// create makes the pods, as somebody else would, several at a time.
func (b *Burst) create(ctx context.Context, node string) ([]*v1.Pod, error) {
	client, err := kubernetes.NewForConfig(b.Cluster.AdminConfig())
	if err != nil {
		return nil, fmt.Errorf("make the administrator's client: %w", err)
	}
	pods, errs := make([]*v1.Pod, b.Pods), make([]error, b.Pods)
	var all sync.WaitGroup
	room := make(chan struct{}, 16)
	for i := range b.Pods {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			p := threeContainers(fmt.Sprintf("%s-%d", node, i), "")
			p.Spec.NodeName = node
			pods[i], errs[i] = client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("create the pods of the burst: %w", err)
		}
	}
	return pods, nil
}

// visible times from the burst until a watch has shown every pod of the node as Running.
func (b *Burst) visible(ctx context.Context, node string, burst func()) (time.Duration, error) {
	client, err := kubernetes.NewForConfig(b.Cluster.AdminConfig())
	if err != nil {
		return 0, fmt.Errorf("make the administrator's client: %w", err)
	}
	seen, err := client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return 0, fmt.Errorf("watch the pods of the burst: %w", err)
	}
	defer seen.Stop()
	began := time.Now()
	burst()
	runs := map[string]bool{}
	for event := range seen.ResultChan() {
		if p, isPod := event.Object.(*v1.Pod); isPod && p.Status.Phase == v1.PodRunning {
			runs[p.Name] = true
		}
		if len(runs) == b.Pods {
			return time.Since(began), nil
		}
	}
	return 0, fmt.Errorf("only %d of %d pods became visible", len(runs), b.Pods)
}

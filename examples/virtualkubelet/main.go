// Command virtualkubelet is a small node agent: a provider in the shape of virtual-kubelet's that runs containers as
// processes, and Herald's packages that bring it pods and report their statuses.
//
// Provider has the methods of virtual-kubelet's PodLifecycleHandler and PodNotifier, without importing them. A provider
// that exists already takes its place unchanged.
//
//	virtualkubelet -kubeconfig node.kubeconfig -node-name virtual
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/machine"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

// PodLifecycleHandler is the interface of that name in github.com/virtual-kubelet/virtual-kubelet/node.
type PodLifecycleHandler interface {
	CreatePod(ctx context.Context, pod *v1.Pod) error
	UpdatePod(ctx context.Context, pod *v1.Pod) error
	DeletePod(ctx context.Context, pod *v1.Pod) error
	GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	GetPodStatus(ctx context.Context, namespace, name string) (*v1.PodStatus, error)
	GetPods(ctx context.Context) ([]*v1.Pod, error)
}

// PodNotifier is the interface of that name in github.com/virtual-kubelet/virtual-kubelet/node.
type PodNotifier interface {
	NotifyPods(ctx context.Context, notify func(*v1.Pod))
}

var (
	_ PodLifecycleHandler = (*Provider)(nil)
	_ PodNotifier         = (*Provider)(nil)
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig with the identity of the node")
	nodeName := flag.String("node-name", "virtual", "name of the node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *nodeName); err != nil {
		fmt.Fprintln(os.Stderr, "virtualkubelet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, nodeName string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // the status manager paces itself
	client, err := kubeapi.New(config)
	if err != nil {
		return err
	}
	registration, err := newNode(client, nodeName)
	if err != nil {
		return err
	}

	provider := NewProvider()
	pods := pod.NewManager()
	statuses, err := status.New(status.Config{API: client, Pods: pods, Deletion: provider})
	if err != nil {
		return err
	}
	assigned, err := source.NewAPI(source.APIConfig{
		ListerWatcher: client.PodsOnNode(nodeName), NodeName: nodeName, WaitForNode: registration.WaitForRegistration,
	})
	if err != nil {
		return err
	}
	updates, err := source.NewMux(source.MuxConfig{Sources: []source.Source{assigned}})
	if err != nil {
		return err
	}

	dispatcher := &dispatcher{pods: pods, statuses: statuses, provider: provider}
	provider.NotifyPods(ctx, func(pod *v1.Pod) { statuses.SetPodStatus(pod, pod.Status) })
	return runAll(ctx, registration.Run, statuses.Run, updates.Run, func(ctx context.Context) error {
		for update := range updates.Updates() {
			for _, p := range update.Pods {
				dispatcher.handle(ctx, update.Op, p)
			}
			update.Ack()
		}
		return provider.Stop(context.WithoutCancel(ctx))
	})
}

func newNode(client *kubeapi.Client, nodeName string) (*node.Node, error) {
	host, err := machine.New(machine.Config{DataDir: os.TempDir(), Version: "v0.1.0"})
	if err != nil {
		return nil, err
	}
	return node.New(node.Config{NodeName: nodeName, MachineInfo: host.Info, API: client, Reconnect: client.CloseConnections})
}

// dispatcher passes the changes of pods to the components.
type dispatcher struct {
	pods     *pod.Manager
	statuses *status.Manager
	provider *Provider
}

// handle updates the pod manager first, so that every reader finds the new pod, and then the provider.
func (d *dispatcher) handle(ctx context.Context, op source.Op, p *v1.Pod) {
	if op == source.OpRemove { // the object is gone
		d.pods.RemovePod(p)
		report(d.provider.DeletePod(ctx, p))
		return
	}
	d.pods.UpdatePod(p)
	switch {
	case p.DeletionTimestamp != nil:
		go func() { // other pods need not wait for the grace period of this one
			report(d.provider.DeletePod(ctx, p))
			d.statuses.TerminatePod(p) // sends the final status, then deletes the object
		}()
	case op == source.OpReconcile || derive.IsTerminal(p.Status.Phase):
		d.statuses.Reconcile(p)
	case op == source.OpAdd:
		if err := d.provider.CreatePod(ctx, p); err != nil {
			d.statuses.SetPodStatus(p, v1.PodStatus{Phase: v1.PodFailed, Reason: "ProviderFailed", Message: err.Error()})
		}
	default:
		report(d.provider.UpdatePod(ctx, p))
	}
}

// PodCouldHaveRunningContainers implements status.DeletionSafety.
func (p *Provider) PodCouldHaveRunningContainers(uid podid.UID) bool { return p.isRunning(uid) }

// PodResourcesAreReclaimed implements status.DeletionSafety.
func (p *Provider) PodResourcesAreReclaimed(pod *v1.Pod, _ *v1.PodStatus) bool {
	return !p.isRunning(podid.UID(pod.UID))
}

func report(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "virtualkubelet:", err)
	}
}

// runAll runs the functions until ctx ends or one of them fails, and returns when all have returned.
func runAll(ctx context.Context, functions ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error)
	for _, function := range functions {
		go func() { results <- function(ctx) }()
	}
	var all error
	for range functions {
		if err := <-results; err != nil && !errors.Is(err, context.Canceled) {
			all = errors.Join(all, err)
		}
		cancel()
	}
	return all
}

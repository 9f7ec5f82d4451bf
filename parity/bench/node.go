package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/parity/containerd"
)

const maxConcurrentCreates = 16

// node is a node of the cluster with its pods and an administrator's client.
type node struct {
	env    *Environment
	name   string
	client kubernetes.Interface
	pods   []*v1.Pod // as they were created
	// runtime is that of an agent; nil without one.
	runtime *containerd.Containerd
}

// newNode creates a node with pods.
func (e *Environment) newNode(ctx context.Context, pods int) (*node, error) {
	n, err := e.reserveNode()
	if err != nil {
		return nil, err
	}
	if _, err := e.ControlPlane.CreateNode(ctx, n.name); err != nil {
		return nil, err
	}
	n.pods, err = n.createPods(ctx, pods, threeContainerPod)
	return n, err
}

// reserveNode chooses a name for a node that an agent will register.
func (e *Environment) reserveNode() (*node, error) {
	e.nodeCount++
	client, err := kubernetes.NewForConfig(withProtobuf(e.ControlPlane.AdminConfig()))
	if err != nil {
		return nil, fmt.Errorf("create admin client: %w", err)
	}
	return &node{env: e, name: fmt.Sprintf("bench-%d", e.nodeCount), client: client}, nil
}

// createPods creates pods on the node, several at a time.
func (n *node) createPods(ctx context.Context, count int, pod func(name string, uid types.UID) *v1.Pod) ([]*v1.Pod, error) {
	pods, errs := make([]*v1.Pod, count), make([]error, count)
	var group sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentCreates)
	for i := range count {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			p := pod(fmt.Sprintf("%s-%d", n.name, i), "")
			p.Spec.NodeName = n.name
			pods[i], errs[i] = n.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("create pods of node %s: %w", n.name, err)
	}
	return pods, nil
}

// watch lists the node's pods and watches them from there on.
func (n *node) watch(ctx context.Context) (watch.Interface, []*v1.Pod, error) {
	options := metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name}
	list, err := n.client.CoreV1().Pods("default").List(ctx, options)
	if err != nil {
		return nil, nil, fmt.Errorf("list pods of node %s: %w", n.name, err)
	}
	// A busy API server closes the watch of a slow reader; RetryWatcher resumes it.
	events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, watchOptions metav1.ListOptions) (watch.Interface, error) {
			watchOptions.FieldSelector = options.FieldSelector
			return n.client.CoreV1().Pods("default").Watch(ctx, watchOptions)
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watch pods of node %s: %w", n.name, err)
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return events, pods, nil
}

// connection describes the path from a node's status manager to the API server.
type connection struct {
	// delay is added to each request.
	delay time.Duration
	// qps and burst are the client's rate limits. Without qps there is no limit.
	qps   float32
	burst int
}

// clientConfig returns the configuration of a manager's client, and a script that records its requests.
func (n *node) clientConfig(conn connection) (*rest.Config, *fault.Injector) {
	script := fault.NewInjector()
	if conn.delay > 0 {
		script.Add(fault.On("*", "/pods/").Delay(conn.delay))
	}
	config := withProtobuf(n.env.ControlPlane.NodeConfig(n.name))
	config.Wrap(script.Wrap)
	if conn.qps > 0 {
		config.QPS, config.Burst = conn.qps, conn.burst
	}
	return config, script
}

// withProtobuf selects the content types that the kubelet's client uses by default.
func withProtobuf(config *rest.Config) *rest.Config {
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

const runtimeName = "containerd"

func containerID(i int) string { return fmt.Sprintf("%064d", i) }

// runningStatus returns the status of a pod with three ready containers.
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
			ContainerID: runtimeName + "://" + containerID(i), Ready: true, Started: &started,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}

// withRestartCount returns the status with another restart count: a change of low priority.
func withRestartCount(s v1.PodStatus, count int) v1.PodStatus {
	s = *s.DeepCopy()
	s.ContainerStatuses[1].RestartCount = int32(count)
	return s
}

func isReady(s *v1.PodStatus) bool {
	for i := range s.Conditions {
		if s.Conditions[i].Type == v1.PodReady {
			return s.Conditions[i].Status == v1.ConditionTrue
		}
	}
	return false
}

func threeContainerPod(name string, uid types.UID) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid}}
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
	for i := range 3 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example/app:1", ReadinessProbe: probe,
		})
	}
	return p
}

// servingPod returns a pod that passes its readiness and liveness probes, each with a period of one second, as soon as
// it runs.
func servingPod(name string, uid types.UID) *v1.Pod {
	probe := func(path string) *v1.Probe {
		get := &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}
		return &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: get}, PeriodSeconds: 1}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"serve"},
			ReadinessProbe: probe("/readyz"), LivenessProbe: probe("/healthz"),
		}}},
	}
}

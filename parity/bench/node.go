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

// creators is how many pods are created at a time.
const creators = 16

// node is a node of the cluster, the administrator's view of it, and the pods that were bound to it.
type node struct {
	lab    *Lab
	name   string
	client kubernetes.Interface
	pods   []*v1.Pod // as they were created
}

// newNode makes a node with that many pods.
func (l *Lab) newNode(ctx context.Context, pods int) (*node, error) {
	n, err := l.nameNode()
	if err != nil {
		return nil, err
	}
	if _, err := l.Cluster.CreateNode(ctx, n.name); err != nil {
		return nil, err
	}
	n.pods, err = n.create(ctx, pods, threeContainers)
	return n, err
}

// nameNode finds a name for a node that somebody else will make.
func (l *Lab) nameNode() (*node, error) {
	l.serial++
	client, err := kubernetes.NewForConfig(inProtobuf(l.Cluster.AdminConfig()))
	if err != nil {
		return nil, fmt.Errorf("make the administrator's client: %w", err)
	}
	return &node{lab: l, name: fmt.Sprintf("bench-%d", l.serial), client: client}, nil
}

// create makes pods on the node, several at a time.
func (n *node) create(ctx context.Context, count int, pod func(name string, uid types.UID) *v1.Pod) ([]*v1.Pod, error) {
	pods, errs := make([]*v1.Pod, count), make([]error, count)
	var all sync.WaitGroup
	room := make(chan struct{}, creators)
	for i := range count {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			p := pod(fmt.Sprintf("%s-%d", n.name, i), "")
			p.Spec.NodeName = n.name
			pods[i], errs[i] = n.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("create the pods of %s: %w", n.name, err)
	}
	return pods, nil
}

// watch follows the node's pods from their present state on, which it returns.
func (n *node) watch(ctx context.Context) (watch.Interface, []*v1.Pod, error) {
	mine := metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name}
	list, err := n.client.CoreV1().Pods("default").List(ctx, mine)
	if err != nil {
		return nil, nil, fmt.Errorf("list the pods of %s: %w", n.name, err)
	}
	// A busy API server closes the watch of a reader that is too slow; this one goes on where it was.
	events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = mine.FieldSelector
			return n.client.CoreV1().Pods("default").Watch(ctx, options)
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watch the pods of %s: %w", n.name, err)
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return events, pods, nil
}

// line is the way from a node's manager to the API server.
type line struct {
	// delay is added to each request.
	delay time.Duration
	// qps and burst are the client's own limits; no qps means none.
	qps   float32
	burst int
}

// connect makes the settings of a manager's client, and takes notes of its requests.
func (n *node) connect(l line) (*rest.Config, *fault.Script) {
	script := fault.NewScript()
	if l.delay > 0 {
		script.Add(fault.On("*", "/pods/").Delay(l.delay))
	}
	config := inProtobuf(n.lab.Cluster.NodeConfig(n.name))
	config.Wrap(script.Wrap)
	if l.qps > 0 {
		config.QPS, config.Burst = l.qps, l.burst
	}
	return config, script
}

// inProtobuf makes a client speak as the kubelet's does by default.
func inProtobuf(config *rest.Config) *rest.Config {
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

const runtimeName = "containerd"

func containerID(i int) string { return fmt.Sprintf("%064d", i) }

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
			ContainerID: runtimeName + "://" + containerID(i), Ready: true, Started: &started,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}

// restarted is the status with another restart count: a change that nobody waits for.
func restarted(s v1.PodStatus, count int) v1.PodStatus {
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

// servingPod has a readiness and a liveness probe every second, and answers them as soon as it runs.
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

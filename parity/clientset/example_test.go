// Package clientset_test shows how to use packages status and pod/mirror with a client-go clientset.
package clientset_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// Adapter implements the API interfaces of packages status and pod/mirror with a client-go clientset.
//
// A clientset sleeps and retries when the API server responds with 429 and Retry-After. Package kubeapi does not, so that one
// throttled request does not delay the others.
type Adapter struct {
	Clientset kubernetes.Interface
}

var (
	_ status.API = Adapter{}
	_ mirror.API = Adapter{}
)

// GetPod reads the pod from the API server.
func (a Adapter) GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	return a.Clientset.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// CreatePod creates the pod.
func (a Adapter) CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	return a.Clientset.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// DeletePod deletes the pod without grace period if it has this UID.
func (a Adapter) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &uid}}
	return a.Clientset.CoreV1().Pods(namespace).Delete(ctx, name, options)
}

// PatchPodStatus applies a strategic merge patch to the status subresource.
func (a Adapter) PatchPodStatus(
	ctx context.Context, namespace, name string, patch []byte,
) (*metav1.PartialObjectMetadata, error) {
	patched, err := a.Clientset.CoreV1().Pods(namespace).Patch(
		ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: patched.ObjectMeta}, nil
}

// GetNode reads the Node object.
func (a Adapter) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	return a.Clientset.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// A clientset is enough to create the mirror pods of static pods.
func Example_mirror() {
	ctx, cancel := context.WithCancel(context.Background())
	clientset := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}})
	created := observe(clientset, "create")

	pods := pod.NewManager()
	pods.AddPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "etcd-n1", UID: "9f3c",
		Annotations: map[string]string{podid.SourceAnnotation: "file", podid.HashAnnotation: "9f3c"},
	}, Spec: v1.PodSpec{NodeName: "n1"}})
	reconciler, err := mirror.New(mirror.Config{
		NodeName: "n1", Pods: pods, API: Adapter{clientset},
		Terminating:        func(podid.FullName) bool { return false },
		StaticSourcesReady: func() bool { return true },
	})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = reconciler.Run(ctx) })

	mirrorPod := (<-created).(clienttesting.CreateAction).GetObject().(*v1.Pod)
	fmt.Println(mirrorPod.Namespace, mirrorPod.Name, mirrorPod.Annotations[podid.MirrorAnnotation], mirrorPod.OwnerReferences[0].Name)
	cancel()
	running.Wait()
	// Output: kube-system etcd-n1 9f3c n1
}

// A clientset is enough to write pod statuses.
func Example_status() {
	ctx, cancel := context.WithCancel(context.Background())
	web := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"},
		Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main"}}},
	}
	clientset := fake.NewClientset(web)
	patched := observe(clientset, "patch")

	pods := pod.NewManager()
	pods.AddPod(web)
	manager, err := status.New(status.Config{API: Adapter{clientset}, Pods: pods, Deletion: nothingRuns{}})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = manager.Run(ctx) })
	manager.SetPodStatus(web, v1.PodStatus{Phase: v1.PodRunning})

	patch := (<-patched).(clienttesting.PatchAction)
	cancel()
	running.Wait() // Run sends what is queued before it returns
	stored, err := clientset.CoreV1().Pods("default").Get(context.Background(), "web", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(patch.GetNamespace(), patch.GetName(), patch.GetSubresource(), stored.Status.Phase)
	// Output: default web status Running
}

// observe returns a channel that receives the pod requests with this verb, before the clientset handles them.
func observe(clientset *fake.Clientset, verb string) <-chan clienttesting.Action {
	actions := make(chan clienttesting.Action, 10)
	clientset.PrependReactor(verb, "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		actions <- action
		return false, nil, nil
	})
	return actions
}

// nothingRuns implements status.DeletionSafety for pods without containers.
type nothingRuns struct{}

func (nothingRuns) PodCouldHaveRunningContainers(podid.UID) bool { return false }

func (nothingRuns) PodResourcesAreReclaimed(*v1.Pod, *v1.PodStatus) bool { return true }

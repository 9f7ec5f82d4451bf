package heraldtest

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// NewPod returns a pod in the namespace default, with one container named main, restart policy Always, and its name as UID.
// The options, such as [OnNode], are applied in order.
func NewPod(name string, options ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID(name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways,
			Containers:    []v1.Container{{Name: "main", Image: "example.test/main"}},
		},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

// Static makes the pod a static pod from the source. Its configuration hash is its UID.
func Static(source podid.Source) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, podid.SourceAnnotation, string(source))
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, podid.HashAnnotation, string(pod.UID))
	}
}

// OnNode binds the pod to a node.
func OnNode(nodeName string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.NodeName = nodeName }
}

// WithContainers replaces the pod's containers.
func WithContainers(containers ...v1.Container) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Containers = containers }
}

// EventuallyTimeout is how long Eventually waits. It only ends a hang, so it is generous.
const EventuallyTimeout = 2 * time.Minute

// Eventually calls condition until it returns nil, and fails the test with its last error after EventuallyTimeout.
func Eventually(tb testing.TB, condition func() error) {
	tb.Helper()
	deadline := time.Now().Add(EventuallyTimeout)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("condition not met within %v: %v", EventuallyTimeout, err)
		}
		select {
		case <-tb.Context().Done():
			tb.Fatalf("test ended while waiting: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

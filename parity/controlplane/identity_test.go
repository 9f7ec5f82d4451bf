package controlplane_test

import (
	"context"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// patchStatus does what an agent does all day.
func patchStatus(ctx context.Context, client kubernetes.Interface, pod *v1.Pod) error {
	patch := []byte(`{"metadata":{"uid":"` + string(pod.UID) + `"},"status":{"phase":"Running"}}`)
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(
		ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func TestANodeMayWriteTheStatusOfItsOwnPodsOnly(t *testing.T) {
	mine, other := createPod(t, "a"), createPod(t, "b")
	client := newClient(t, shared.NodeConfig("a"))
	if err := patchStatus(soon(t), client, mine); err != nil {
		t.Errorf("its own pod: %v", err)
	}
	if err := patchStatus(soon(t), client, other); !apierrors.IsForbidden(err) {
		t.Errorf("another node's pod: %v", err)
	}
}

func TestANodeMayListItsOwnPodsOnly(t *testing.T) {
	mine := createPod(t, "a")
	createPod(t, "b")
	pods := newClient(t, shared.NodeConfig("a")).CoreV1().Pods(v1.NamespaceAll)
	if _, err := pods.List(soon(t), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("all pods: %v", err)
	}
	own, err := pods.List(soon(t), metav1.ListOptions{FieldSelector: "spec.nodeName=a"})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, pod := range own.Items {
		found = found || pod.UID == mine.UID
		if pod.Spec.NodeName != "a" {
			t.Errorf("pod %s is on node %s", pod.Name, pod.Spec.NodeName)
		}
	}
	if !found {
		t.Errorf("pod %s is not among its %d pods", mine.Name, len(own.Items))
	}
}

func TestCreateNodeReturnsTheNodeThatIsThere(t *testing.T) {
	first, err := shared.CreateNode(soon(t), "again")
	if err != nil {
		t.Fatal(err)
	}
	second, err := shared.CreateNode(soon(t), "again")
	if err != nil || first.UID == "" || second.UID != first.UID {
		t.Fatalf("%v and %v, %v", first, second, err)
	}
}

func TestKubeconfigsArePrivateAndCompleteInThemselves(t *testing.T) {
	asNode, err := shared.NodeKubeconfig("a")
	if err != nil {
		t.Fatal(err)
	}
	for path, user := range map[string]string{asNode: "system:node:a", shared.AdminKubeconfig(): "herald-test-admin"} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		requireUser(t, newClient(t, config), user)
	}
}

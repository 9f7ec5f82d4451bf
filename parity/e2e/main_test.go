// Package e2e_test runs Herald's components against a real etcd, kube-apiserver and kubectl, with the permissions of a node.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// cluster is the control plane that the tests share. Each test has its own node and pod names. Parallel tests run after all
// others: sequential tests may kill the API server, parallel ones may not.
var cluster *recorder.Cluster

func TestMain(m *testing.M) {
	if config := os.Getenv(agentEnv); config != "" {
		os.Exit(runAgent(config))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if cluster, err = recorder.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// admin returns a client with all permissions, for the actions of users and controllers.
func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	return recorder.NewClient(t, cluster.AdminConfig())
}

// kubectl runs kubectl as administrator and returns its output.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return recorder.Kubectl(t, cluster.AdminKubeconfig(), args...)
}

// newPod returns a pod that is bound to the node and not created yet.
func newPod(name, nodeName string, mutate ...func(*v1.Pod)) *v1.Pod {
	pod := heraldtest.NewPod(name, heraldtest.OnNode(nodeName), heraldtest.WithContainers(v1.Container{Name: "main", Image: "web"}))
	pod.UID = "" // the API server sets it
	for _, change := range mutate {
		change(pod)
	}
	return pod
}

// createPod creates a pod as administrator, and deletes it when the test ends.
func createPod(t *testing.T, client kubernetes.Interface, pod *v1.Pod) *v1.Pod {
	t.Helper()
	created, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		options := forceDelete()
		options.Preconditions = &metav1.Preconditions{UID: &created.UID}
		_ = client.CoreV1().Pods("default").Delete(context.WithoutCancel(t.Context()), created.Name, options) // it may be gone
	})
	return created
}

// forceDelete returns options without a grace period.
func forceDelete() metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: new(int64)} }

// deletePods deletes the mirrors that are left when the agent has stopped, so that the test can run again.
func deletePods(t *testing.T, nodeName string) {
	t.Helper()
	ctx, ofNode := context.WithoutCancel(t.Context()), metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName}
	if err := admin(t).CoreV1().Pods("default").DeleteCollection(ctx, forceDelete(), ofNode); err != nil {
		t.Error(err)
	}
}

// writeManifest writes the manifest of a static pod atomically.
func writeManifest(t *testing.T, dir, name, image string) {
	t.Helper()
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - {name: main, image: %q}\n", name, image)
	temporary := filepath.Join(dir, "."+name)
	if err := os.WriteFile(temporary, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/parity/controlplane"
)

// shared is the control plane of all tests that leave one in good order.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		beVictim(dir)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	binaries, err := controlplane.Build(context.Background(), os.Stderr)
	if err == nil {
		shared, err = controlplane.Start(context.Background(), controlplane.Config{Binaries: binaries})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "etcd:\n%s\n\nkube-apiserver:\n%s\n", shared.Etcd.LogTail(), shared.APIServer.LogTail())
	}
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "after all is stopped:", err)
		return 1
	}
	return code
}

func newClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// soon bounds what has to work.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// createPod creates a pod that is bound to a node, as the administrator.
func createPod(t *testing.T, node string) *v1.Pod {
	t.Helper()
	if _, err := shared.CreateNode(soon(t), node); err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main", Image: "none"}}},
	}
	pods := newClient(t, shared.AdminConfig()).CoreV1().Pods(v1.NamespaceDefault)
	created, err := pods.Create(soon(t), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// createConfigMap creates an object of no meaning, as the administrator.
func createConfigMap(t *testing.T) *v1.ConfigMap {
	t.Helper()
	configMaps := newClient(t, shared.AdminConfig()).CoreV1().ConfigMaps(v1.NamespaceDefault)
	created, err := configMaps.Create(soon(t), newConfigMap(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func newConfigMap() *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "any-"}}
}

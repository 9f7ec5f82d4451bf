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

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/controlplane"
)

// shared is the control plane of all tests that leave it running.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerDir); dir != "" {
		runOwner(dir)
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
		fmt.Fprintln(os.Stderr, "after Stop:", err)
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

// testContext returns a context with a deadline that only ends a hang.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// createPod creates a pod that is bound to a node, as administrator.
func createPod(t *testing.T, node string) *v1.Pod {
	t.Helper()
	if _, err := shared.CreateNode(testContext(t), node); err != nil {
		t.Fatal(err)
	}
	pod := heraldtest.NewPod("", heraldtest.OnNode(node), func(pod *v1.Pod) { pod.GenerateName = "pod-" })
	pods := newClient(t, shared.AdminConfig()).CoreV1().Pods(v1.NamespaceDefault)
	created, err := pods.Create(testContext(t), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// createConfigMap creates an arbitrary object, as administrator.
func createConfigMap(t *testing.T) *v1.ConfigMap {
	t.Helper()
	configMaps := newClient(t, shared.AdminConfig()).CoreV1().ConfigMaps(v1.NamespaceDefault)
	created, err := configMaps.Create(testContext(t), newConfigMap(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func newConfigMap() *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "any-"}}
}

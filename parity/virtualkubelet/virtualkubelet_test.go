// Package virtualkubelet_test runs examples/virtualkubelet as a program on a real API server, with a node's credentials.
package virtualkubelet_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/program"
)

const nodeName = "virtual"

func TestProvider(t *testing.T) {
	cluster := controlplane.ForTest(t)
	start(t, cluster)
	client, err := kubernetes.NewForConfig(cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	heraldtest.Eventually(t, func() error { return nodeReady(t.Context(), client) })

	tests := map[string]struct {
		command []string
		policy  v1.RestartPolicy
		want    v1.PodPhase
		reason  string
	}{
		"succeeds":    {command: []string{"true"}, want: v1.PodSucceeded},
		"fails":       {command: []string{"false"}, want: v1.PodFailed},
		"cannotstart": {command: []string{"/no/such/program"}, want: v1.PodFailed},
		"runs":        {command: []string{"sleep", "3600"}, want: v1.PodRunning},
		"restarts":    {command: []string{"true"}, policy: v1.RestartPolicyAlways, want: v1.PodFailed, reason: "ProviderFailed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods := client.CoreV1().Pods(metav1.NamespaceDefault)
			pod := newPod(name, test.command, test.policy)
			if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			heraldtest.Eventually(t, func() error {
				got, err := pods.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if got.Status.Phase != test.want || got.Status.Reason != test.reason {
					return fmt.Errorf("got phase %s, reason %q; want %s, %q", got.Status.Phase, got.Status.Reason, test.want, test.reason)
				}
				return nil
			})
			if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			heraldtest.Eventually(t, func() error {
				got, err := pods.Get(t.Context(), name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("pod still exists: %v, %w", got, err)
			})
		})
	}
}

// start runs the example until the test ends and requires that it exits cleanly.
func start(t *testing.T, cluster *controlplane.ControlPlane) {
	t.Helper()
	kubeconfig, err := cluster.NodeKubeconfig(nodeName)
	if err != nil {
		t.Fatal(err)
	}
	path, err := program.Build(t.Context(), t.TempDir(), "examples/virtualkubelet")
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, path, "-kubeconfig", kubeconfig, "-node-name", nodeName)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	command.Stderr = t.Output()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		interrupt()
		if err := command.Wait(); command.ProcessState.ExitCode() != 0 {
			t.Errorf("virtualkubelet: %v", err)
		}
	})
}

func nodeReady(ctx context.Context, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not ready", nodeName)
}

func newPod(name string, command []string, policy v1.RestartPolicy) *v1.Pod {
	if policy == "" {
		policy = v1.RestartPolicyNever
	}
	return heraldtest.NewPod(name, heraldtest.OnNode(nodeName), func(pod *v1.Pod) {
		pod.UID = ""
		pod.Spec.RestartPolicy = policy
		pod.Spec.Containers[0].Command = command
		pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		// No service account token is needed.
		pod.Spec.AutomountServiceAccountToken = new(bool)
	})
}

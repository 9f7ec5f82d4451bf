// Package metrics_test runs the same pods on the real kubelet and on `herald run`, compares the metrics that both serve, and lets a real
// Prometheus scrape both, to evaluate what dashboards and alerts ask for.
package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// hangTimeout only ends a hang: a busy machine must not fail a test.
const hangTimeout = 6 * time.Minute

// podSpec is a pod and the state that it reaches.
type podSpec struct {
	spec    string
	static  bool
	settled func(*v1.Pod) bool
	// deleted deletes the pod when it has settled.
	deleted bool
}

// pods make both agents do what their metrics count.
var pods = map[string]podSpec{
	"web": {settled: isReady, spec: `
initContainers: [{name: prepare, args: [exit, "0"]}]
containers:
- name: main
  args: [serve]
  volumeMounts: [{name: settings, mountPath: /settings}, {name: scratch, mountPath: /scratch}]
  startupProbe: {exec: {command: [/testpod, exit, "0"]}, timeoutSeconds: 30, periodSeconds: 1}
  readinessProbe: {httpGet: {port: 8080, path: /readyz}, timeoutSeconds: 30, periodSeconds: 1}
  livenessProbe: {tcpSocket: {port: 8080}, timeoutSeconds: 30, periodSeconds: 1}
- {name: second, args: [pause]}
volumes: [{name: settings, configMap: {name: settings}}, {name: scratch, emptyDir: {}}]`},

	"unready": {settled: hasRun, spec: `
containers:
- {name: main, args: [pause], readinessProbe: {exec: {command: [/testpod, exit, "1"]}, timeoutSeconds: 30, periodSeconds: 1}}`},

	"crash":    {settled: hasRestarted, spec: `containers: [{name: main, args: [exit, "3"]}]`},
	"static":   {settled: isReady, static: true, spec: `containers: [{name: main, args: [pause]}]`},
	"no-image": {settled: isWaiting("ImagePullBackOff"), spec: `containers: [{name: main, image: "127.0.0.1:1/absent:1"}]`},
	"rejected": {settled: hasFailed, spec: `
nodeSelector: {no-node: has-this}
containers: [{name: main, args: [pause]}]`},
	"deleted": {settled: isReady, deleted: true, spec: `
terminationGracePeriodSeconds: 1
containers: [{name: main, args: [pause], lifecycle: {preStop: {exec: {command: [/testpod, exit, "0"]}}}}]`},
}

func isReady(pod *v1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}

func hasRun(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning }

func hasFailed(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodFailed }

func hasRestarted(pod *v1.Pod) bool {
	statuses := pod.Status.ContainerStatuses
	return len(statuses) > 0 && statuses[0].RestartCount > 0
}

func isWaiting(reason string) func(*v1.Pod) bool {
	return func(pod *v1.Pod) bool {
		statuses := pod.Status.ContainerStatuses
		return len(statuses) > 0 && statuses[0].State.Waiting != nil && statuses[0].State.Waiting.Reason == reason
	}
}

// testNode is the node and the namespace of one of the two agents.
type testNode struct {
	program agents.Program
	name    string // of the node and of the namespace
	admin   kubernetes.Interface
	runtime *containerd.Containerd
	agent   *agents.Agent
	running bool
}

// environment has both nodes and their control plane.
type environment struct {
	cluster         *recorder.Cluster
	kubelet, herald *testNode
}

// startNodes starts both agents and runs all pods on each.
func startNodes(t *testing.T) *environment {
	t.Helper()
	needs.Containers(t)
	cluster := recorder.ForTest(t)
	kubeletProgram, err := agents.BuildKubelet(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	heraldProgram, err := agents.BuildHerald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	admin := recorder.NewClient(t, cluster.AdminConfig())
	e := &environment{
		cluster: cluster,
		kubelet: &testNode{program: kubeletProgram, name: "kubelet", admin: admin},
		herald:  &testNode{program: heraldProgram, name: "herald", admin: admin},
	}
	nodes := []*testNode{e.kubelet, e.herald}
	t.Cleanup(func() { forEach(t, nodes, func(n *testNode) error { return n.stop(t) }) })
	forEach(t, nodes, func(n *testNode) error { return n.start(t.Context(), cluster) })
	forEach(t, nodes, func(n *testNode) error { return n.runPods(t.Context()) })
	return e
}

// forEach calls do for all nodes concurrently and ends the test on errors.
func forEach(t *testing.T, nodes []*testNode, do func(*testNode) error) {
	t.Helper()
	var running sync.WaitGroup
	for _, n := range nodes {
		running.Go(func() {
			if err := do(n); err != nil {
				t.Errorf("%s: %v", n.program, err)
			}
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func (n *testNode) start(ctx context.Context, cluster *recorder.Cluster) (err error) {
	if err := n.createNamespace(ctx); err != nil {
		return err
	}
	if n.runtime, err = containerd.Start(ctx, containerd.Config{}); err != nil {
		return err
	}
	n.agent, err = n.program.NewAgent(agents.Config{
		ControlPlane: cluster.ControlPlane, Containerd: n.runtime, NodeName: n.name, ServeHTTP: true,
	})
	if err != nil {
		return err
	}
	if err := n.agent.Start(ctx); err != nil {
		_ = n.agent.Kill() // it may have exited on its own
		return fmt.Errorf("%w; agent log:\n%s", err, n.agent.LogTail())
	}
	n.running = true
	return nil
}

// createNamespace does the work of the controller manager and creates the objects that the pods refer to.
func (n *testNode) createNamespace(ctx context.Context) error {
	core := n.admin.CoreV1()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, namespaceErr := core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: meta(n.name)}, metav1.CreateOptions{})
	_, accountErr := core.ServiceAccounts(n.name).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta("default")}, metav1.CreateOptions{})
	settings := &v1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"colour": "green"}}
	_, settingsErr := core.ConfigMaps(n.name).Create(ctx, settings, metav1.CreateOptions{})
	return errors.Join(namespaceErr, accountErr, settingsErr)
}

// stop stops what start has started. Containers stop before their cgroup is removed.
func (n *testNode) stop(t *testing.T) error {
	var errs []error
	if n.running {
		if t.Failed() {
			t.Logf("log of %s:\n%s", n.program, n.agent.LogTail())
		}
		errs = append(errs, n.agent.Stop())
	}
	if n.runtime != nil {
		errs = append(errs, n.runtime.Close())
	}
	if n.agent != nil {
		errs = append(errs, n.agent.RemoveCgroups())
	}
	return errors.Join(errs...)
}

// runPods creates all pods and waits until they have settled.
func (n *testNode) runPods(ctx context.Context) error {
	for name, spec := range pods {
		if err := n.create(ctx, name, spec); err != nil {
			return fmt.Errorf("create pod %s: %w", name, err)
		}
	}
	for name, spec := range pods {
		if err := n.await(ctx, name, spec); err != nil {
			return fmt.Errorf("pod %s: %w", name, err)
		}
	}
	return nil
}

func (n *testNode) create(ctx context.Context, name string, spec podSpec) error {
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: n.name},
	}
	if err := yaml.UnmarshalStrict([]byte(spec.spec), &pod.Spec); err != nil {
		return err
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].ImagePullPolicy = v1.PullIfNotPresent
			if containers[i].Image == "" {
				containers[i].Image = containerd.TestpodImage
			}
		}
	}
	if spec.static {
		content, err := yaml.Marshal(pod)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(n.agent.ManifestDir(), name+".yaml"), content, 0o600)
	}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName = n.name, "default"
	_, err := n.admin.CoreV1().Pods(n.name).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// await waits until the pod has settled, and until it is gone if it is deleted then.
func (n *testNode) await(ctx context.Context, name string, spec podSpec) error {
	if spec.static {
		name += "-" + n.name
	}
	api := n.admin.CoreV1().Pods(n.name)
	last := "not created"
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		pod, err := api.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // a mirror pod may not exist yet
		}
		last = fmt.Sprintf("%+v", pod.Status)
		return spec.settled(pod), nil
	})
	if err != nil {
		return fmt.Errorf("%w; its status is %s", err, last)
	}
	if !spec.deleted {
		return nil
	}
	if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := api.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		return err == nil && len(list.Items) == 0, nil
	})
}

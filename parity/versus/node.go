package versus

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/controlplane"
)

// The nodes.
const (
	steady  = "steady"  // nothing happens to it
	cut     = "cut"     // loses its API server
	lost    = "lost"    // its agent is gone for a while
	resumed = "resumed" // its agent and its runtime are restarted
)

const (
	namespace   = "default"
	hangTimeout = 6 * time.Minute // only ends a hang
)

// testNode is a node with Herald.
type testNode struct {
	*rig
	name    string
	runtime *containerd.Containerd
	faults  *fault.Injector
	proxy   *controlplane.Proxy
	agent   *agents.Agent
}

//go:embed rules/herald.yaml
var heraldRules []byte

const alertingConfig = `alerting:
  webhooks: [{name: receiver, url: "http://%s/herald/webhook"}]`

func (n *testNode) start(ctx context.Context) (err error) {
	n.faults = fault.NewInjector()
	if n.proxy, err = n.cluster.NewProxy(n.faults); err != nil {
		return err
	}
	kubeconfig, err := n.proxy.NodeKubeconfig(n.name)
	if err != nil {
		return err
	}
	if n.runtime, err = containerd.Start(ctx, containerd.Config{}); err != nil {
		return err
	}
	n.agent, err = n.herald.NewAgent(agents.Config{
		ControlPlane: n.cluster.ControlPlane, Containerd: n.runtime, NodeName: n.name, Kubeconfig: kubeconfig,
		HeraldConfig: fmt.Sprintf(alertingConfig, n.receiver.address),
	})
	if err != nil {
		return err
	}
	rules := filepath.Join(n.agent.Dir(), "alerts.d")
	if err := errors.Join(os.MkdirAll(rules, 0o700), os.WriteFile(filepath.Join(rules, "versus.yaml"), heraldRules, 0o600)); err != nil {
		return err
	}
	return n.agent.Start(ctx)
}

func (n *testNode) stop() error {
	var errs []error
	if n.agent != nil {
		_ = n.agent.Stop() // it may not run
	}
	if n.runtime != nil {
		errs = append(errs, n.runtime.Close())
	}
	if n.agent != nil {
		errs = append(errs, n.agent.RemoveCgroups())
	}
	return errors.Join(errs...)
}

// disconnect cuts the node off from the API server, until the returned function is called.
func (n *testNode) disconnect() (reconnect func()) {
	remove := n.faults.Add(fault.On("*", "").Hang())
	n.proxy.ResetConnections()
	return func() {
		remove()
		n.proxy.ResetConnections() // requests that hang are not answered any more
	}
}

// testPod is a pod of a node.
type testPod struct {
	*testNode
	name  string
	order string // the file of testpod obey
	ip    string
}

const (
	// obeying ends when and how the test says.
	obeying = `
terminationGracePeriodSeconds: 1
containers:
- {name: main, args: [obey, /orders/order], resources: {limits: {memory: 48Mi}}, volumeMounts: [{name: orders, mountPath: /orders}]}
volumes: [{name: orders, hostPath: {path: %s}}]`

	// serving is ready when the test says.
	serving = `
terminationGracePeriodSeconds: 1
containers:
- name: main
  args: [serve]
  readinessProbe: {httpGet: {port: 8080, path: /readyz}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 30}
volumes: [{name: unused, hostPath: {path: %s}}]`
)

// create creates a pod and waits until it is ready.
func (n *testNode) create(ctx context.Context, name, spec string) (*testPod, error) {
	dir := filepath.Join(n.dir, "pods", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if err := yaml.UnmarshalStrict(fmt.Appendf(nil, spec, dir), &pod.Spec); err != nil {
		return nil, err
	}
	pod.Spec.NodeName = n.name
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image, pod.Spec.Containers[i].ImagePullPolicy = containerd.TestpodImage, v1.PullIfNotPresent
	}
	api := n.admin.CoreV1().Pods(namespace)
	if _, err := api.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	p := &testPod{testNode: n, name: name, order: filepath.Join(dir, "order")}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		found, err := api.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // asked again
		}
		p.ip = found.Status.PodIP
		return isReady(found), nil
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s is not ready: %w", name, err)
	}
	n.logf("pod %s runs on %s", name, n.name)
	return p, nil
}

func isReady(pod *v1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}

// tell replaces the orders of the container.
func (p *testPod) tell(orders string) error {
	file := p.order + ".new"
	if err := os.WriteFile(file, []byte(orders), 0o644); err != nil {
		return err
	}
	return os.Rename(file, p.order)
}

// times returns when the container started or ended.
func (p *testPod) times(what string) (times []time.Time) {
	content, _ := os.ReadFile(p.order + "." + what) // absent until the first time
	for line := range bytes.Lines(content) {
		if nanoseconds, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64); err == nil {
			times = append(times, time.Unix(0, nanoseconds))
		}
	}
	return times
}

// awaitTimes waits until the container has started or ended that often, and returns when it did so last.
func (p *testPod) awaitTimes(ctx context.Context, what string, count int) (at time.Time, err error) {
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, hangTimeout, true, func(context.Context) (bool, error) {
		times := p.times(what)
		if len(times) >= count {
			at = times[len(times)-1]
		}
		return len(times) >= count, nil
	})
	if err != nil {
		err = fmt.Errorf("pod %s: %s %d times: %w", p.name, what, count, err)
	}
	return at, err
}

// setReady lets readiness probes succeed or fail, and returns since when.
func (p *testPod) setReady(ctx context.Context, ready bool) (time.Time, error) {
	code := http.StatusServiceUnavailable
	if ready {
		code = http.StatusOK
	}
	p.logf("pod %s: ready=%v", p.name, ready)
	_, err := fetch(ctx, http.MethodPost, fmt.Sprintf("http://%s:8080/readyz?code=%d", p.ip, code))
	return time.Now(), err
}

// delete deletes the pod and returns when it is gone.
func (p *testPod) delete(ctx context.Context) error {
	api := p.admin.CoreV1().Pods(namespace)
	if err := api.Delete(ctx, p.name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := api.Get(ctx, p.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

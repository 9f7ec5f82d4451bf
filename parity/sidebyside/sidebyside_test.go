// Package sidebyside_test runs the same pods on the real kubelet and on `herald run` at the same time, each on its own
// node of one control plane with its own containerd, and compares what both report to the cluster.
package sidebyside_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// maxConcurrentScenarios bounds how many pods start on both agents at once. More overload a machine with two cores.
const maxConcurrentScenarios = 20

func TestSideBySide(t *testing.T) {
	env := newEnvironment(t)
	t.Run("pods", func(t *testing.T) {
		queue := make(chan string)
		var workers sync.WaitGroup
		for range maxConcurrentScenarios {
			workers.Go(func() {
				for name := range queue {
					sc := scenarios[name]
					t.Run(name, func(t *testing.T) { env.compare(t, name, &sc) })
				}
			})
		}
		for _, slow := range []bool{true, false} {
			for name, sc := range scenarios {
				if sc.slow == slow {
					queue <- name
				}
			}
		}
		close(queue)
		workers.Wait()
	})
	t.Run("node", env.compareNodes)
	if !t.Failed() && env.compared.Load() == int64(len(scenarios)) { // not with -run for some of them
		requireAllSeen(t, env.seen)
	}
}

// convergeTimeout is how long events and restart counts may take to agree after both sides have settled. It only ends a
// hang.
const convergeTimeout = hangTimeout

func (e *environment) compare(t *testing.T, name string, sc *scenario) {
	t.Helper()
	e.compared.Add(1)
	if err := e.run(t.Context(), name, sc); err != nil {
		t.Fatal(err)
	}
	var problems []string
	for deadline := time.Now().Add(convergeTimeout); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		var err error
		if problems, err = e.problems(t.Context(), name, sc); err != nil {
			t.Fatal(err)
		}
		if len(problems) == 0 {
			return
		}
	}
	t.Errorf("pod %s differs:\n%s\nhistory on the kubelet:\n%s\nhistory on herald:\n%s",
		name, strings.Join(problems, "\n"), e.kubelet.History(sc.nameOn(e.kubelet, name)), e.herald.History(sc.nameOn(e.herald, name)))
}

// run runs the pod on both nodes at once.
func (e *environment) run(ctx context.Context, name string, sc *scenario) error {
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, n := range e.nodes() {
		both.Go(func() { errs[i] = sc.run(ctx, name, n) })
	}
	both.Wait()
	return errors.Join(errs...)
}

// problems returns the current differences between the two nodes.
func (e *environment) problems(ctx context.Context, name string, sc *scenario) ([]string, error) {
	kubeletName, heraldName := sc.nameOn(e.kubelet, name), sc.nameOn(e.herald, name)
	kubeletVersions, heraldVersions := sc.versions(e.kubelet, name), sc.versions(e.herald, name)
	kubeletPod, heraldPod := sameRestartCount(lastByRestarts(kubeletVersions, sc.settled), lastByRestarts(heraldVersions, sc.settled))
	if kubeletPod == nil {
		return []string{"no settled version with the same number of restarts"}, nil
	}
	kubeletEvents, err := e.kubelet.eventsOf(ctx, kubeletName)
	if err != nil {
		return nil, err
	}
	heraldEvents, err := e.herald.eventsOf(ctx, heraldName)
	if err != nil {
		return nil, err
	}
	theirs, err := e.kubelet.view(kubeletPod, kubeletEvents)
	if err != nil {
		return nil, err
	}
	ours, err := e.herald.view(heraldPod, heraldEvents)
	if err != nil {
		return nil, err
	}
	for _, reason := range []string{sc.event, sc.kubeletEvent} {
		if !theirs.hasEvent(reason) {
			return []string{"event " + reason + " is not recorded by the kubelet"}, nil
		}
	}
	if !ours.hasEvent(sc.event) {
		return []string{"event " + sc.event + " is not recorded by herald"}, nil
	}
	problems := unintendedDifferences(theirs, ours, e.markSeen)
	// The kubelet may repeat its own: a kill that is interrupted is told again.
	repeated := repeatedEvents(heraldVersions[len(heraldVersions)-1], heraldEvents)
	problems = append(problems, differences(view{}, repeated.without(repeatedEvents(kubeletVersions[len(kubeletVersions)-1], kubeletEvents)))...)
	return append(problems, invalidHistory(kubeletVersions, heraldVersions)...), nil
}

// compareNodes compares what both Nodes report about the machine and the container runtime.
func (e *environment) compareNodes(t *testing.T) {
	var kubelet, herald *v1.Node
	heraldtest.Eventually(t, func() (err error) {
		if kubelet, err = e.kubelet.comparableNode(t.Context()); err != nil {
			return err
		}
		if herald, err = e.herald.comparableNode(t.Context()); err != nil {
			return err
		}
		if diff := cmp.Diff(kubelet, herald); diff != "" {
			return fmt.Errorf("(-kubelet +herald):\n%s", diff)
		}
		return nil
	})
	if containerd.DefaultVersion() == containerd.Version2 && len(kubelet.Status.RuntimeHandlers) == 0 {
		t.Error("got no runtime handlers, want those of containerd 2")
	}
	if len(kubelet.Status.Images) == 0 || len(kubelet.Status.Capacity) < 4 {
		t.Errorf("got images %v, capacity %v", kubelet.Status.Images, kubelet.Status.Capacity)
	}
}

// comparableNode returns the part of the Node that must be the same for both agents: RES-1, RES-6, RES-7, RES-8, RES-11, RES-12. The
// conditions of pressure depend on the moment and, in these tests, on different thresholds of the disk.
func (n *testNode) comparableNode(ctx context.Context) (*v1.Node, error) {
	node, err := n.Admin.CoreV1().Nodes().Get(ctx, nodeName(n.program), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	status := node.Status
	status.NodeInfo.KubeletVersion = ""
	common := &v1.Node{Status: v1.NodeStatus{
		NodeInfo: status.NodeInfo, RuntimeHandlers: status.RuntimeHandlers, Features: status.Features,
		Capacity: status.Capacity, Allocatable: status.Allocatable,
	}}
	delete(common.Status.Allocatable, v1.ResourceEphemeralStorage)
	for _, image := range status.Images {
		slices.Sort(image.Names)
		common.Status.Images = append(common.Status.Images, image)
	}
	common.Status.Addresses = status.Addresses[:min(1, len(status.Addresses))] // Herald reports the addresses of both families, and the names differ
	for _, condition := range status.Conditions {
		common.Status.Conditions = append(common.Status.Conditions, v1.NodeCondition{Type: condition.Type})
	}
	common.Labels = node.Labels
	delete(common.Labels, v1.LabelHostname)
	return common, nil
}

// markSeen records that an intended difference occurred.
func (e *environment) markSeen(difference *intendedDifference) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[difference] = true
}

// lastByRestarts returns the last matching versions of a pod, by the number of container restarts.
func lastByRestarts(versions []*v1.Pod, is condition) map[int32]*v1.Pod {
	found := map[int32]*v1.Pod{}
	for _, version := range versions {
		if is(version) {
			found[restarts(version)] = version
		}
	}
	return found
}

func restarts(p *v1.Pod) (sum int32) {
	for _, c := range recorder.ContainerStatuses(&p.Status) {
		sum += c.RestartCount
	}
	return sum
}

// sameRestartCount returns the versions with the lowest number of restarts that both sides have shown: a side that
// writes slowly may skip one.
func sameRestartCount(kubelet, herald map[int32]*v1.Pod) (theirs, ours *v1.Pod) {
	for count, pod := range kubelet {
		if herald[count] != nil && (theirs == nil || count < restarts(theirs)) {
			theirs, ours = pod, herald[count]
		}
	}
	return theirs, ours
}

// testNode is the node and the namespace of one of the two agents.
type testNode struct {
	*recorder.Recorder
	program agents.Program
	runtime *containerd.Containerd
	agent   *agents.Agent
	running bool // the agent is running
}

// environment has the kubelet's node and Herald's.
type environment struct {
	kubelet, herald *testNode
	compared        atomic.Int64 // scenarios

	mu   sync.Mutex // guards seen
	seen map[*intendedDifference]bool
}

func (e *environment) nodes() []*testNode { return []*testNode{e.kubelet, e.herald} }

// newEnvironment starts everything, both nodes at once.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	needs.Containers(t)
	cluster := recorder.ForTest(t)
	kubelet, err := agents.BuildKubelet(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	herald, err := agents.BuildHerald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	createRuntimeClasses(t, cluster)
	e := &environment{kubelet: &testNode{program: kubelet}, herald: &testNode{program: herald}, seen: map[*intendedDifference]bool{}}
	createNamespace(t, cluster, namespaceName(kubelet))
	createNamespace(t, cluster, namespaceName(herald))
	createUnboundPods(t, cluster, kubelet)
	createUnboundPods(t, cluster, herald)
	t.Cleanup(func() { e.forEachNode(t, func(n *testNode) error { return n.stop(t) }) })
	e.forEachNode(t, func(n *testNode) error { return n.start(t.Context(), cluster) })
	if t.Failed() {
		t.FailNow()
	}
	e.kubelet.Recorder = recorder.Watch(t, cluster, nodeName(kubelet), namespaceName(kubelet))
	e.herald.Recorder = recorder.Record(t, cluster, nodeName(herald), namespaceName(herald))
	return e
}

// forEachNode calls do for both nodes concurrently and fails the test on errors.
func (e *environment) forEachNode(t *testing.T, do func(*testNode) error) {
	t.Helper()
	var both sync.WaitGroup
	for _, n := range e.nodes() {
		both.Go(func() {
			if err := do(n); err != nil {
				t.Errorf("%s: %v", n.program, err)
			}
		})
	}
	both.Wait()
}

// nodeName and namespaceName return words that occur in no message otherwise, so that they can be replaced.
func nodeName(program agents.Program) string { return "node-of-" + program.String() }

func namespaceName(program agents.Program) string { return "pods-of-" + program.String() }

func (n *testNode) start(ctx context.Context, cluster *recorder.Cluster) (err error) {
	if n.runtime, err = containerd.Start(ctx, containerd.Config{}); err != nil {
		return err
	}
	for name, user := range imageUsers {
		if err := n.runtime.ImportTestpodOfUser(ctx, userImage(name), user); err != nil {
			return err
		}
	}
	place := agents.Config{
		ControlPlane: cluster.ControlPlane, Containerd: n.runtime, NodeName: nodeName(n.program),
		HeraldConfig: "alerting: {enabled: false}", // the kubelet has neither events nor conditions of alerts
	}
	if n.agent, err = n.program.NewAgent(place); err != nil {
		return err
	}
	if err := n.agent.Start(ctx); err != nil {
		_ = n.agent.Kill() // it may have exited on its own
		return fmt.Errorf("%w; agent log:\n%s", err, n.agent.LogTail())
	}
	n.running = true
	return nil
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

// createRuntimeClasses creates a class of the second handler and one whose handler no node has.
func createRuntimeClasses(t *testing.T, cluster *recorder.Cluster) {
	t.Helper()
	classes := recorder.NewClient(t, cluster.AdminConfig()).NodeV1().RuntimeClasses()
	for name, handler := range map[string]string{"second-handler": containerd.SecondHandler, "unknown-handler": "absent"} {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
		if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// createUnboundPods creates the pods of scenarios that begin without a node. The API server admits a pod only while its runtime
// class exists, and the kubelet's cache may lag behind: the class is deleted before the agents start.
func createUnboundPods(t *testing.T, cluster *recorder.Cluster, program agents.Program) {
	t.Helper()
	client := recorder.NewClient(t, cluster.AdminConfig())
	classes := client.NodeV1().RuntimeClasses()
	for name, sc := range scenarios {
		if !sc.unbound {
			continue
		}
		pod, err := sc.pod(name, program)
		if err != nil {
			t.Fatal(err)
		}
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: *pod.Spec.RuntimeClassName}, Handler: "absent"}
		if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		heraldtest.Eventually(t, func() error { // the API server's admission has a cache too
			_, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
		if err := classes.Delete(t.Context(), class.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// createNamespace does the work of the controller manager and creates the objects that the pods refer to.
func createNamespace(t *testing.T, cluster *recorder.Cluster, name string) {
	t.Helper()
	core := recorder.NewClient(t, cluster.AdminConfig()).CoreV1()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, err := core.Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: meta(name)}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account := &v1.ServiceAccount{ObjectMeta: meta("default")}
	if _, err := core.ServiceAccounts(name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	settings := &v1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"colour": "green"}}
	if _, err := core.ConfigMaps(name).Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	passwords := &v1.Secret{ObjectMeta: meta("passwords"), Data: map[string][]byte{"door": []byte("sesame")}}
	if _, err := core.Secrets(name).Create(t.Context(), passwords, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Package beside_test gives the real kubelet and `herald run` the same pods at the same time, each on a node of one control
// plane with a containerd of its own, and compares what the cluster is told of them.
package sidebyside_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

func TestMain(m *testing.M) {
	// All pods at once: tests wait much more than they work.
	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestSideBySide(t *testing.T) {
	l := newEnvironment(t)
	t.Run("pods", func(t *testing.T) {
		for name, sc := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l.compare(t, name, &sc)
			})
		}
	})
	if !t.Failed() {
		requireAllSeen(t, l.seen)
	}
}

// afterwards is how long the rest may take to arrive when both sides have settled: events, and the same number of restarts.
const convergeTimeout = 30 * time.Second

func (l *environment) compare(t *testing.T, name string, sc *scenario) {
	t.Helper()
	if err := l.run(t.Context(), name, sc); err != nil {
		t.Fatal(err)
	}
	var problems []string
	for deadline := time.Now().Add(convergeTimeout); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var err error
		if problems, err = l.problems(t.Context(), name, sc); err != nil {
			t.Fatal(err)
		}
		if len(problems) == 0 {
			return
		}
	}
	t.Errorf("the cluster is told otherwise of pod %s:\n%s\nwhat was seen of the kubelet's:\n%s\nwhat was seen of herald's:\n%s",
		name, strings.Join(problems, "\n"), l.kubelet.Story(sc.nameOn(l.kubelet, name)), l.herald.Story(sc.nameOn(l.herald, name)))
}

// play lets the pod live on both sides at once.
func (l *environment) run(ctx context.Context, name string, sc *scenario) error {
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, s := range l.nodes() {
		both.Go(func() { errs[i] = sc.run(ctx, name, s) })
	}
	both.Wait()
	return errors.Join(errs...)
}

// problems are what differs now between the two sides.
func (l *environment) problems(ctx context.Context, name string, sc *scenario) ([]string, error) {
	their, our := sc.nameOn(l.kubelet, name), sc.nameOn(l.herald, name)
	theirPod, ourPod := sameRestartCount(l.kubelet.settled(their, sc.settled), l.herald.settled(our, sc.settled))
	if theirPod == nil {
		return []string{"they have settled after different numbers of restarts"}, nil
	}
	theirs, err := l.kubelet.view(ctx, theirPod)
	if err != nil {
		return nil, err
	}
	ours, err := l.herald.view(ctx, ourPod)
	if err != nil {
		return nil, err
	}
	problems := unintendedDifferences(theirs, ours, l.markSeen)
	return append(problems, invalidHistory(l.kubelet.Versions(their), l.herald.Versions(our))...), nil
}

// meet notes that an intended difference was met.
func (l *environment) markSeen(difference *intendedDifference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[difference] = true
}

// settled are the last versions of the pod that are so, by how often its containers were restarted until then.
func (s *testNode) settled(name string, is condition) map[int32]*v1.Pod {
	found := map[int32]*v1.Pod{}
	for _, version := range s.Versions(name) {
		if is(version) {
			found[restarts(version)] = version
		}
	}
	return found
}

func restarts(p *v1.Pod) (sum int32) {
	for _, c := range recorder.ContainersOf(&p.Status) {
		sum += c.RestartCount
	}
	return sum
}

// samePoint is the first point of a pod's life that both sides have shown: who is slow to write may skip one.
func sameRestartCount(kubelet, herald map[int32]*v1.Pod) (theirs, ours *v1.Pod) {
	for count, pod := range kubelet {
		if herald[count] != nil && (theirs == nil || count < restarts(theirs)) {
			theirs, ours = pod, herald[count]
		}
	}
	return theirs, ours
}

// side is one of the two agents: its node, and its namespace.
type testNode struct {
	*recorder.Recorder
	program agents.Program
	runtime *containerd.Containerd
	agent   *agents.Agent
	running bool // the agent does
}

// lab is the kubelet's side and Herald's.
type environment struct {
	kubelet, herald *testNode

	mu   sync.Mutex // guards met
	seen map[*intendedDifference]bool
}

func (l *environment) nodes() []*testNode { return []*testNode{l.kubelet, l.herald} }

// newLab starts everything, both sides at once.
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
	l := &environment{kubelet: &testNode{program: kubelet}, herald: &testNode{program: herald}, seen: map[*intendedDifference]bool{}}
	createNamespace(t, cluster, namespaceName(kubelet))
	createNamespace(t, cluster, namespaceName(herald))
	t.Cleanup(func() { l.forEachNode(t, func(s *testNode) error { return s.stop(t) }) })
	l.forEachNode(t, func(s *testNode) error { return s.start(t.Context(), cluster) })
	if t.Failed() {
		t.FailNow()
	}
	l.kubelet.Recorder = recorder.Watch(t, cluster, nodeName(kubelet), namespaceName(kubelet))
	l.herald.Recorder = recorder.Record(t, cluster, nodeName(herald), namespaceName(herald))
	return l
}

// onBoth does it on both sides at once, and fails the test for what did not work.
func (l *environment) forEachNode(t *testing.T, do func(*testNode) error) {
	t.Helper()
	var both sync.WaitGroup
	for _, s := range l.nodes() {
		both.Go(func() {
			if err := do(s); err != nil {
				t.Errorf("%s: %v", s.program, err)
			}
		})
	}
	both.Wait()
}

// nodeOf and namespaceOf are words that no message has otherwise, so that they can be told from it.
func nodeName(program agents.Program) string { return "node-of-" + program.String() }

func namespaceName(program agents.Program) string { return "pods-of-" + program.String() }

func (s *testNode) start(ctx context.Context, cluster *recorder.Cluster) (err error) {
	if s.runtime, err = containerd.Start(ctx, containerd.Config{}); err != nil {
		return err
	}
	place := agents.Config{ControlPlane: cluster.ControlPlane, Containerd: s.runtime, NodeName: nodeName(s.program)}
	if s.agent, err = s.program.NewAgent(place); err != nil {
		return err
	}
	if err := s.agent.Start(ctx); err != nil {
		_ = s.agent.Kill() // it may have ended by itself
		return fmt.Errorf("%w; the end of its log:\n%s", err, s.agent.LogTail())
	}
	s.running = true
	return nil
}

// close ends what open has started. Containers go before the cgroup that they are in.
func (s *testNode) stop(t *testing.T) error {
	var errs []error
	if s.running {
		if t.Failed() {
			t.Logf("the end of %s's log:\n%s", s.program, s.agent.LogTail())
		}
		errs = append(errs, s.agent.Stop())
	}
	if s.runtime != nil {
		errs = append(errs, s.runtime.Close())
	}
	if s.agent != nil {
		errs = append(errs, s.agent.RemoveCgroups())
	}
	return errors.Join(errs...)
}

// createNamespace does what the controller manager would, and makes what the pods refer to.
func createNamespace(t *testing.T, cluster *recorder.Cluster, name string) {
	t.Helper()
	core := recorder.ClientOf(t, cluster.AdminConfig()).CoreV1()
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

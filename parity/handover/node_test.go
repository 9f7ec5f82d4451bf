package handover_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

const (
	nodeName  = "changing-hands"
	namespace = "handover"
)

// node is one node with two agents, of which at most one runs.
type node struct {
	*recorder.Recorder
	t               *testing.T
	containerd      *containerd.Containerd
	runtime         *cri.Runtime
	kubelet, herald *agent
	newHerald       func() *agent // call it when the Node is registered
	running         *agent
}

type agent struct {
	*agents.Agent
	name string
}

func newNode(t *testing.T) *node {
	t.Helper()
	needs.Containers(t)
	kubelet, err := agents.BuildKubelet(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	herald, err := agents.BuildHerald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cluster := recorder.ForTest(t)
	n := &node{t: t, containerd: containerd.ForTest(t)}
	n.createNamespace(cluster)
	place := agents.Config{ControlPlane: cluster.ControlPlane, Containerd: n.containerd, NodeName: nodeName, Handover: true}
	n.kubelet = n.newAgent(kubelet, place)
	n.newHerald = func() *agent {
		place.NodeIP = n.internalIP()
		return n.newAgent(herald, place)
	}
	t.Cleanup(n.close)
	n.runtime, err = cri.New(cri.Config{
		Endpoint: n.containerd.Endpoint(), Provisioner: runtimesuite.Provisioner{}, Root: n.podsDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Recorder = recorder.Watch(t, cluster, nodeName, namespace)
	return n
}

// internalIP returns the address of the Node object.
func (n *node) internalIP() string {
	n.t.Helper()
	found, err := n.Admin.CoreV1().Nodes().Get(n.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, address := range found.Status.Addresses {
		if address.Type == v1.NodeInternalIP {
			return address.Address
		}
	}
	n.t.Fatal("the Node has no InternalIP")
	return ""
}

func (n *node) newAgent(program agents.Program, place agents.Config) *agent {
	n.t.Helper()
	prepared, err := program.NewAgent(place)
	if err != nil {
		n.t.Fatal(err)
	}
	return &agent{Agent: prepared, name: program.String()}
}

// close stops what newNode and start have started. Containers stop before their cgroup is removed.
func (n *node) close() {
	if n.t.Failed() && n.running != nil {
		n.t.Logf("end of the log of %s:\n%s", n.running.name, n.running.LogTail())
	}
	var errs []error
	if n.running != nil {
		errs = append(errs, n.running.Stop())
	}
	if n.runtime != nil {
		errs = append(errs, n.runtime.Close())
	}
	errs = append(errs, n.containerd.Close(), n.kubelet.RemoveCgroups())
	if err := errors.Join(errs...); err != nil {
		n.t.Error(err)
	}
}

func (n *node) start(a *agent) {
	n.t.Helper()
	if n.running != nil {
		n.t.Fatalf("%s is still running", n.running.name)
	}
	if err := a.Start(n.t.Context()); err != nil {
		_ = a.Kill() // it may have exited on its own
		n.t.Fatal(err)
	}
	n.running = a
}

func (n *node) stop(a *agent) {
	n.t.Helper()
	n.running = nil
	if err := a.Stop(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) createNamespace(cluster *recorder.Cluster) {
	n.t.Helper()
	core, ctx := recorder.NewClient(n.t, cluster.AdminConfig()).CoreV1(), n.t.Context()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	_, namespaceErr := core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: meta(namespace)}, metav1.CreateOptions{})
	_, accountErr := core.ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta("default")}, metav1.CreateOptions{})
	settings := &v1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"colour": "green"}}
	_, settingsErr := core.ConfigMaps(namespace).Create(ctx, settings, metav1.CreateOptions{})
	passwords := &v1.Secret{ObjectMeta: meta("passwords"), Data: map[string][]byte{"door": []byte("sesame")}}
	_, passwordsErr := core.Secrets(namespace).Create(ctx, passwords, metav1.CreateOptions{})
	if err := errors.Join(namespaceErr, accountErr, settingsErr, passwordsErr); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) create(pod *v1.Pod) {
	n.t.Helper()
	if _, err := n.Admin.CoreV1().Pods(namespace).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) writeManifest(pod *v1.Pod) {
	n.t.Helper()
	content, err := yaml.Marshal(pod)
	if err == nil {
		err = os.WriteFile(filepath.Join(n.kubelet.ManifestDir(), pod.Name+".yaml"), content, 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// awaitPods waits until the pods are settled, and returns their names in the API server.
func (n *node) awaitPods(pods ...*v1.Pod) (names []string) {
	n.t.Helper()
	for _, pod := range pods {
		name := pod.Name
		if strings.HasPrefix(name, "static") {
			name += "-" + nodeName
		}
		n.Await(name, "settled", isSettled)
		names = append(names, name)
	}
	return names
}

func (n *node) podsDir() string { return filepath.Join(n.kubelet.RootDir(), "pods") }

// podDir returns the pod's directory. The UID of a static pod is the hash of its mirror pod.
func (n *node) podDir(pod *v1.Pod) string { return filepath.Join(n.podsDir(), string(localUID(pod))) }

func localUID(pod *v1.Pod) podid.UID {
	if hash, isMirror := pod.Annotations[podid.MirrorAnnotation]; isMirror {
		return podid.UID(hash)
	}
	return podid.UID(pod.UID)
}

// latest returns the newest version of the pod.
func (n *node) latest(name string) *v1.Pod {
	n.t.Helper()
	return n.Await(name, "created", func(*v1.Pod) bool { return true })
}

func (n *node) inspect(pod *v1.Pod) *observed.Pod {
	n.t.Helper()
	found, err := n.runtime.InspectPod(n.t.Context(), localUID(pod))
	if err != nil {
		n.t.Fatal(err)
	}
	return found
}

func (n *node) sandboxes(pod *v1.Pod) (ids []string) {
	for _, sandbox := range n.inspect(pod).Sandboxes {
		ids = append(ids, sandbox.ID)
	}
	return ids
}

// exec runs testpod in the pod's main container.
func (n *node) exec(pod *v1.Pod, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	output, code, err := n.runtime.Exec(ctx, n.inspect(pod).Newest("main").ID, append([]string{"/testpod"}, args...))
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, output)
	}
	return string(output), err
}

// restartContainer ends the main container of a pod, as a crash would, and waits until the agent has restarted it.
func (n *node) restartContainer(name string) {
	n.t.Helper()
	pod := n.latest(name)
	count := pod.Status.ContainerStatuses[0].RestartCount
	if err := n.runtime.StopContainer(n.t.Context(), nil, plan.Stop{ID: n.inspect(pod).Newest("main").ID}); err != nil {
		n.t.Fatal(err)
	}
	n.Await(name, "restarted", func(pod *v1.Pod) bool {
		return isSettled(pod) && pod.Status.ContainerStatuses[0].RestartCount == count+1
	})
}

// state is what must not change when the node changes hands.
type state struct {
	pod        *v1.Pod
	sandboxes  []string
	containers []string
}

func (n *node) snapshot(names []string) map[string]state {
	n.t.Helper()
	states := map[string]state{}
	for _, name := range names {
		s := state{pod: n.latest(name)}
		found := n.inspect(s.pod)
		for _, sandbox := range found.Sandboxes {
			s.sandboxes = append(s.sandboxes, fmt.Sprintf("%s ready %t", sandbox.ID, sandbox.Ready))
		}
		for i := range found.Containers { // older instances may be garbage
			if c := &found.Containers[i]; found.Newest(c.Name) == c {
				s.containers = append(s.containers, fmt.Sprintf("%s %s %v", c.Name, c.ID, c.State))
			}
		}
		slices.Sort(s.containers)
		states[name] = s
	}
	return states
}

func (s state) compare(other state) (problems []string) {
	if s.pod.UID != other.pod.UID {
		problems = append(problems, fmt.Sprintf("UID: was %s, is %s", s.pod.UID, other.pod.UID))
	}
	if diff := cmp.Diff(s.sandboxes, other.sandboxes); diff != "" {
		problems = append(problems, "sandboxes: "+diff)
	}
	if diff := cmp.Diff(s.containers, other.containers); diff != "" {
		problems = append(problems, "containers: "+diff)
	}
	return problems
}

func compareStatus(before, after *v1.PodStatus) []string {
	if diff := cmp.Diff(before, after); diff != "" {
		return []string{"status: " + diff}
	}
	return nil
}

// ignoreKubelet undoes what the kubelet changes after each of its restarts: it forgets the addresses of terminated pods, starts
// the status of a static pod anew, and reads pod-level resources from the cgroups, also of pods that had none in their status.
func ignoreKubelet(before *v1.Pod, changed *v1.PodStatus) *v1.PodStatus {
	after := changed.DeepCopy()
	after.Resources, after.AllocatedResources = before.Status.Resources, before.Status.AllocatedResources
	if derive.IsTerminal(before.Status.Phase) && after.PodIP == "" {
		after.PodIP, after.PodIPs = before.Status.PodIP, before.Status.PodIPs
	}
	if !podid.IsMirror(before) {
		return after
	}
	after.StartTime = before.Status.StartTime
	for i := range after.Conditions {
		after.Conditions[i].LastTransitionTime = recorder.PodCondition(&before.Status, after.Conditions[i].Type).LastTransitionTime
	}
	for i := range after.ContainerStatuses {
		after.ContainerStatuses[i].VolumeMounts = before.Status.ContainerStatuses[i].VolumeMounts
	}
	return after
}

// awaitAge waits until the containers of the pods have run for some time. The kubelet probes containers again that were started
// less than ten seconds before it, and does not report them as ready meanwhile.
func (n *node) awaitAge(names []string) {
	n.t.Helper()
	const age = 11 * time.Second
	for _, name := range names {
		for _, status := range n.latest(name).Status.ContainerStatuses {
			if running := status.State.Running; running != nil {
				time.Sleep(time.Until(running.StartedAt.Add(age)))
			}
		}
	}
}

// awaitQuiet waits until the API server has shown no change of a pod for some time.
func (n *node) awaitQuiet() {
	n.t.Helper()
	for deadline := time.Now().Add(recorder.Timeout); time.Now().Before(deadline); {
		_, changed := n.Events()
		select {
		case <-changed:
		case <-time.After(quietTime):
			return
		}
	}
	n.t.Fatal("pods keep changing")
}

// quietTime is longer than the kubelet takes to report a change that it has noticed.
const quietTime = 2500 * time.Millisecond

func (n *node) versionCounts(names []string) map[string]int {
	counts := map[string]int{}
	for _, name := range names {
		counts[name] = len(n.Versions(name))
	}
	return counts
}

// tokens returns the token of each running pod of the API server.
func (n *node) tokens(names []string) map[string]string {
	n.t.Helper()
	tokens := map[string]string{}
	for _, name := range names {
		pod := n.latest(name)
		if pod.Status.Phase != v1.PodRunning || podid.IsMirror(pod) {
			continue
		}
		content, err := os.ReadFile(n.tokenFile(pod))
		if err != nil {
			n.t.Fatal(err)
		}
		tokens[name] = string(content)
	}
	return tokens
}

func (n *node) tokenFile(pod *v1.Pod) string {
	return filepath.Join(n.podDir(pod), "volumes/kubernetes.io~projected", tokenVolume, "token")
}

// awaitNewTokens waits until the agent has renewed each token, which shows that it has synced the pod. Containers must see the
// new token.
func (n *node) awaitNewTokens(t *testing.T, names []string, old map[string]string) {
	t.Helper()
	heraldtest.Eventually(t, func() error {
		for name, token := range n.tokens(names) {
			if token == old[name] {
				return fmt.Errorf("token of pod %s is not renewed", name)
			}
		}
		return nil
	})
	for name, token := range n.tokens(names) {
		if got, err := n.exec(n.latest(name), "cat", tokenPath+"/token"); err != nil || got != token {
			t.Errorf("pod %s: container does not see the new token: %v", name, err)
		}
	}
}

// awaitLog waits until an instance has written its log to where log shippers look for it.
func (n *node) awaitLog(t *testing.T, pod *v1.Pod, restarts int32) {
	t.Helper()
	dir := fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, localUID(pod))
	file := filepath.Join(n.kubelet.LogsDir(), dir, "main", fmt.Sprintf("%d.log", restarts))
	heraldtest.Eventually(t, func() error {
		content, err := os.ReadFile(file)
		if err == nil && len(content) == 0 {
			err = fmt.Errorf("log %s is empty", file)
		}
		return err
	})
}

// awaitGone waits until nothing of the pod is left on the machine. The kubelet keeps the records of exited containers for a minute.
func (n *node) awaitGone(t *testing.T, pod *v1.Pod) {
	t.Helper()
	heraldtest.Eventually(t, func() error {
		if found := n.inspect(pod); found.Running() || n.running == n.herald && len(found.Sandboxes)+len(found.Containers) > 0 {
			return fmt.Errorf("pod %s is still in the runtime", pod.Name)
		}
		cgroups, err := filepath.Glob("/sys/fs/cgroup/*" + n.kubelet.CgroupRoot() + "/kubepods/*/*" + string(pod.UID))
		if err != nil || len(cgroups) > 0 {
			return fmt.Errorf("cgroups of pod %s: %v, %w", pod.Name, cgroups, err)
		}
		if _, err := os.Lstat(n.podDir(pod)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("directory of pod %s still exists: %w", pod.Name, err)
		}
		return nil
	})
}

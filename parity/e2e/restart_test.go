package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// agentHarness is a node with pods in all lifecycles and an agent process that reports them.
type agentHarness struct {
	t        *testing.T
	nodeName string
	admin    kubernetes.Interface
	recorder *recorder.Recorder
	faults   *fault.Injector
	config   agentConfig

	podNames []string
	steps    map[string]int // current step by pod name
	schedule []string       // names of the pods whose step increases next

	agent  *exec.Cmd
	stdin  io.WriteCloser
	stdout bytes.Buffer // of the last process: the reported steps, if it exited regularly
	stderr bytes.Buffer // of all processes
}

// newAgentHarness creates four pods of each lifecycle. The seed determines the order of their steps.
func newAgentHarness(t *testing.T, nodeName string, seed uint64) *agentHarness {
	t.Helper()
	if _, err := cluster.CreateNode(t.Context(), nodeName); err != nil {
		t.Fatal(err)
	}
	h := &agentHarness{
		t: t, nodeName: nodeName, admin: admin(t), recorder: recorder.Record(t, cluster, nodeName, ""), faults: fault.NewInjector(),
		steps:  map[string]int{},
		config: agentConfig{NodeName: nodeName, StateDir: filepath.Join(t.TempDir(), "state"), ManifestDir: t.TempDir()},
	}
	proxy, err := cluster.NewProxy(h.faults)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	if h.config.Kubeconfig, err = proxy.NodeKubeconfig(nodeName); err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Sorted(maps.Keys(lifecycles)) {
		for i := range 4 {
			h.addPod(kind, i)
		}
	}
	for _, name := range h.podNames {
		h.schedule = append(h.schedule, slices.Repeat([]string{name}, lastStep)...)
	}
	t.Logf("seed of the step order: %d", seed)
	rand.New(rand.NewPCG(seed, seed)).Shuffle(len(h.schedule), func(i, j int) {
		h.schedule[i], h.schedule[j] = h.schedule[j], h.schedule[i]
	})
	t.Cleanup(h.cleanUp)
	return h
}

// addPod creates a pod or the manifest of a static pod.
func (h *agentHarness) addPod(kind string, i int) {
	h.t.Helper()
	name := fmt.Sprintf("%s-%d-%s", kind, i, h.nodeName)
	h.podNames = append(h.podNames, name)
	if kind != "static" {
		createPod(h.t, h.admin, newPod(name, h.nodeName, func(pod *v1.Pod) { pod.Spec.RestartPolicy = lifecycles[kind].policy }))
		return
	}
	writeManifest(h.t, h.config.ManifestDir, fmt.Sprintf("static-%d", i), "web")
}

// cleanUp kills the agent and deletes the mirrors.
func (h *agentHarness) cleanUp() {
	if h.agent != nil {
		h.stopAgent(syscall.SIGKILL)
	}
	if strings.Contains(h.stderr.String(), "DATA RACE") {
		h.t.Error("the agent has a data race")
	}
	if h.t.Failed() {
		const size = 16 << 10
		output := h.stderr.Bytes()
		h.t.Logf("end of the output of the agent:\n%s", output[max(0, len(output)-size):])
	}
	deletePods(h.t, h.nodeName)
}

// startAgent starts the agent and sends it the step of each pod, as the container runtime on the node would.
func (h *agentHarness) startAgent() {
	h.t.Helper()
	config, err := json.Marshal(h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.agent = exec.CommandContext(h.t.Context(), os.Args[0])
	// By default, the race detector sleeps for a second at exit.
	h.agent.Env = append(os.Environ(), agentEnv+"="+string(config), "GORACE=atexit_sleep_ms=0")
	h.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the test is aborted
	h.stdout.Reset()
	h.agent.Stdout, h.agent.Stderr = &h.stdout, &h.stderr
	if h.stdin, err = h.agent.StdinPipe(); err != nil {
		h.t.Fatal(err)
	}
	if err := h.agent.Start(); err != nil {
		h.t.Fatal(err)
	}
	for _, name := range h.podNames {
		h.sendStep(name)
	}
}

// sendStep sends the step of one pod to the agent. An error means that the agent does not run.
func (h *agentHarness) sendStep(podName string) {
	_, _ = fmt.Fprintln(h.stdin, podName, h.steps[podName])
}

// stopAgent sends a signal to the agent, waits for it, and returns its exit code.
func (h *agentHarness) stopAgent(signal os.Signal) int {
	_ = h.agent.Process.Signal(signal)
	_ = h.agent.Wait() // an error if it was killed
	code := h.agent.ProcessState.ExitCode()
	h.agent = nil
	return code
}

// advance executes the next n steps of the schedule.
func (h *agentHarness) advance(n int) {
	h.t.Helper()
	n = min(n, len(h.schedule))
	for _, name := range h.schedule[:n] {
		h.steps[name]++
		if lifecycleOf(name).isDeleted && h.steps[name] == lastStep/2 {
			if err := h.admin.CoreV1().Pods("default").Delete(h.t.Context(), name, metav1.DeleteOptions{}); err != nil {
				h.t.Fatal(err)
			}
		}
		h.sendStep(name)
	}
	h.schedule = h.schedule[n:]
}

// awaitEvents waits for n more changes of the node's pods, or until the timeout.
func (h *agentHarness) awaitEvents(n int, timeout time.Duration) {
	deadline := time.After(timeout)
	start, _ := h.recorder.Events()
	for {
		count, changed := h.recorder.Events()
		if count >= start+n {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			return
		}
	}
}

// finish executes the remaining steps and waits until the API server shows the last step of every pod. It returns the
// normalized statuses.
func (h *agentHarness) finish() map[string]v1.PodStatus {
	h.t.Helper()
	h.advance(len(h.schedule))
	statuses := map[string]v1.PodStatus{}
	for _, name := range h.podNames {
		if lifecycleOf(name).isDeleted {
			h.recorder.AwaitDeleted(name)
			continue
		}
		last := h.recorder.Await(name, "in its last step", func(p *v1.Pod) bool { return shownStep(p) == lastStep })
		statuses[strings.TrimSuffix(name, "-"+h.nodeName)] = normalize(last)
	}
	return statuses
}

// shownStep returns the step that the pod's status shows.
func shownStep(p *v1.Pod) int {
	step, _, _ := recorder.ParseNumberedMessage(p.Status.Message)
	return step
}

// normalize returns the pod's status without the UIDs and times of this run.
func normalize(p *v1.Pod) v1.PodStatus {
	_, uid, _ := recorder.ParseNumberedMessage(p.Status.Message)
	status := p.Status.DeepCopy()
	status.StartTime = nil
	status.Message = recorder.NumberedMessage(lastStep, "")
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	for i := range status.ContainerStatuses {
		container := &status.ContainerStatuses[i]
		container.ContainerID = strings.Replace(container.ContainerID, string(uid), "UID", 1)
		if terminated := container.State.Terminated; terminated != nil {
			terminated.ContainerID = strings.Replace(terminated.ContainerID, string(uid), "UID", 1)
		}
	}
	return *status
}

// failWrites lets all status writes fail, and waits until the agent has written its checkpoint, which takes a second or two.
func (h *agentHarness) failWrites() (heal func()) {
	h.t.Helper()
	heal = h.faults.Add(fault.On("PATCH", "/pods/").Reply(503))
	before := h.readCheckpoint()
	h.advance(4)
	heraldtest.Eventually(h.t, func() error {
		if bytes.Equal(before, h.readCheckpoint()) {
			return errors.New("the checkpoint has not changed")
		}
		return nil
	})
	return heal
}

func (h *agentHarness) checkpointFile() string {
	return filepath.Join(h.config.StateDir, "pod-statuses")
}

// readCheckpoint returns the agent's checkpoint, or nil.
func (h *agentHarness) readCheckpoint() []byte {
	content, _ := os.ReadFile(h.checkpointFile()) // it may not exist yet
	return content
}

// A hundred kills at random moments lead to the same statuses as an undisturbed agent: I1..I9, I12, I13.
func TestF15_AgentKilled(t *testing.T) {
	t.Parallel()
	const kills, seed = 100, 15
	undisturbed := newAgentHarness(t, "unkilled", seed)
	undisturbed.startAgent()
	want := undisturbed.finish()

	h := newAgentHarness(t, "killed", seed)
	random := rand.New(rand.NewPCG(seed, kills))
	for kill := range kills {
		heal := func() {}
		h.startAgent()
		if kill%20 == 10 {
			heal = h.failWrites()
		} else {
			h.advance(1 + random.IntN(4))
			h.awaitEvents(random.IntN(4), 500*time.Millisecond)
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond) // a random moment
		}
		h.stopAgent(syscall.SIGKILL)
		heal()
	}
	h.startAgent()
	if diff := cmp.Diff(want, h.finish()); diff != "" {
		t.Fatalf("statuses differ (-undisturbed +killed):\n%s", diff)
	}
}

// A stopped agent sends all reported statuses before it exits.
func TestF16_AgentStopped(t *testing.T) {
	t.Parallel()
	h := newAgentHarness(t, "stopped", 16)
	h.startAgent()
	for _, name := range h.podNames { // including mirrors
		h.recorder.Await(name, "with a status", func(p *v1.Pod) bool { return p.Status.Message != "" })
	}
	for len(h.schedule) > 80 {
		first := h.schedule[slices.IndexFunc(h.schedule, func(name string) bool { return !lifecycleOf(name).isDeleted })]
		before := h.steps[first]
		h.advance(80)
		// Most of the other steps are not sent yet.
		h.recorder.Await(first, "in a later step", func(p *v1.Pod) bool { return shownStep(p) > before })
		if code := h.stopAgent(syscall.SIGTERM); code != 0 {
			t.Fatalf("got exit code %d, want 0", code)
		}
		h.checkAllSent()
		h.startAgent()
	}
	h.finish()
}

// checkAllSent fails the test if the API server shows an older step than the exited agent has reported.
func (h *agentHarness) checkAllSent() {
	h.t.Helper()
	list, err := h.recorder.List(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	var reported map[string]int
	if err := json.Unmarshal(h.stdout.Bytes(), &reported); err != nil {
		h.t.Fatalf("output of the agent: %q: %v", h.stdout.String(), err)
	}
	for _, p := range list.Items {
		if shown := shownStep(&p); shown < reported[p.Name] {
			h.t.Errorf("pod %s: got step %d, want %d as reported by the exited agent", p.Name, shown, reported[p.Name])
		}
	}
}

func TestF18_CorruptCheckpoint(t *testing.T) {
	t.Parallel()
	h := newAgentHarness(t, "corrupt", 18)
	for _, corrupt := range []func([]byte) []byte{
		func(content []byte) []byte { return content[:len(content)/2] },
		func([]byte) []byte { return nil },
		func(content []byte) []byte { return bytes.ReplaceAll(content, []byte("Running"), []byte("Pending")) },
	} {
		h.startAgent()
		h.awaitEvents(1, time.Second)
		heal := h.failWrites()
		h.stopAgent(syscall.SIGKILL)
		heal()
		if err := os.WriteFile(h.checkpointFile(), corrupt(h.readCheckpoint()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.startAgent()
	h.finish()
}

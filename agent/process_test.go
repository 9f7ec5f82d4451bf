package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/process"
	"github.com/heraldnode/herald/provision"
	"github.com/heraldnode/herald/source"
)

// nodeDirVariable makes the test binary run the agent of that node directory, as a process that can be killed.
const nodeDirVariable = "HERALD_TEST_NODE_DIR"

func runProcessAgent() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := nodeDir(os.Getenv(nodeDirVariable)).newAgent()
	if err == nil {
		err = a.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// nodeDir is a directory with everything that a node has: manifests, state, pods, logs, and the socket of the process runtime.
type nodeDir string

func (d nodeDir) path(name string) string { return filepath.Join(string(d), name) }

// newServer creates the process runtime. Its shims are this program, without the second that the race detector takes to exit.
func (d nodeDir) newServer() (*process.Server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return process.New(process.Config{
		Root: d.path("process"), Socket: d.path("cri.sock"), PodsRoot: d.path("pods"),
		Shim: []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", program},
	})
}

// newRuntime connects to the process runtime.
func (d nodeDir) newRuntime(config cri.Config) (*cri.Runtime, error) {
	config.Endpoint, config.Root, config.LogDir = "unix://"+d.path("cri.sock"), d.path("pods"), d.path("logs")
	return cri.New(config)
}

// processAgent is an agent with the components that its owner runs and closes.
type processAgent struct {
	*agent.Agent
	events  *broadcaster.Broadcaster
	runtime *cri.Runtime
	state   *checkpoint.Dir
}

// newAgent creates a standalone agent of real components.
func (d nodeDir) newAgent() (*processAgent, error) {
	events, err := broadcaster.New(broadcaster.Config{NodeName: nodeName, Scheme: kubeapi.NewScheme()})
	if err != nil {
		return nil, err
	}
	volumes, err := provision.New(provision.Config{Root: d.path("pods"), Events: events})
	if err != nil {
		return nil, err
	}
	runtime, err := d.newRuntime(cri.Config{Provisioner: volumes, Events: events})
	if err != nil {
		return nil, err
	}
	manifests, err := source.NewFile(source.FileConfig{Path: d.path("manifests"), NodeName: nodeName})
	if err != nil {
		return nil, err
	}
	state, err := checkpoint.Open(d.path("state"), checkpoint.Options{})
	if err != nil {
		return nil, err
	}
	a, err := agent.New(agent.Config{
		NodeName: nodeName, Sources: []source.Source{manifests}, Runtime: runtime, Volumes: volumes, State: state, Events: events,
	})
	return &processAgent{a, events, runtime, state}, err
}

func (a *processAgent) run(ctx context.Context) error {
	var recording sync.WaitGroup
	recording.Go(func() { _ = a.events.Run(ctx) })
	err := a.Run(ctx)
	recording.Wait()
	return errors.Join(err, a.runtime.Close(), a.state.Close())
}

// runtimePods returns the names of the pods in the runtime.
func (a *processAgent) runtimePods() []string {
	pods, err := a.runtime.ListPods(context.Background())
	if err != nil {
		return []string{err.Error()}
	}
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, strings.TrimSuffix(pod.Name.Name, "-"+nodeName))
	}
	slices.Sort(names)
	return names
}

func (a *processAgent) status(name string) v1.PodStatus {
	pod, found := a.Pods.GetPodByFullName(podid.FullName{Namespace: "default", Name: name + "-" + nodeName})
	if !found {
		return v1.PodStatus{}
	}
	status, _ := a.Statuses.GetPodStatus(pod.UID)
	return status
}

func (a *processAgent) container(name string) v1.ContainerStatus {
	if containers := a.status(name).ContainerStatuses; len(containers) == 1 {
		return containers[0]
	}
	return v1.ContainerStatus{}
}

// processHarness is a node with a running process runtime.
type processHarness struct {
	*testing.T
	nodeDir
}

func newProcessHarness(t *testing.T) *processHarness {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &processHarness{t, nodeDir(dir)}
	if err := os.Mkdir(h.path("manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	server, err := h.newServer()
	if err != nil {
		t.Fatal(err)
	}
	h.runInBackground("runtime", server.Run)
	h.Cleanup(h.stopAll)
	return h
}

// stopAll stops all processes, also those of a failed test.
func (h *processHarness) stopAll() {
	client, err := h.newRuntime(cri.Config{Provisioner: runtimesuite.Provisioner{}})
	if err != nil {
		h.Error(err)
		return
	}
	defer func() { _ = client.Close() }()
	pods, err := client.ListPods(context.Background())
	if err != nil {
		h.Error(err)
	}
	for _, pod := range pods {
		for _, sandbox := range pod.Sandboxes {
			if err := client.StopSandbox(context.Background(), sandbox.ID); err != nil {
				h.Error(err)
			}
		}
	}
}

// runInBackground calls run until the test ends.
func (h *processHarness) runInBackground(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	h.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			h.Errorf("%s: %v", name, err)
		}
	})
}

// writeManifest writes the manifest of a pod with one container that runs the shell script.
func (h *processHarness) writeManifest(name, restartPolicy, script string) {
	h.Helper()
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"hostNetwork":true,`+
		`"restartPolicy":%q,"terminationGracePeriodSeconds":1,`+
		`"containers":[{"name":"main","image":"host","command":["/bin/sh","-c",%q]}]}}`, name, restartPolicy, script)
	if err := os.WriteFile(h.path("manifests/"+name+".json"), []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
}

func (h *processHarness) removeManifests(names ...string) {
	h.Helper()
	for _, name := range names {
		if err := os.Remove(h.path("manifests/" + name + ".json")); err != nil {
			h.Fatal(err)
		}
	}
}

// eventually waits for the condition.
func (h *processHarness) eventually(description string, condition func() bool) {
	h.Helper()
	heraldtest.Eventually(h.T, func() error {
		if !condition() {
			return errors.New(description)
		}
		return nil
	})
}

// startAgentProcess starts an agent as its own process.
func (h *processHarness) startAgentProcess() *exec.Cmd {
	h.Helper()
	program, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	command := exec.CommandContext(h.Context(), program)
	command.Env = append(os.Environ(), nodeDirVariable+"="+string(h.nodeDir))
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		h.Fatal(err)
	}
	return command
}

// countLines returns the number of lines of a file, or 0 if it does not exist.
func (h *processHarness) countLines(file string) int {
	text, err := os.ReadFile(h.path(file))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "\n")
}

const (
	exitsOnTerm = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
	ignoresTerm = "trap '' TERM; while :; do sleep 0.05; done"
)

func TestAgent_ProcessRuntime(t *testing.T) {
	h := newProcessHarness(t)
	a, err := h.newAgent()
	if err != nil {
		t.Fatal(err)
	}
	h.runInBackground("agent", a.run)
	h.writeManifest("web", "Always", exitsOnTerm)
	h.writeManifest("stubborn", "Always", ignoresTerm)
	h.writeManifest("job", "Never", `printf 'no such table' >"$HERALD_TERMINATION_LOG"; exit 3`)
	h.writeManifest("crash", "Always", "exit 1")

	h.eventually("web is ready", func() bool { return a.status("web").Phase == v1.PodRunning && a.container("web").Ready })
	h.eventually("job failed with exit code and message", func() bool {
		terminated := a.container("job").State.Terminated
		return a.status("job").Phase == v1.PodFailed && terminated != nil && terminated.ExitCode == 3 && terminated.Message == "no such table"
	})
	h.eventually("crash backs off for 10s", func() bool {
		container := a.container("crash")
		waiting := container.State.Waiting
		return container.RestartCount == 1 && waiting != nil && waiting.Reason == "CrashLoopBackOff" &&
			strings.HasPrefix(waiting.Message, "back-off 10s ")
	})
	if err := a.Healthy(); err != nil {
		t.Errorf("Healthy: got %v, want nil", err)
	}
	h.eventually("stubborn is running", func() bool { return a.status("stubborn").Phase == v1.PodRunning })
	h.removeManifests("web", "stubborn", "job", "crash")
	h.eventually("all pods are removed", func() bool { return len(a.runtimePods()) == 0 })
}

func TestPW53_AgentKilled(t *testing.T) {
	h := newProcessHarness(t)
	pods := []string{"a", "b", "c", "d", "e"}
	for _, name := range pods {
		killed := h.startAgentProcess()
		h.writeManifest(name, "Always", "echo started >>"+h.path(name+".starts")+"; "+exitsOnTerm)
		h.eventually(name+" is started", func() bool { return h.countLines(name+".starts") > 0 }) // the agent may not know it yet
		if err := killed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = killed.Wait()
	}
	last := h.startAgentProcess()
	h.writeManifest("z", "Always", "echo started >>"+h.path("z.starts")+"; "+exitsOnTerm)
	h.eventually("z is started", func() bool { return h.countLines("z.starts") == 1 })
	h.removeManifests(append(pods, "z")...)
	h.eventually("all pods are removed", func() bool {
		logs, err := os.ReadDir(h.path("logs"))
		return err == nil && len(logs) == 0
	})
	for _, name := range pods {
		if starts := h.countLines(name + ".starts"); starts != 1 {
			t.Errorf("starts of %s: got %d, want 1", name, starts)
		}
	}
	if err := last.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := last.Wait(); err != nil {
		t.Errorf("agent after SIGTERM: got %v, want nil", err)
	}
}

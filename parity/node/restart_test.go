package node_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// component is a process that is killed while pods start, run and terminate.
type component struct {
	kill, restart func() error
}

func (h *harness) agentComponent() component {
	return component{func() error { return h.stopAgent(syscall.SIGKILL) }, h.startAgent}
}

func (h *harness) runtimeComponent() component {
	h.runtimeKilled = true
	return component{h.containerd.Kill, func() error { return h.containerd.Restart(h.t.Context()) }}
}

func (h *harness) apiServerComponent() component {
	server := h.cluster.APIServer
	return component{server.Kill, func() error { return server.Start(h.t.Context()) }}
}

// killAndRestart kills the component and restarts it after a pause.
func (h *harness) killAndRestart(c component, pause time.Duration) {
	h.t.Helper()
	if err := c.kill(); err != nil {
		h.t.Fatal(err)
	}
	time.Sleep(pause)
	if err := c.restart(); err != nil {
		h.t.Fatal(err)
	}
}

// newWorker returns a pod that logs each start and exit of its two containers.
func (h *harness) newWorker(name string) *v1.Pod {
	file := workPath + "/" + name
	p := newPod(name, newContainer("main", "work", file, "main", "--on-term", "1500ms"))
	p.Spec.InitContainers = []v1.Container{newContainer("init", "work", file, "init", "--after", "200ms")}
	return h.mountWorkDir(p)
}

// testKills kills the component while pods start, run and terminate.
func (h *harness) testKills(c component) {
	h.t.Helper()
	random := newRandom(h.t)
	names := []string{"starting-0", "starting-1", "starting-2"}
	for _, name := range names {
		h.createPod(h.newWorker(name))
		sleepRandom(random, 400*time.Millisecond)
	}
	h.killAndRestart(c, 0)
	before := map[string]v1.PodStatus{}
	for _, name := range names {
		before[name] = h.Await(name, "ready", isReady).Status
		h.awaitWork(name, "init started", "init ended", "main started")
	}

	h.killAndRestart(c, time.Second)
	h.createPod(h.newWorker("later"))
	h.Await("later", "ready", isReady)
	for _, name := range names {
		if diff := cmp.Diff(before[name], h.Await(name, "ready", isReady).Status); diff != "" {
			h.t.Errorf("status of undisturbed pod %s changed (-before +after):\n%s", name, diff)
		}
		h.awaitWork(name, "init started", "init ended", "main started")
	}

	for _, name := range names {
		h.deletePod(name)
		sleepRandom(random, 400*time.Millisecond)
	}
	h.killAndRestart(c, 0)
	for _, name := range names {
		h.AwaitDeleted(name)
		h.awaitWork(name, "init started", "init ended", "main started", "main ended")
	}
}

// awaitWork waits until the pod's work log has these lines, apart from repeated starts. Starts may be repeated: containerd cancels
// a start when its client is gone, and the program may already have logged it. A killed containerd may also lose the exit of an
// init container, which then runs again. Each repeated start must appear in the restart count.
func (h *harness) awaitWork(name string, want ...string) {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		if got := h.readWorkLog(name); !slices.Equal(withoutRepeats(got), want) {
			return fmt.Errorf("work log of pod %s: got %q, want %q", name, got, want)
		}
		return nil
	})
	counted := 0
	for _, version := range h.Versions(name) {
		restarts := 0
		for _, status := range recorder.ContainerStatuses(&version.Status) {
			restarts += int(status.RestartCount)
		}
		counted = max(counted, restarts)
	}
	if lines := h.readWorkLog(name); !h.runtimeKilled && haveOverlap(lines) {
		h.t.Errorf("pod %s: two instances of a container ran at once: %q", name, lines)
	}
	if repeated := countStarts(h.readWorkLog(name)) - countStarts(want); repeated > counted {
		h.t.Errorf("pod %s: got %d repeated starts, but restart count %d: %q", name, repeated, counted, h.readWorkLog(name))
	}
}

// withoutRepeats removes lines that repeat the line or the two lines before them.
func withoutRepeats(lines []string) []string {
	var kept []string
	for _, line := range lines {
		kept = append(kept, line)
		for n := 1; n <= 2; n++ {
			if end := len(kept); end >= 2*n && slices.Equal(kept[end-n:], kept[end-2*n:end-n]) {
				kept = kept[:end-n]
			}
		}
	}
	return kept
}

// haveOverlap reports whether an instance ended after the end of another one without a start in between.
func haveOverlap(lines []string) bool {
	running := map[string]bool{}
	for _, line := range lines {
		name, isStart := strings.CutSuffix(line, " started")
		if name, isEnd := strings.CutSuffix(line, " ended"); isEnd {
			if !running[name] {
				return true
			}
			running[name] = false
		}
		if isStart {
			running[name] = true
		}
	}
	return false
}

func TestHaveOverlap(t *testing.T) {
	for log, want := range map[string]bool{
		"a started,a ended":                     false,
		"a started,a started,a ended":           false, // the first was killed
		"a started,a ended,a started,a ended":   false,
		"a started,b started,a ended,b ended":   false,
		"a started,a started,a ended,a ended":   true,
		"b started,a started,a ended,a ended":   true,
		"a started,a ended,a ended,b started":   true,
		"a started,a ended,b started,a started": false,
	} {
		if got := haveOverlap(strings.Split(log, ",")); got != want {
			t.Errorf("%s: got %v, want %v", log, got, want)
		}
	}
}

func countStarts(lines []string) (count int) {
	for _, line := range lines {
		if strings.HasSuffix(line, " started") {
			count++
		}
	}
	return count
}

func TestF1_APIServerKilled(t *testing.T) {
	h := newOwnNode(t, "api-server-killed")
	h.testKills(h.apiServerComponent())
}

func TestF15_AgentKilled(t *testing.T) {
	t.Parallel()
	h := newOwnNode(t, "agent-killed")
	h.testKills(h.agentComponent())
}

func TestF22_ContainerdKilled(t *testing.T) {
	t.Parallel()
	h := newOwnNode(t, "containerd-killed")
	h.testKills(h.runtimeComponent())
}

// Many kills at random moments start no container twice.
func TestF15_JobsRunOnce(t *testing.T) {
	t.Parallel()
	const kills = 25
	h := newOwnNode(t, "jobs-run-once")
	random := newRandom(t)
	policies := []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure}
	for kill := range kills {
		name := fmt.Sprintf("job-%d", kill)
		job := newPod(name, newContainer("main", "work", workPath+"/"+name, "main", "--after", "500ms"))
		job.Spec.RestartPolicy = policies[kill%2]
		h.createPod(h.mountWorkDir(job))
		sleepRandom(random, 700*time.Millisecond)
		h.killAndRestart(h.agentComponent(), 0)
	}
	notStarted := 0
	for kill := range kills {
		name := fmt.Sprintf("job-%d", kill)
		p := h.Await(name, "terminated", func(p *v1.Pod) bool { return derive.IsTerminal(p.Status.Phase) })
		if p.Status.Phase == v1.PodFailed && isStartError(containerStatus(p, "main").State.Terminated) {
			notStarted++
			if got := h.readWorkLog(name); slices.Contains(got, "main ended") {
				t.Errorf("pod %s: got work log %q although its status says that it never started", name, got)
			}
			continue
		}
		h.awaitWork(name, "main started", "main ended")
	}
	if notStarted > kills/5 {
		t.Errorf("got %d jobs that never started, want at most %d", notStarted, kills/5)
	}
}

// isStartError reports whether containerd canceled the start because its client was gone. A job that is not retried has failed then,
// as with the kubelet.
func isStartError(terminated *v1.ContainerStateTerminated) bool {
	return terminated != nil && terminated.Reason == "StartError" && terminated.StartedAt.IsZero()
}

// The agent catches up with everything that happened while it was down.
func TestAgentRestart_CatchesUp(t *testing.T) {
	t.Parallel()
	h := newOwnNode(t, "absent")
	h.createPod(h.newWorker("deleted"))
	h.createPod(h.mountWorkDir(newPod("crashing", newContainer("main", "work", workPath+"/crashing", "main", "--after", "3s", "--exit", "1"))))
	h.Await("deleted", "ready", isReady)
	before := h.Await("crashing", "ready", isReady)
	h.awaitWorkLine("deleted", "main started")
	if err := h.agentComponent().kill(); err != nil {
		t.Fatal(err)
	}
	h.deletePod("deleted")
	h.awaitWorkLog("crashing", "main started", "main ended")
	h.createPod(h.newWorker("new"))
	if err := h.agentComponent().restart(); err != nil {
		t.Fatal(err)
	}
	h.AwaitDeleted("deleted")
	h.awaitWorkLog("deleted", "init started", "init ended", "main started", "main ended")
	h.Await("new", "ready", isReady)
	after := h.Await("crashing", "restarted", func(p *v1.Pod) bool { return containerStatus(p, "main").RestartCount == 1 })
	if !after.Status.StartTime.Equal(before.Status.StartTime) || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("got start time %v, podIP %s; want %v, %s",
			after.Status.StartTime, after.Status.PodIP, before.Status.StartTime, before.Status.PodIP)
	}
}

// A restart of the agent does not change the status of any pod.
func TestAgentRestart_KeepsStatuses(t *testing.T) {
	t.Parallel()
	h := newOwnNode(t, "restarted")
	job := newPod("job", newContainer("main", "flip", workPath+"/flipped"), newContainer("steady", "work", workPath+"/job", "steady"))
	job.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	h.createPod(h.mountWorkDir(job))
	h.createPod(h.newWorker("service"))
	h.createPod(newJob("failed", newContainer("main", "exit", "3", "--message", "no luck")))
	before := map[string]*v1.Pod{
		"job": h.Await("job", "restarted once", func(p *v1.Pod) bool {
			main := containerStatus(p, "main")
			return main.RestartCount == 1 && main.State.Terminated != nil && containerStatus(p, "steady").State.Running != nil
		}),
		"service": h.Await("service", "ready", isReady),
		"failed":  h.Await("failed", "failed", hasPhase(v1.PodFailed)),
	}
	for i, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := h.stopAgent(signal); err != nil {
			t.Fatal(err)
		}
		if err := h.startAgent(); err != nil {
			t.Fatal(err)
		}
		last := fmt.Sprintf("last-%d", i)
		h.createPod(h.newWorker(last))
		h.Await(last, "ready", isReady)
		for name, old := range before {
			if diff := cmp.Diff(old.Status, h.Await(name, "known", exists).Status); diff != "" {
				t.Errorf("status of pod %s changed after %v (-before +after):\n%s", name, signal, diff)
			}
		}
	}
	h.awaitWorkLog("job", "steady started")
	h.awaitWorkLog("service", "init started", "init ended", "main started")
}

// A pod that is force-deleted while the agent is down is terminated.
func TestAgentRestart_ForceDeletedPod(t *testing.T) {
	t.Parallel()
	h := newOwnNode(t, "forced")
	h.createPod(h.newWorker("forced"))
	h.Await("forced", "ready", isReady)
	h.awaitWorkLine("forced", "main started")
	if err := h.agentComponent().kill(); err != nil {
		t.Fatal(err)
	}
	force := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := h.Admin.CoreV1().Pods(h.Namespace).Delete(t.Context(), "forced", force); err != nil {
		t.Fatal(err)
	}
	if err := h.agentComponent().restart(); err != nil {
		t.Fatal(err)
	}
	h.awaitWorkLog("forced", "init started", "init ended", "main started", "main ended")
	h.awaitClean()
}

func TestF26_ShimKilled(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	h.createPod(h.mountWorkDir(newPod("shim", newContainer("main", "work", workPath+"/main", "main"))))
	p := h.Await("shim", "ready", isReady)
	h.awaitWorkLog("main", "main started")
	if err := h.containerd.KillShim(h.newestSandbox(p)); err != nil {
		t.Fatal(err)
	}
	restarted := h.Await("shim", "restarted", func(p *v1.Pod) bool {
		return isReady(p) && containerStatus(p, "main").RestartCount == 1
	})
	if last := containerStatus(restarted, "main").LastTerminationState.Terminated; last == nil || last.ExitCode == 0 {
		t.Errorf("got last termination %+v, want a failure; history:\n%s", last, h.History("shim"))
	}
	h.awaitWorkLog("main", "main started", "main started")
}

// Two hundred kills on four nodes at once, while pods crash and their readiness changes.
func TestF15_ManyKills(t *testing.T) {
	const nodes, kills = 4, 50
	for i := range nodes {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			h := newOwnNode(t, fmt.Sprintf("many-kills-%d", i))
			h.runKills(kills, newRandom(t))
		})
	}
}

// runKills kills the agent many times while its pods crash, change their readiness, terminate and run.
func (h *harness) runKills(kills int, random *rand.Rand) {
	h.createPod(h.newSteadyPod())
	h.createPod(h.mountWorkDir(newPod("crashing",
		newContainer("main", "work", workPath+"/crashing", "main", "--after", "300ms", "--exit", "1"))))
	h.writeManifest("static", "main")
	h.setHealth(mainServer, "", true)
	flipping := newPod("flipping", mainServer.container())
	flipping.Spec.Containers[0].ReadinessProbe = newProbe(mainServer.probeHandlers()["http"])
	h.createPod(flipping)
	address := h.Await("flipping", "ready", isReady).Status.PodIP
	before := h.Await("steady", "ready", isReady)
	start := time.Now()

	stop := h.flipReadiness(address)
	for kill := range kills {
		sleepRandom(random, 1500*time.Millisecond)
		h.killAndRestart(h.agentComponent(), 0)
		if kill%10 == 0 {
			file := fmt.Sprintf("%s/job-%d", workPath, kill)
			job := newPod(fmt.Sprintf("job-%d", kill), newContainer("main", "work", file, "main", "--after", "500ms"))
			job.Spec.RestartPolicy = v1.RestartPolicyOnFailure
			h.createPod(h.mountWorkDir(job))
		}
	}
	stop()

	h.checkUndisturbed(before)
	h.checkBackoff(start)
	for kill := 0; kill < kills; kill += 10 {
		name := fmt.Sprintf("job-%d", kill)
		h.Await(name, "succeeded", hasPhase(v1.PodSucceeded))
		h.awaitWork(name, "main started", "main ended")
	}
	h.awaitWork("static", "main started")
}

// newSteadyPod returns a pod with all kinds of containers and probes. It keeps running undisturbed.
func (h *harness) newSteadyPod() *v1.Pod {
	p := h.newWorker("steady")
	sidecar := newSidecar(sideServer.container())
	sidecar.StartupProbe = newProbe(sideServer.probeHandlers()["http"])
	sidecar.ReadinessProbe = newProbe(sideServer.probeHandlers()["grpc"])
	sidecar.LivenessProbe = newProbe(sideServer.probeHandlers()["tcp"])
	for _, probe := range []*v1.Probe{sidecar.StartupProbe, sidecar.ReadinessProbe, sidecar.LivenessProbe} {
		probe.FailureThreshold = 10 // a slow response of the busy machine must not count
	}
	p.Spec.InitContainers = append([]v1.Container{sidecar}, p.Spec.InitContainers...)
	return p
}

// flipReadiness changes the readiness of the pod until stop is called, which makes it ready.
func (h *harness) flipReadiness(address string) (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for healthy := false; ctx.Err() == nil; {
			if h.trySetHealth(mainServer, address, healthy) == nil { // otherwise try again
				healthy = !healthy
			}
			select {
			case <-time.After(2 * time.Second): // so that every state can be observed
			case <-ctx.Done():
			}
		}
	})
	end := func() { cancel(); flipping.Wait() }
	h.t.Cleanup(end)
	return func() {
		end()
		h.setHealth(mainServer, address, true)
	}
}

// checkUndisturbed fails the test if the kills changed the steady pod or restarted the flipping one.
func (h *harness) checkUndisturbed(before *v1.Pod) {
	h.t.Helper()
	h.awaitWork("steady", "init started", "init ended", "main started")
	if diff := cmp.Diff(before.Status, h.Await("steady", "ready", isReady).Status); diff != "" {
		h.t.Errorf("status of undisturbed pod steady changed (-before +after):\n%s", diff)
	}
	flipped := h.Await("flipping", "ready", isReady)
	if restarts := containerStatus(flipped, mainServer.name).RestartCount; restarts != 0 {
		h.t.Errorf("pod flipping: got %d restarts, want none", restarts)
	}
	if !slices.ContainsFunc(h.Versions("flipping"), func(p *v1.Pod) bool { return !isReady(p) }) {
		h.t.Error("pod flipping was never unready")
	}
}

// checkBackoff fails the test if the crashing container was started more often than its backoff allows, or more often than its
// restart count shows. A start that containerd canceled counts, although the program did not log it.
func (h *harness) checkBackoff(start time.Time) {
	h.t.Helper()
	var status v1.ContainerStatus
	heraldtest.Eventually(h.t, func() error {
		status = containerStatus(h.Await("crashing", "known", exists), "main")
		starts := countStarts(h.readWorkLog("crashing"))
		if starts == 0 || starts > int(status.RestartCount)+1 {
			return fmt.Errorf("pod crashing: got %d starts, but restart count %d", starts, status.RestartCount)
		}
		return nil
	})
	// The first restart is immediate, the next ones follow after 10, 20, 40 ... seconds.
	const initial = 10
	limit := 2 + int(math.Log2(time.Since(start).Seconds()/initial+1))
	if int(status.RestartCount) > limit {
		h.t.Errorf("pod crashing: got %d restarts in %s, want at most %d", status.RestartCount, time.Since(start), limit)
	}
}

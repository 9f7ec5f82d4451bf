package diff_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
	utilexec "k8s.io/utils/exec"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
	probejudge "github.com/heraldnode/herald/probe/judge"
)

// kubeletAgent is the kubelet's prober with the part of the main loop that feeds it: a result goes to the status
// manager, then the pod is synced.
type kubeletAgent struct {
	kubeletstatus.Manager // methods that a prober does not call
	harness               *proberHarness
	*probeRecorder
	manager prober.Manager
	results map[probejudge.Kind]results.Manager
	ctx     context.Context //nolint:containedctx // the kubelet's workers inherit it (BUG-25)
	// keepResultRuns leaves BUG-22 in.
	keepResultRuns bool

	mu       sync.Mutex // guards all below
	phase    v1.PodPhase
	status   v1.PodStatus
	reported []string

	cancel func()
	wg     sync.WaitGroup
}

// newKubeletAgent starts an agent with the status that the previous one published.
func (h *proberHarness) newKubeletAgent(previous *kubeletAgent) *kubeletAgent {
	a := &kubeletAgent{harness: h, phase: v1.PodRunning, results: map[probejudge.Kind]results.Manager{}}
	if previous != nil {
		a.status, a.keepResultRuns = previous.status, previous.keepResultRuns
	}
	a.probeRecorder = newProbeRecorder(h, a.currentState)
	for _, kind := range allKinds {
		a.results[kind] = results.NewManager()
	}
	a.manager = prober.NewManager(
		a, a.results[probejudge.Liveness], a.results[probejudge.Readiness], a.results[probejudge.Startup], a, discardRecorder{})
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.ctx = klog.NewContext(context.Background(), klog.Logger{})
	a.wg.Go(func() { a.runLoop(ctx) })
	return a
}

// stop stops the agent. A probe in progress runs to its end (BUG-23) and its result is dropped.
func (a *kubeletAgent) stop() {
	a.cancel()
	a.wg.Wait()
	a.manager.RemovePod(a.harness.pod)
}

// runLoop is the kubelet's main loop.
func (a *kubeletAgent) runLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case update := <-a.results[probejudge.Startup].Updates():
			a.handleResult(update, probejudge.Startup)
		case update := <-a.results[probejudge.Readiness].Updates():
			a.handleResult(update, probejudge.Readiness)
		case update := <-a.results[probejudge.Liveness].Updates():
			a.handleResult(update, probejudge.Liveness)
		}
	}
}

func (a *kubeletAgent) handleResult(update results.Update, kind probejudge.Kind) {
	a.mu.Lock()
	a.reported = append(a.reported, fmt.Sprintf("%s of %s: %v", kind, update.ContainerID.ID, update.Result))
	if c := a.containerLocked(update.ContainerID.String()); c != nil && kind == probejudge.Startup {
		c.Started = new(update.Result == results.Success)
	}
	a.mu.Unlock()
	if kind != probejudge.Liveness || update.Result == results.Failure {
		a.sync()
	}
}

func (a *kubeletAgent) containerLocked(id string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{a.status.InitContainerStatuses, a.status.ContainerStatuses} {
		for i := range list {
			if list[i].ContainerID == id {
				return &list[i]
			}
		}
	}
	return nil
}

// sync does what the pod worker does about probes. It holds mu throughout, so that a new probe worker sees the status of
// its container.
func (a *kubeletAgent) sync() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.harness.isTerminating() {
		a.manager.AddPod(a.ctx, a.harness.pod)
	}
	status := v1.PodStatus{Phase: a.phase}
	for _, inst := range a.harness.instances() {
		c := a.containerStatusLocked(inst)
		if isInit(a.harness.pod, inst.name) {
			status.InitContainerStatuses = append(status.InitContainerStatuses, c)
		} else {
			status.ContainerStatuses = append(status.ContainerStatuses, c)
		}
	}
	a.manager.UpdatePodStatus(a.ctx, a.harness.pod, &status)
	a.status = status
}

func isInit(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return true
		}
	}
	return false
}

func (a *kubeletAgent) containerStatusLocked(inst *instance) v1.ContainerStatus {
	c := v1.ContainerStatus{Name: inst.name, ContainerID: inst.containerID().String()}
	if before := a.containerLocked(c.ContainerID); before != nil {
		c.Started = before.Started
	}
	switch inst.state {
	case observed.Running:
		c.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(inst.startedAt)}
	case observed.Exited:
		c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: 1}
	default:
		c.State.Waiting = &v1.ContainerStateWaiting{}
	}
	return c
}

// GetPodStatus implements status.Manager.
func (a *kubeletAgent) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.status.DeepCopy(), true
}

// currentState returns the result in the results managers and, for startup, what the status shows.
func (a *kubeletAgent) currentState(id string, kind probejudge.Kind) probeState {
	result, known := a.results[kind].Get(kubecontainer.ContainerID{Type: "test", ID: id})
	passed, failed := known && result == results.Success, known && result == results.Failure
	switch kind {
	case probejudge.Readiness:
		return probeState{Passed: passed}
	case probejudge.Liveness:
		return probeState{Failed: failed}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.containerLocked("test://" + id)
	return probeState{Passed: passed || !known && c != nil && c.Started != nil && *c.Started, Failed: failed}
}

// RunInContainer implements container.CommandRunner.
func (a *kubeletAgent) RunInContainer(
	ctx context.Context, id kubecontainer.ContainerID, command []string, timeout time.Duration,
) ([]byte, error) {
	kind := kindForCommand(command[0])
	if first := a.countAnswers(probeKey{a.generation, id.ID, kind}) == 0; first && !a.keepResultRuns {
		if inst := a.harness.findInstance(id.ID); inst != nil {
			kubelet.ResetResultRun(a.manager, a.harness.pod.UID, inst.name, kubeletKinds[kind])
		}
	}
	code, err := a.exec(ctx, id.ID, command[0], timeout)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: %q", remote.ErrCommandTimedOut, command)
	case err == nil && code != 0:
		return nil, utilexec.CodeExitError{Err: errors.New("exit status"), Code: code}
	}
	return nil, err
}

var kubeletKinds = map[probejudge.Kind]kubelet.ProbeKind{
	probejudge.Startup: kubelet.Startup, probejudge.Readiness: kubelet.Readiness, probejudge.Liveness: kubelet.Liveness,
}

// discardRecorder discards events.
type discardRecorder struct{}

func (discardRecorder) Event(runtime.Object, string, string, string)          {}
func (discardRecorder) Eventf(runtime.Object, string, string, string, ...any) {}
func (discardRecorder) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}
func (n discardRecorder) WithLogger(klog.Logger) record.EventRecorderLogger { return n }

// heraldAgent is Herald's prober with a worker that syncs the pod whenever it is woken.
type heraldAgent struct {
	harness *proberHarness
	*probeRecorder
	*probe.Prober

	mu      sync.Mutex // guards all below
	started map[string]bool
	// ready is the readiness that was reported since the agent started. unhealthy is what the worker last found.
	ready     map[string]bool
	unhealthy map[observed.ContainerID]string
	reported  []string

	cancel func()
	wg     sync.WaitGroup
}

// newHeraldAgent starts an agent with the status that the previous one published.
func (h *proberHarness) newHeraldAgent(previous *heraldAgent) *heraldAgent {
	a := &heraldAgent{harness: h, started: map[string]bool{}, ready: map[string]bool{}}
	if previous != nil {
		maps.Copy(a.started, previous.started)
	}
	a.probeRecorder = newProbeRecorder(h, a.currentState)
	var err error
	if a.Prober, err = probe.New(probe.Config{PodCache: a, Statuses: a, Runtime: a, Wake: a.wake}); err != nil {
		h.t.Fatal(err)
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.wg.Go(func() { _ = a.Run(ctx) })
	return a
}

func (a *heraldAgent) stop() {
	a.cancel()
	a.wg.Wait()
}

func (a *heraldAgent) sync() { a.AddPod(a.harness.pod) }

func (a *heraldAgent) wake(uid podid.UID) {
	_, unhealthy := a.Results(uid)
	a.mu.Lock()
	a.unhealthy = unhealthy
	a.mu.Unlock()
	a.sync()
}

// Get implements probe.Observations.
func (a *heraldAgent) Get(uid podid.UID) *observed.Pod {
	pod := &observed.Pod{UID: uid, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	for _, inst := range a.harness.instances() {
		pod.Containers = append(pod.Containers, observed.Container{
			Name: inst.name, ID: inst.containerID(), State: inst.state, StartedAt: inst.startedAt,
		})
	}
	return pod
}

// GetPodStatus implements probe.Statuses.
func (a *heraldAgent) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var status v1.PodStatus
	for id, started := range a.started {
		inst := a.harness.findInstance(id)
		if inst == nil {
			continue
		}
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: inst.name, ContainerID: inst.containerID().String(), Started: &started,
		})
	}
	return status, true
}

// SetContainerReadiness implements probe.Statuses.
func (a *heraldAgent) SetContainerReadiness(_ types.UID, id observed.ContainerID, ready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready[id.ID] = ready
	a.reported = append(a.reported, fmt.Sprintf("Readiness of %s: %v", id.ID, ready))
}

// SetContainerStartup implements probe.Statuses.
func (a *heraldAgent) SetContainerStartup(_ types.UID, id observed.ContainerID, started bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started[id.ID] = started
	a.reported = append(a.reported, fmt.Sprintf("Startup of %s: %v", id.ID, started))
}

// currentState returns what workers see of a container.
func (a *heraldAgent) currentState(id string, kind probejudge.Kind) probeState {
	containerID := observed.ContainerID{Runtime: "test", ID: id}
	facts, unhealthy := a.Results(podid.UID(a.harness.pod.UID))
	_, failed := unhealthy[containerID]
	switch kind {
	case probejudge.Readiness:
		return probeState{Passed: facts[containerID].Readiness == derive.ProbeSuccess}
	case probejudge.Startup:
		return probeState{Passed: facts[containerID].Startup == derive.ProbeSuccess, Failed: facts[containerID].Startup == derive.ProbeFailure}
	}
	return probeState{Failed: failed && facts[containerID].Startup != derive.ProbeFailure}
}

// checkReported returns a result of a running container that was not reported, or "".
func (a *heraldAgent) checkReported(inst *instance) string {
	ready, startup := a.currentState(inst.id, probejudge.Readiness), a.currentState(inst.id, probejudge.Startup)
	_, unhealthy := a.Results(podid.UID(a.harness.pod.UID))
	_, isUnhealthy := unhealthy[inst.containerID()]
	a.mu.Lock()
	defer a.mu.Unlock()
	_, wasUnhealthy := a.unhealthy[inst.containerID()]
	switch {
	case ready.Passed != a.ready[inst.id]:
		return fmt.Sprintf("%s: ready is %v, reported %v", inst.id, ready.Passed, a.ready[inst.id])
	case startup.Passed != a.started[inst.id]:
		return fmt.Sprintf("%s: started is %v, reported %v", inst.id, startup.Passed, a.started[inst.id])
	case isUnhealthy != wasUnhealthy && !a.harness.isTerminating():
		return fmt.Sprintf("%s: unhealthy is %v, worker saw %v", inst.id, isUnhealthy, wasUnhealthy)
	}
	return ""
}

// Exec implements check.Runtime.
func (a *heraldAgent) Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error) {
	inst := a.harness.findInstance(id.ID)
	if inst == nil || inst.state != observed.Running {
		a.addViolation("%s was probed but is not running", id)
	}
	deadline, _ := ctx.Deadline()
	code, err := a.exec(ctx, id.ID, command[0], time.Until(deadline))
	return nil, code, err
}

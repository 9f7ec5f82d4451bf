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

// kubeletAgent is the kubelet's prober with as much of its main loop as feeds it: a result is told to the status manager,
// then the pod is synced.
type kubeletAgent struct {
	kubeletstatus.Manager // what a prober does not need
	ward                  *ward
	*chart
	manager prober.Manager
	results map[probejudge.Kind]results.Manager
	ctx     context.Context //nolint:containedctx // the one that the kubelet's workers inherit (BUG-25)
	// keepStreaks leaves BUG-22 in.
	keepStreaks bool

	turn sync.Mutex // one sync at a time

	published sync.Mutex // guards all below
	phase     v1.PodPhase
	status    v1.PodStatus
	told      []string

	cancel func()
	ended  sync.WaitGroup
}

// newKubelet starts one that knows what the one before it published.
func (w *ward) newKubelet(before *kubeletAgent) *kubeletAgent {
	a := &kubeletAgent{ward: w, phase: v1.PodRunning, results: map[probejudge.Kind]results.Manager{}}
	if before != nil {
		a.status, a.keepStreaks = before.status, before.keepStreaks
	}
	a.chart = newChart(w, a.level)
	for _, kind := range kinds {
		a.results[kind] = results.NewManager()
	}
	a.manager = prober.NewManager(
		a, a.results[probejudge.Liveness], a.results[probejudge.Readiness], a.results[probejudge.Startup], a, noRecorder{})
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.ctx = klog.NewContext(context.Background(), klog.Logger{})
	a.ended.Go(func() { a.listen(ctx) })
	return a
}

// stop ends the agent. What it asks at this moment it asks to the end (BUG-23), and nobody hears the answer.
func (a *kubeletAgent) stop() {
	a.cancel()
	a.ended.Wait()
	a.manager.RemovePod(a.ward.pod)
}

// listen is the main loop.
func (a *kubeletAgent) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case update := <-a.results[probejudge.Startup].Updates():
			a.tell(update, probejudge.Startup)
		case update := <-a.results[probejudge.Readiness].Updates():
			a.tell(update, probejudge.Readiness)
		case update := <-a.results[probejudge.Liveness].Updates():
			a.tell(update, probejudge.Liveness)
		}
	}
}

func (a *kubeletAgent) tell(update results.Update, kind probejudge.Kind) {
	a.published.Lock()
	a.told = append(a.told, fmt.Sprintf("%s of %s: %v", kind, update.ContainerID.ID, update.Result))
	if c := a.containerLocked(update.ContainerID.String()); c != nil && kind == probejudge.Startup {
		c.Started = new(update.Result == results.Success)
	}
	a.published.Unlock()
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

// sync is what the pod's worker does about probes.
func (a *kubeletAgent) sync() {
	a.turn.Lock()
	defer a.turn.Unlock()
	if !a.ward.isEnding() {
		a.manager.AddPod(a.ctx, a.ward.pod)
	}
	a.published.Lock()
	status := v1.PodStatus{Phase: a.phase}
	for _, p := range a.ward.patients() {
		c := a.containerStatusLocked(p)
		if isInit(a.ward.pod, p.name) {
			status.InitContainerStatuses = append(status.InitContainerStatuses, c)
		} else {
			status.ContainerStatuses = append(status.ContainerStatuses, c)
		}
	}
	a.published.Unlock()
	a.manager.UpdatePodStatus(a.ctx, a.ward.pod, &status)
	a.published.Lock()
	a.status = status
	a.published.Unlock()
}

func isInit(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return true
		}
	}
	return false
}

func (a *kubeletAgent) containerStatusLocked(p *patient) v1.ContainerStatus {
	c := v1.ContainerStatus{Name: p.name, ContainerID: p.containerID().String()}
	if before := a.containerLocked(c.ContainerID); before != nil {
		c.Started = before.Started
	}
	switch p.state {
	case observed.Running:
		c.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(p.since)}
	case observed.Exited:
		c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: 1}
	default:
		c.State.Waiting = &v1.ContainerStateWaiting{}
	}
	return c
}

// GetPodStatus implements status.Manager.
func (a *kubeletAgent) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	a.published.Lock()
	defer a.published.Unlock()
	return *a.status.DeepCopy(), true
}

// level is what the results managers hold, and of startup what the status shows.
func (a *kubeletAgent) level(id string, kind probejudge.Kind) level {
	result, known := a.results[kind].Get(kubecontainer.ContainerID{Type: "test", ID: id})
	passed, failed := known && result == results.Success, known && result == results.Failure
	switch kind {
	case probejudge.Readiness:
		return level{Passed: passed}
	case probejudge.Liveness:
		return level{Failed: failed}
	}
	a.published.Lock()
	defer a.published.Unlock()
	c := a.containerLocked("test://" + id)
	return level{Passed: passed || !known && c != nil && c.Started != nil && *c.Started, Failed: failed}
}

// RunInContainer implements container.CommandRunner.
func (a *kubeletAgent) RunInContainer(
	ctx context.Context, id kubecontainer.ContainerID, command []string, timeout time.Duration,
) ([]byte, error) {
	kind := kindOf(command[0])
	if first := a.count(exam{a.shift, id.ID, kind}) == 0; first && !a.keepStreaks {
		if p := a.ward.find(id.ID); p != nil {
			kubelet.ResetResultRun(a.manager, a.ward.pod.UID, p.name, kubeletKinds[kind])
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

// noRecorder hears no event.
type noRecorder struct{}

func (noRecorder) Event(runtime.Object, string, string, string)          {}
func (noRecorder) Eventf(runtime.Object, string, string, string, ...any) {}
func (noRecorder) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}
func (n noRecorder) WithLogger(klog.Logger) record.EventRecorderLogger { return n }

// heraldAgent is our prober with a worker that looks at the pod whenever it is woken.
type heraldAgent struct {
	ward *ward
	*chart
	*probe.Prober

	published sync.Mutex // guards all below
	started   map[string]bool
	// ready is what was told of readiness since the agent began; unhealthy what the worker found when it was last woken.
	ready     map[string]bool
	unhealthy map[observed.ContainerID]string
	told      []string

	cancel func()
	ended  sync.WaitGroup
}

// newHerald starts one that knows what the one before it published.
func (w *ward) newHerald(before *heraldAgent) *heraldAgent {
	a := &heraldAgent{ward: w, started: map[string]bool{}, ready: map[string]bool{}}
	if before != nil {
		maps.Copy(a.started, before.started)
	}
	a.chart = newChart(w, a.level)
	var err error
	if a.Prober, err = probe.New(probe.Config{PodCache: a, Statuses: a, Runtime: a, Wake: a.wake}); err != nil {
		w.t.Fatal(err)
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.ended.Go(func() { _ = a.Run(ctx) })
	return a
}

func (a *heraldAgent) stop() {
	a.cancel()
	a.ended.Wait()
}

func (a *heraldAgent) sync() { a.AddPod(a.ward.pod) }

func (a *heraldAgent) wake(uid podid.UID) {
	_, unhealthy := a.Results(uid)
	a.published.Lock()
	a.unhealthy = unhealthy
	a.published.Unlock()
	a.sync()
}

// Get implements probe.Observations.
func (a *heraldAgent) Get(uid podid.UID) *observed.Pod {
	seen := &observed.Pod{UID: uid, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	for _, p := range a.ward.patients() {
		seen.Containers = append(seen.Containers, observed.Container{
			Name: p.name, ID: p.containerID(), State: p.state, StartedAt: p.since,
		})
	}
	return seen
}

// GetPodStatus implements probe.Statuses.
func (a *heraldAgent) GetPodStatus(types.UID) (v1.PodStatus, bool) {
	a.published.Lock()
	defer a.published.Unlock()
	var status v1.PodStatus
	for id, started := range a.started {
		p := a.ward.find(id)
		if p == nil {
			continue
		}
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: p.name, ContainerID: p.containerID().String(), Started: &started,
		})
	}
	return status, true
}

// SetContainerReadiness implements probe.Statuses.
func (a *heraldAgent) SetContainerReadiness(_ types.UID, id observed.ContainerID, ready bool) {
	a.published.Lock()
	defer a.published.Unlock()
	a.ready[id.ID] = ready
	a.told = append(a.told, fmt.Sprintf("Readiness of %s: %v", id.ID, ready))
}

// SetContainerStartup implements probe.Statuses.
func (a *heraldAgent) SetContainerStartup(_ types.UID, id observed.ContainerID, started bool) {
	a.published.Lock()
	defer a.published.Unlock()
	a.started[id.ID] = started
	a.told = append(a.told, fmt.Sprintf("Startup of %s: %v", id.ID, started))
}

// level is what workers are told of a container when they ask.
func (a *heraldAgent) level(id string, kind probejudge.Kind) level {
	of := observed.ContainerID{Runtime: "test", ID: id}
	facts, unhealthy := a.Results(podid.UID(a.ward.pod.UID))
	_, failed := unhealthy[of]
	switch kind {
	case probejudge.Readiness:
		return level{Passed: facts[of].Readiness == derive.ProbeSuccess}
	case probejudge.Startup:
		return level{Passed: facts[of].Startup == derive.ProbeSuccess, Failed: facts[of].Startup == derive.ProbeFailure}
	}
	return level{Failed: failed && facts[of].Startup != derive.ProbeFailure}
}

// isTold says what was decided about a running container and not told.
func (a *heraldAgent) isTold(p *patient) string {
	ready, startup := a.level(p.id, probejudge.Readiness), a.level(p.id, probejudge.Startup)
	_, unhealthy := a.Results(podid.UID(a.ward.pod.UID))
	_, ill := unhealthy[p.containerID()]
	a.published.Lock()
	defer a.published.Unlock()
	_, told := a.unhealthy[p.containerID()]
	switch {
	case ready.Passed != a.ready[p.id]:
		return fmt.Sprintf("%s: ready is %v, and %v was told", p.id, ready.Passed, a.ready[p.id])
	case startup.Passed != a.started[p.id]:
		return fmt.Sprintf("%s: started is %v, and %v was told", p.id, startup.Passed, a.started[p.id])
	case ill != told && !a.ward.isEnding():
		return fmt.Sprintf("%s: unhealthy is %v, and the worker saw %v", p.id, ill, told)
	}
	return ""
}

// Exec implements check.Runtime.
func (a *heraldAgent) Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error) {
	p := a.ward.find(id.ID)
	if p == nil || p.state != observed.Running {
		a.complain("%s does not run and was asked", id)
	}
	deadline, _ := ctx.Deadline()
	code, err := a.exec(ctx, id.ID, command[0], time.Until(deadline))
	return nil, code, err
}

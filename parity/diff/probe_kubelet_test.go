package diff_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/internal/kubelet"
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
			kubelet.ForgetStreak(a.manager, a.ward.pod.UID, p.name, kubeletKinds[kind])
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

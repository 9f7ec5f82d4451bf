package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
)

// harness runs a prober against containers whose commands behave as the test defines.
type harness struct {
	*testing.T
	*probe.Prober
	metrics *prometheus.Registry
	stop    func()

	mu              sync.Mutex // guards all below
	pods            map[podid.UID]*observed.Pod
	statuses        map[types.UID]v1.PodStatus
	handlers        map[string]func(context.Context) (int, error) // by command
	executed        []execution
	duringGet       func()   // runs once during the next Get
	beforeReadiness func()   // runs once before the next SetContainerReadiness
	recorded        []string // calls of Statuses, Wake and Events, in order
}

// execution is one command that was run.
type execution struct {
	command, container string
	at                 time.Duration // since startOfTime
}

var startOfTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the start of synctest's clock

// runTest runs a test with a fake clock.
func runTest(t *testing.T, test func(*harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{
			T: t, pods: map[podid.UID]*observed.Pod{}, statuses: map[types.UID]v1.PodStatus{},
			handlers: map[string]func(context.Context) (int, error){},
		}
		h.startProber(func(*probe.Config) {})
		defer func() { h.stop() }()
		test(h)
	})
}

// startProber starts a prober without state.
func (h *harness) startProber(configure func(*probe.Config)) {
	h.Helper()
	h.metrics = prometheus.NewPedanticRegistry()
	config := probe.Config{
		PodCache: h, Statuses: h, Runtime: h, Events: h, Metrics: h.metrics,
		Wake: func(uid podid.UID) { h.record("wake %s", uid) },
	}
	configure(&config)
	var err error
	if h.Prober, err = probe.New(config); err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Prober.Run(ctx); err != nil {
			h.Errorf("Run: %v", err)
		}
	})
	h.stop = func() { cancel(); running.Wait() }
}

func (h *harness) record(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recorded = append(h.recorded, fmt.Sprintf(format, args...))
}

// takeRecorded returns and clears the recorded calls with this prefix.
func (h *harness) takeRecorded(prefix string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var matching []string
	for _, call := range h.recorded {
		if strings.HasPrefix(call, prefix) {
			matching = append(matching, call)
		}
	}
	h.recorded = nil
	return matching
}

// Get implements probe.PodCache.
func (h *harness) Get(uid podid.UID) *observed.Pod {
	h.mu.Lock()
	runtimePod, callback := h.pods[uid], h.duringGet
	h.duringGet = nil
	h.mu.Unlock()
	if callback != nil {
		callback()
	}
	if runtimePod == nil {
		return &observed.Pod{UID: uid}
	}
	return runtimePod
}

// GetPodStatus implements probe.Statuses.
func (h *harness) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	status, known := h.statuses[uid]
	return status, known
}

// SetContainerReadiness implements probe.Statuses.
func (h *harness) SetContainerReadiness(_ types.UID, id observed.ContainerID, ready bool) {
	h.mu.Lock()
	callback := h.beforeReadiness
	h.beforeReadiness = nil
	h.mu.Unlock()
	if callback != nil {
		callback()
	}
	h.record("ready %s %v", id.ID, ready)
}

// SetContainerStartup implements probe.Statuses.
func (h *harness) SetContainerStartup(_ types.UID, id observed.ContainerID, started bool) {
	h.record("started %s %v", id.ID, started)
}

// Event implements event.Recorder.
func (h *harness) Event(object runtime.Object, kind, reason, message string) {
	h.record("event %s %s %s: %s", object.(*v1.ObjectReference).FieldPath, kind, reason, message)
}

// Exec implements check.Runtime. Commands without a handler succeed.
func (h *harness) Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error) {
	h.mu.Lock()
	h.executed = append(h.executed, execution{command[0], id.ID, time.Since(startOfTime)})
	handler := h.handlers[command[0]]
	h.mu.Unlock()
	if handler == nil {
		return nil, 0, nil
	}
	code, err := handler(ctx)
	return []byte(command[0] + " output"), code, err
}

// handle sets the handler of a command.
func (h *harness) handle(command string, handler func(context.Context) (int, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlers[command] = handler
}

func fails(context.Context) (int, error)    { return 1, nil }
func succeeds(context.Context) (int, error) { return 0, nil }
func errs(context.Context) (int, error)     { return 0, errors.New("runtime not available") }

func hangs(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// executedAt returns when a command was run, in seconds since startOfTime.
func (h *harness) executedAt(command string) []float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var times []float64
	for _, execution := range h.executed {
		if execution.command == command {
			times = append(times, execution.at.Seconds())
		}
	}
	return times
}

// setRunning replaces the container of that name by one that starts now.
func (h *harness) setRunning(pod *v1.Pod, name, id string) {
	h.setContainer(pod, observed.Container{Name: name, ID: containerID(id), State: observed.Running, StartedAt: time.Now()})
}

func (h *harness) setContainer(pod *v1.Pod, c observed.Container) {
	h.mu.Lock()
	defer h.mu.Unlock()
	uid := podid.UID(pod.UID)
	runtimePod := &observed.Pod{UID: uid, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Containers: []observed.Container{c}}
	if before := h.pods[uid]; before != nil {
		runtimePod.Containers = append(runtimePod.Containers, slices.DeleteFunc(slices.Clone(before.Containers), func(old observed.Container) bool {
			return old.Name == c.Name
		})...)
	}
	h.pods[uid] = runtimePod
}

// advance advances the clock.
func (h *harness) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func containerID(id string) observed.ContainerID {
	return observed.ContainerID{Runtime: "test", ID: id}
}

func newPod(containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u"},
		Spec:       v1.PodSpec{Containers: containers},
	}
}

// newExecProbe returns a probe that runs the command every second, with a timeout of one second and thresholds of one.
func newExecProbe(command string) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errFake = errors.New("fake failure")

// harness is a machine with a runtime that survives agent restarts, and the running agent.
type harness struct {
	*testing.T
	*worker.Workers
	runtime   *fakeruntime.Runtime
	cache     *fakePodCache
	volumes   *fakeVolumes
	pods      *pod.Manager
	statuses  *status.Manager
	metrics   *prometheus.Registry
	configure func(*worker.Config)
	unready   map[podid.Source]bool
	// watchRuntime wakes the workers until ctx ends. Defaults to waking them on every runtime event.
	watchRuntime func(ctx context.Context, wake func(podid.UID))

	stop        func() // stops the agent
	stopWorkers func() // stops the workers only

	mu     sync.Mutex // guards events
	events []string
}

// run calls test in a synctest bubble with a running agent.
func run(t *testing.T, test func(*harness)) {
	t.Helper()
	runWith(t, func(*worker.Config) {}, test)
}

func runWith(t *testing.T, configure func(*worker.Config), test func(*harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.configure = configure
		h.start()
		defer func() { h.stop() }()
		test(h)
		for _, violation := range h.runtime.Violations() {
			t.Errorf("runtime contract violated: %s", violation)
		}
	})
}

func newHarness(t *testing.T) *harness {
	return &harness{T: t, runtime: fakeruntime.New(), configure: func(*worker.Config) {}, unready: map[podid.Source]bool{}}
}

// start starts an agent without any state.
func (h *harness) start() {
	h.Helper()
	h.cache = &fakePodCache{runtime: h.runtime, pods: map[podid.UID]*observed.Pod{}}
	h.volumes = &fakeVolumes{mounted: map[podid.UID]bool{}}
	h.pods = pod.NewManager()
	h.metrics = prometheus.NewPedanticRegistry()
	var err error
	if h.statuses, err = status.New(status.Config{Pods: h.pods}); err != nil {
		h.Fatal(err)
	}
	config := worker.Config{
		Runtime: h.runtime, PodCache: h.cache, Statuses: h.statuses, Volumes: h.volumes, Events: h, Metrics: h.metrics,
	}
	h.configure(&config)
	if h.Workers, err = worker.New(config); err != nil {
		h.Fatal(err)
	}
	h.startWorkers()
	h.startWatch()
}

func (h *harness) startWorkers() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Workers.Run(ctx); err != nil {
			h.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	h.stopWorkers = func() { cancel(); running.Wait() }
}

func (h *harness) startWatch() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	watch, wake := h.watchRuntime, h.Wake
	if watch == nil {
		watch = h.cache.watch
	}
	running.Go(func() { watch(ctx, wake) })
	synctest.Wait()
	h.stop = func() { cancel(); h.stopWorkers(); running.Wait() }
}

// restartAgent replaces the agent by one without state. Containers keep running.
func (h *harness) restartAgent() {
	h.stop()
	h.start()
}

// usePLEG makes the real PLEG the pod cache and the source of wake-ups.
func (h *harness) usePLEG(config *worker.Config) {
	cache, err := pleg.New(pleg.Config{Runtime: h.runtime})
	if err != nil {
		h.Fatal(err)
	}
	config.PodCache = cache
	h.watchRuntime = func(ctx context.Context, wake func(podid.UID)) {
		var running sync.WaitGroup
		running.Go(func() { _ = cache.Run(ctx) })
		for {
			uids, err := cache.WaitForChanges(ctx)
			if err != nil {
				break
			}
			for _, uid := range uids {
				wake(uid)
			}
		}
		running.Wait()
	}
}

// create adds a pod as its source does.
func (h *harness) create(pod *v1.Pod) {
	h.pods.AddPod(pod)
	h.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: pod})
	synctest.Wait()
}

func (h *harness) update(pod *v1.Pod, op plan.Op) {
	h.pods.UpdatePod(pod)
	h.UpdatePod(worker.Update{Op: op, Pod: pod})
	synctest.Wait()
}

// delete deletes a pod gracefully as the API server does. It returns the deleted pod.
func (h *harness) delete(pod *v1.Pod, seconds int64) *v1.Pod {
	pod = withDeletion(pod, seconds)
	h.update(pod, plan.OpUpdate)
	return pod
}

// remove removes a pod from its source.
func (h *harness) remove(pod *v1.Pod) {
	h.pods.RemovePod(pod)
	h.UpdatePod(worker.Update{Op: plan.OpKill, Pod: pod})
	synctest.Wait()
}

// removeSilently removes a pod without an update. Only housekeeping notices it.
func (h *harness) removeSilently(pod *v1.Pod) {
	h.pods.RemovePod(pod)
	h.housekeep()
}

func (h *harness) housekeep() {
	runtimePods, _ := h.cache.Pods()
	h.Housekeep(h.pods.GetPods(), runtimePods, func(source podid.Source) bool { return !h.unready[source] })
	synctest.Wait()
}

// advance lets time pass.
func (h *harness) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// startLateContainer starts a container behind the workers' back, as a runtime call does that takes effect after its timeout.
func (h *harness) startLateContainer(pod *v1.Pod) {
	h.Helper()
	h.runtime.SetScript("app", fakeruntime.Script{})
	sandboxID, err := h.runtime.StartSandbox(h.Context(), pod, 7)
	if err == nil {
		start := plan.Start{Container: &pod.Spec.Containers[0], Kind: derive.RegularContainer, RestartCount: 7}
		err = h.runtime.StartContainer(h.Context(), pod, sandboxID, start)
	}
	if err != nil || !h.isRunning(pod) {
		h.Fatalf("start late container: %v", err)
	}
}

// Event implements event.Recorder.
func (h *harness) Event(object runtime.Object, _, reason, message string) {
	var about string
	switch object := object.(type) {
	case *v1.Pod:
		about = object.Name
	case *v1.ObjectReference:
		about = object.Name + "/" + object.FieldPath
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, about+" "+reason+": "+message)
}

// wantEvent fails the test unless the event was recorded.
func (h *harness) wantEvent(event string) {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.events, event) {
		h.Errorf("got events\n%s\nwant %q", strings.Join(h.events, "\n"), event)
	}
}

// wantReason fails the test unless an event with the reason was recorded.
func (h *harness) wantReason(reason string) {
	h.Helper()
	if h.countEvents(reason) == 0 {
		h.Fatalf("got no event %s", reason)
	}
}

func (h *harness) countEvents(reason string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := 0
	for _, event := range h.events {
		if strings.Contains(event, " "+reason+": ") {
			count++
		}
	}
	return count
}

// count sums a metric over its labels. A histogram counts its samples.
func (h *harness) count(name string) int {
	h.Helper()
	families, err := h.metrics.Gather()
	if err != nil {
		h.Fatal(err)
	}
	total := 0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			total += int(m.GetCounter().GetValue()) + int(m.GetGauge().GetValue()) + int(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

func (h *harness) status(pod *v1.Pod) v1.PodStatus {
	cached, _ := h.statuses.GetPodStatus(pod.UID)
	return cached
}

func (h *harness) condition(pod *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for _, condition := range h.status(pod).Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return ""
}

// waitingReason returns why the container waits, or an empty string.
func (h *harness) waitingReason(pod *v1.Pod, container string) string {
	cached := h.status(pod)
	for _, c := range slices.Concat(cached.InitContainerStatuses, cached.ContainerStatuses) {
		if c.Name == container && c.State.Waiting != nil {
			return c.State.Waiting.Reason
		}
	}
	return ""
}

func (h *harness) stage(pod *v1.Pod) string {
	for _, state := range h.Pods() {
		if state.UID == podid.UID(pod.UID) {
			return state.Stage.String()
		}
	}
	return "unknown"
}

func (h *harness) isRunning(pod *v1.Pod) bool {
	runtimePod, err := h.runtime.InspectPod(context.Background(), podid.UID(pod.UID))
	return err == nil && runtimePod.Running()
}

// runningImage returns the image of the running container "app", or "none".
func (h *harness) runningImage(pod *v1.Pod) string {
	h.Helper()
	runtimePod, err := h.runtime.InspectPod(h.Context(), podid.UID(pod.UID))
	if err != nil {
		h.Fatal(err)
	}
	for _, container := range runtimePod.Instances("app") {
		if container.State == observed.Running {
			return container.Image.Name
		}
	}
	return "none"
}

func (h *harness) wantStage(pod *v1.Pod, want string) {
	h.Helper()
	if got := h.stage(pod); got != want {
		h.Fatalf("stage of %s: got %s, want %s; transcript:\n%s", pod.UID, got, want, strings.Join(h.runtime.Transcript(), "\n"))
	}
}

func (h *harness) wantPhase(pod *v1.Pod, want v1.PodPhase) {
	h.Helper()
	if got := h.status(pod).Phase; got != want {
		h.Fatalf("phase of %s: got %q, want %q; transcript:\n%s", pod.UID, got, want, strings.Join(h.runtime.Transcript(), "\n"))
	}
}

func (h *harness) wantRunning(pod *v1.Pod, want bool) {
	h.Helper()
	if got := h.isRunning(pod); got != want {
		h.Fatalf("%s running: got %v, want %v; transcript:\n%s", pod.UID, got, want, strings.Join(h.runtime.Transcript(), "\n"))
	}
}

func (h *harness) wantTranscript(want ...string) {
	h.Helper()
	if diff := cmp.Diff(want, h.runtime.Transcript()); diff != "" {
		h.Fatal(diff)
	}
}

// wantRuntimePods fails the test unless the runtime holds that many pods.
func (h *harness) wantRuntimePods(want int) {
	h.Helper()
	if pods, _ := h.cache.Pods(); len(pods) != want {
		h.Fatalf("got %d pods in the runtime, want %d: %v", len(pods), want, pods)
	}
}

// wantWorkers fails the test unless the workers know that many pods.
func (h *harness) wantWorkers(want int) {
	h.Helper()
	if states := h.Pods(); len(states) != want {
		h.Fatalf("got %d workers, want %d: %v", len(states), want, states)
	}
}

// newAPIPod returns an API pod with one container, app.
func newAPIPod(name string, mutate ...func(*v1.Pod)) *v1.Pod {
	return newPod(name, "uid-"+name, podid.API, mutate...)
}

// newStaticPod returns a pod from a file, whose UID changes with its manifest.
func newStaticPod(name, uid string, mutate ...func(*v1.Pod)) *v1.Pod {
	return newPod(name, uid, podid.File, mutate...)
}

func newPod(name, uid string, source podid.Source, mutate ...func(*v1.Pod)) *v1.Pod {
	gracePeriod := int64(30)
	return heraldtest.NewPod(name, append([]func(*v1.Pod){func(pod *v1.Pod) {
		pod.Namespace, pod.UID = "shop", types.UID(uid)
		pod.Annotations = map[string]string{podid.SourceAnnotation: string(source)}
		pod.Spec.TerminationGracePeriodSeconds = &gracePeriod
		pod.Spec.Containers = []v1.Container{{Name: "app", Image: "app:1"}}
	}}, mutate...)...)
}

func withRestartPolicy(policy v1.RestartPolicy) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.RestartPolicy = policy }
}

func withPhase(phase v1.PodPhase) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Status.Phase = phase }
}

func withImage(image string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Containers[0].Image = image }
}

func withContainers(names ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers = nil
		for _, name := range names {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, Image: name + ":1"})
		}
	}
}

// withDeletion returns a copy of the pod with a deletion timestamp.
func withDeletion(pod *v1.Pod, seconds int64) *v1.Pod {
	pod = pod.DeepCopy()
	now := metav1.Now()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &seconds
	return pod
}

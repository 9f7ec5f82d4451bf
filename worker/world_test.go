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

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

// world is a machine with an engine, which outlives every agent, and the agent that drives it now.
type world struct {
	*testing.T
	*worker.Workers
	engine    *engine.Engine
	sight     *sight
	volumes   *volumes
	book      *pod.Manager
	statuses  *status.Manager
	metrics   *prometheus.Registry
	configure func(*worker.Config)
	unready   map[podid.Source]bool
	// hear wakes the workers until ctx ends; default: whenever something happens in the runtime, which sight then shows.
	hear func(ctx context.Context, wake func(podid.UID))

	stop  func() // the agent
	pause func() // its workers alone

	mu     sync.Mutex // guards events
	events []string
}

// inWorld runs a story in a bubble of its own time; the agent runs from its start to its end.
func inWorld(t *testing.T, story func(*world)) { inWorldWith(t, func(*worker.Config) {}, story) }

func inWorldWith(t *testing.T, configure func(*worker.Config), story func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, engine: engine.New(), configure: configure, unready: map[podid.Source]bool{}}
		w.boot()
		defer func() { w.stop() }()
		story(w)
		for _, misdeed := range w.engine.Misdeeds() {
			t.Errorf("the runtime was misused: %s", misdeed)
		}
	})
}

// boot starts an agent that knows nothing.
func (w *world) boot() {
	w.Helper()
	w.sight = &sight{engine: w.engine, last: map[podid.UID]*observed.Pod{}}
	w.volumes = &volumes{mounted: map[podid.UID]bool{}}
	w.book = pod.NewManager()
	w.metrics = prometheus.NewPedanticRegistry()
	var err error
	if w.statuses, err = status.New(status.Config{Pods: w.book}); err != nil {
		w.Fatal(err)
	}
	config := worker.Config{
		Runtime: w.engine, PodCache: w.sight, Statuses: w.statuses, Volumes: w.volumes, Events: w, Metrics: w.metrics,
	}
	w.configure(&config)
	if w.Workers, err = worker.New(config); err != nil {
		w.Fatal(err)
	}
	w.run()
	w.watch()
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Workers.Run(ctx); err != nil {
			w.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	w.pause = func() { cancel(); running.Wait() }
}

// watch has the workers hear of what happens in the runtime.
func (w *world) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	hear, wake := w.hear, w.Wake
	if hear == nil {
		hear = w.sight.hear
	}
	watching.Go(func() { hear(ctx, wake) })
	synctest.Wait()
	w.stop = func() { cancel(); w.pause(); watching.Wait() }
}

// restartAgent ends the agent and starts one that knows nothing; containers go on.
func (w *world) restartAgent() {
	w.stop()
	w.boot()
}

func (w *world) create(p *v1.Pod) {
	w.book.AddPod(p)
	w.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: p})
	synctest.Wait()
}

// delete is what the API server tells of a graceful deletion.
func (w *world) delete(p *v1.Pod, seconds int64) *v1.Pod {
	p = deletedAfter(p, seconds)
	w.book.UpdatePod(p)
	w.UpdatePod(worker.Update{Op: plan.OpUpdate, Pod: p})
	synctest.Wait()
	return p
}

// remove is what a source tells that no longer wants the pod.
func (w *world) remove(p *v1.Pod) {
	w.book.RemovePod(p)
	w.UpdatePod(worker.Update{Op: plan.OpKill, Pod: p})
	synctest.Wait()
}

// see lets the agent know what is there of a pod of which it has not heard yet.
func (w *world) see(uid podid.UID) {
	w.Helper()
	if _, err := w.sight.look(w.Context(), uid); err != nil {
		w.Fatal(err)
	}
}

func (w *world) housekeep() {
	held, _ := w.sight.Pods()
	w.Housekeep(w.book.GetPods(), held, func(s podid.Source) bool { return !w.unready[s] })
	synctest.Wait()
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Event implements event.Recorder.
func (w *world) Event(object runtime.Object, _, reason, message string) {
	var about string
	switch object := object.(type) {
	case *v1.Pod:
		about = object.Name
	case *v1.ObjectReference:
		about = object.Name + "/" + object.FieldPath
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, about+" "+reason+": "+message)
}

func (w *world) heard(reason string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.events, func(e string) bool { return strings.Contains(e, " "+reason+": ") })
}

func (w *world) wantTold(event string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.events, event) {
		w.Errorf("%q was not told, but\n%s", event, strings.Join(w.events, "\n"))
	}
}

func (w *world) countTold(reason string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := 0
	for _, e := range w.events {
		if strings.Contains(e, " "+reason+": ") {
			told++
		}
	}
	return told
}

func (w *world) phase(p *v1.Pod) v1.PodPhase {
	s, _ := w.statuses.GetPodStatus(p.UID)
	return s.Phase
}

func (w *world) waiting(p *v1.Pod, container string) string {
	s, _ := w.statuses.GetPodStatus(p.UID)
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if c.Name == container && c.State.Waiting != nil {
			return c.State.Waiting.Reason
		}
	}
	return ""
}

func (w *world) stage(p *v1.Pod) string {
	for _, state := range w.Pods() {
		if state.UID == podid.UID(p.UID) {
			return state.Stage.String()
		}
	}
	return "unknown"
}

func (w *world) wantStage(p *v1.Pod, want string) {
	w.Helper()
	if got := w.stage(p); got != want {
		w.Fatalf("%s is %s, want %s; transcript:\n%s", p.UID, got, want, strings.Join(w.engine.Transcript(), "\n"))
	}
}

func (w *world) wantPhase(p *v1.Pod, want v1.PodPhase) {
	w.Helper()
	if got := w.phase(p); got != want {
		w.Fatalf("%s is %q, want %q; transcript:\n%s", p.UID, got, want, strings.Join(w.engine.Transcript(), "\n"))
	}
}

// runs reports whether a container of the pod runs.
func (w *world) runs(p *v1.Pod) bool {
	seen, err := w.engine.InspectPod(context.Background(), podid.UID(p.UID))
	return err == nil && seen.Running()
}

// sight is worker.PodCache without a relist: it looks when it is asked.
type sight struct {
	engine *engine.Engine

	mu   sync.Mutex // guards last and blind
	last map[podid.UID]*observed.Pod
	// blind: the complete list was never taken.
	blind bool
}

func (s *sight) Get(uid podid.UID) *observed.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, known := s.last[uid]; known {
		return seen
	}
	return &observed.Pod{UID: uid}
}

func (s *sight) look(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	seen, err := s.engine.InspectPod(ctx, uid)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[uid] = seen
	return seen, nil
}

func (s *sight) hear(ctx context.Context, wake func(podid.UID)) {
	_ = s.engine.WatchPods(ctx, func(uid podid.UID) {
		if _, err := s.look(ctx, uid); err == nil {
			wake(uid)
		}
	})
}

func (s *sight) GetNewerThan(ctx context.Context, uid podid.UID, _ time.Time) (*observed.Pod, error) {
	return s.look(ctx, uid)
}

func (s *sight) Refresh(podid.UID) {}

func (s *sight) setBlind(blind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind = blind
}

func (s *sight) Pods() ([]*observed.Pod, time.Time) {
	s.mu.Lock()
	blind := s.blind
	s.mu.Unlock()
	pods, err := s.engine.ListPods(context.Background())
	if err != nil || blind {
		return nil, time.Time{}
	}
	if pods == nil {
		pods = []*observed.Pod{}
	}
	return pods, time.Now()
}

var errBroken = errors.New("out of order")

// shape changes a pod that a test makes.
type shape func(*v1.Pod)

// apiPod is a pod of the API server with one container, app.
func apiPod(name string, shapes ...shape) *v1.Pod {
	return newPod(name, types.UID("uid-"+name), podid.API, shapes)
}

// staticPod is one from a file, whose UID changes with its manifest.
func staticPod(name, uid string, shapes ...shape) *v1.Pod {
	return newPod(name, types.UID(uid), podid.File, shapes)
}

func newPod(name string, uid types.UID, source podid.Source, shapes []shape) *v1.Pod {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: uid, Annotations: map[string]string{podid.SourceAnnotation: string(source)},
		},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{Name: "app", Image: "app:1"}},
		},
	}
	for _, change := range shapes {
		change(p)
	}
	return p
}

func policy(policy v1.RestartPolicy) shape { return func(p *v1.Pod) { p.Spec.RestartPolicy = policy } }

func inPhase(phase v1.PodPhase) shape { return func(p *v1.Pod) { p.Status.Phase = phase } }

func withContainers(names ...string) shape {
	return func(p *v1.Pod) {
		p.Spec.Containers = nil
		for _, name := range names {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Image: name + ":1"})
		}
	}
}

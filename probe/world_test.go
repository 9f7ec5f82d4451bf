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
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
)

// world is a machine whose containers answer as the test says, and the prober that asks them.
type world struct {
	*testing.T
	*probe.Prober
	metrics *prometheus.Registry
	stop    func()

	mu       sync.Mutex // guards all below
	seen     map[podid.UID]*observed.Pod
	statuses map[types.UID]v1.PodStatus
	answers  map[string]func(context.Context) (int, error) // by the command's first word
	asked    []question
	looking  func()   // what happens during the next look
	telling  func()   // what happens before the next readiness is heard
	told     []string // what the status manager, the workers and the operator hear, in order
}

// question is one command that was run.
type question struct {
	word, container string
	at              time.Duration // since the world began
}

var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when every bubble's time begins

// inWorld runs a story in a bubble of its own time, with an agent that is old enough not to spread its first checks.
func inWorld(t *testing.T, story func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			T: t, seen: map[podid.UID]*observed.Pod{}, statuses: map[types.UID]v1.PodStatus{},
			answers: map[string]func(context.Context) (int, error){},
		}
		w.boot(func(*probe.Config) {})
		defer func() { w.stop() }()
		story(w)
	})
}

// boot starts an agent that knows nothing.
func (w *world) boot(configure func(*probe.Config)) {
	w.Helper()
	w.metrics = prometheus.NewPedanticRegistry()
	config := probe.Config{
		PodCache: w, Statuses: w, Runtime: w, Events: w, Metrics: w.metrics,
		Wake: func(uid podid.UID) { w.say("wake %s", uid) },
	}
	configure(&config)
	var err error
	if w.Prober, err = probe.New(config); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Prober.Run(ctx); err != nil {
			w.Errorf("Run: %v", err)
		}
	})
	w.stop = func() { cancel(); running.Wait() }
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

// heard is what was told since it was last asked for, of what begins like that.
func (w *world) heard(prefix string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var matching []string
	for _, told := range w.told {
		if strings.HasPrefix(told, prefix) {
			matching = append(matching, told)
		}
	}
	w.told = nil
	return matching
}

// Get implements probe.Observations.
func (w *world) Get(uid podid.UID) *observed.Pod {
	w.mu.Lock()
	seen, meanwhile := w.seen[uid], w.looking
	w.looking = nil
	w.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
	if seen == nil {
		return &observed.Pod{UID: uid}
	}
	return seen
}

// GetPodStatus implements probe.Statuses.
func (w *world) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	status, known := w.statuses[uid]
	return status, known
}

// SetContainerReadiness implements probe.Statuses.
func (w *world) SetContainerReadiness(_ types.UID, id observed.ContainerID, ready bool) {
	w.mu.Lock()
	meanwhile := w.telling
	w.telling = nil
	w.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
	w.say("ready %s %v", id.ID, ready)
}

// SetContainerStartup implements probe.Statuses.
func (w *world) SetContainerStartup(_ types.UID, id observed.ContainerID, started bool) {
	w.say("started %s %v", id.ID, started)
}

// Event implements event.Recorder.
func (w *world) Event(object runtime.Object, kind, reason, message string) {
	w.say("event %s %s %s: %s", object.(*v1.ObjectReference).FieldPath, kind, reason, message)
}

// Exec implements check.Runtime. Commands that nobody said anything about succeed.
func (w *world) Exec(ctx context.Context, id observed.ContainerID, command []string) ([]byte, int, error) {
	w.mu.Lock()
	w.asked = append(w.asked, question{command[0], id.ID, time.Since(began)})
	answer := w.answers[command[0]]
	w.mu.Unlock()
	if answer == nil {
		return nil, 0, nil
	}
	code, err := answer(ctx)
	return []byte(command[0] + " said so"), code, err
}

// answer has a command answer like that from now on.
func (w *world) answer(word string, how func(context.Context) (int, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[word] = how
}

func fails(context.Context) (int, error)    { return 1, nil }
func succeeds(context.Context) (int, error) { return 0, nil }
func errs(context.Context) (int, error)     { return 0, errors.New("the runtime is away") }

func hangs(ctx context.Context) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// times are when a command was run, in seconds since the world began.
func (w *world) times(word string) []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var times []float64
	for _, q := range w.asked {
		if q.word == word {
			times = append(times, q.at.Seconds())
		}
	}
	return times
}

// run shows a container of the pod as running since now; the one of that name before it is gone.
func (w *world) run(pod *v1.Pod, name, id string) {
	w.show(pod, observed.Container{Name: name, ID: named(id), State: observed.Running, StartedAt: time.Now()})
}

func (w *world) show(pod *v1.Pod, c observed.Container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid := podid.UID(pod.UID)
	seen := &observed.Pod{UID: uid, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Containers: []observed.Container{c}}
	if before := w.seen[uid]; before != nil {
		seen.Containers = append(seen.Containers, slices.DeleteFunc(slices.Clone(before.Containers), func(old observed.Container) bool {
			return old.Name == c.Name
		})...)
	}
	w.seen[uid] = seen
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func named(id string) observed.ContainerID { return observed.ContainerID{Runtime: "test", ID: id} }

func podOf(containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u"},
		Spec:       v1.PodSpec{Containers: containers},
	}
}

// command is a probe that runs one word each second, times out after one, and decides at once.
func command(word string) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{word}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
	}
}

package pleg_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/podid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runtime is a container runtime in memory. Its pods are replaced, never modified.
type runtime struct {
	mu         sync.Mutex // guards all below
	pods       map[podid.UID]*observed.Pod
	listErr    error
	failing    map[podid.UID]error // inspections of these pods fail
	hanging    map[podid.UID]bool  // and of these wait for their context
	hung       bool                // lists wait for their context
	takes      time.Duration       // an inspection takes so long
	looksFirst bool                // and tells what was there when it began
	listTakes  time.Duration       // and a list, after it has looked
	lists      int
	inspects   map[podid.UID]int
	busy       int
	busiest    int
	events     chan podid.UID // nil: not supported
	broken     chan struct{}  // each value ends a stream
	streams    int
}

func newRuntime() *runtime {
	return &runtime{
		pods: map[podid.UID]*observed.Pod{}, failing: map[podid.UID]error{}, hanging: map[podid.UID]bool{},
		inspects: map[podid.UID]int{},
	}
}

func (r *runtime) ListPods(ctx context.Context) ([]*observed.Pod, error) {
	r.mu.Lock()
	hung := r.hung
	r.mu.Unlock()
	if hung {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.mu.Lock()
	r.lists++
	pods, takes, err := slices.Collect(maps.Values(r.pods)), r.listTakes, r.listErr
	r.mu.Unlock()
	time.Sleep(takes)
	return pods, err
}

func (r *runtime) InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	began := time.Now()
	r.mu.Lock()
	r.inspects[uid]++
	r.busy++
	r.busiest = max(r.busiest, r.busy)
	takes, hangs := r.takes, r.hanging[uid]
	held, found := r.pods[uid]
	r.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	time.Sleep(takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	if hangs {
		return nil, ctx.Err()
	}
	if err := r.failing[uid]; err != nil {
		return nil, err
	}
	if !r.looksFirst {
		held, found = r.pods[uid]
	}
	pod := &observed.Pod{UID: uid}
	if found {
		*pod = *held
	}
	pod.At = began
	return pod, nil
}

func (r *runtime) WatchPods(ctx context.Context, changed func(podid.UID)) error {
	r.mu.Lock()
	r.streams++
	r.mu.Unlock()
	if r.events == nil {
		return errors.ErrUnsupported
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.broken:
			return errors.New("the stream broke")
		case uid := <-r.events:
			changed(uid)
		}
	}
}

// has makes the runtime hold the pod, with a ready sandbox and a container in that state.
func (r *runtime) has(uid podid.UID, state observed.State, change ...func(*observed.Pod)) {
	pod := &observed.Pod{
		UID:       uid,
		Sandboxes: []observed.Sandbox{{ID: "s-" + string(uid), Ready: true}},
		Containers: []observed.Container{{
			ID: observed.ContainerID{Runtime: "test", ID: "c-" + string(uid)}, Name: "main", SandboxID: "s-" + string(uid), State: state,
		}},
	}
	for _, c := range change {
		c(pod)
	}
	r.set(func() { r.pods[uid] = pod })
}

func (r *runtime) set(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

func (r *runtime) count(of *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *of
}

func (r *runtime) inspections(uid podid.UID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inspects[uid]
}

// world is a PLEG at work over a runtime, in a bubble.
type world struct {
	*pleg.PLEG
	t       *testing.T
	runtime *runtime
}

// within runs the test in a bubble, with a PLEG that has made its first list.
func within(t *testing.T, runtime func() *runtime, do func(*world), change ...func(*pleg.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := runtime()
		config := pleg.Config{Runtime: r}
		for _, c := range change {
			c(&config)
		}
		p, err := pleg.New(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = p.Run(ctx) })
		synctest.Wait()
		do(&world{PLEG: p, t: t, runtime: r})
		stop()
		running.Wait()
	})
}

// tick lets one more list be made, and what follows from it happen.
func (w *world) tick() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// changes is what Changed has now; it does not wait.
func (w *world) changes() []podid.UID {
	ctx, cancel := context.WithCancel(w.t.Context())
	synctest.Wait()
	var got []podid.UID
	var reading sync.WaitGroup
	reading.Go(func() { got, _ = w.WaitForChanges(ctx) })
	synctest.Wait()
	cancel()
	reading.Wait()
	return got
}

func (w *world) wantChanges(want ...podid.UID) {
	w.t.Helper()
	if got := w.changes(); !slices.Equal(got, want) {
		w.t.Errorf("changed: %v, want %v", got, want)
	}
}

func (w *world) stateOf(uid podid.UID) observed.State {
	containers := w.Get(uid).Containers
	if len(containers) == 0 {
		return observed.Unknown
	}
	return containers[0].State
}

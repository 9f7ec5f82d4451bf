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

// fakeRuntime is an in-memory container runtime. Its pods are replaced, never modified.
type fakeRuntime struct {
	mu             sync.Mutex // guards the fields below
	pods           map[podid.UID]*observed.Pod
	listErr        error
	inspectErrs    map[podid.UID]error // errors of inspections
	hangingPods    map[podid.UID]bool  // inspections of these pods block until their context ends
	hangingLists   bool                // lists block until their context ends
	inspectDelay   time.Duration
	readsFirst     bool          // an inspection reads the state before inspectDelay instead of after it
	listDelay      time.Duration // between reading the state and returning it
	lists          int
	inspections    map[podid.UID]int
	concurrent     int // running inspections
	maxConcurrent  int
	events         chan podid.UID // nil if events are not supported
	streamFailures chan struct{}  // each value ends a stream
	streams        int
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{
		pods: map[podid.UID]*observed.Pod{}, inspectErrs: map[podid.UID]error{}, hangingPods: map[podid.UID]bool{},
		inspections: map[podid.UID]int{},
	}
}

// newEventRuntime returns a runtime with an event stream.
func newEventRuntime() *fakeRuntime {
	r := newFakeRuntime()
	r.events, r.streamFailures = make(chan podid.UID), make(chan struct{})
	return r
}

func (r *fakeRuntime) ListPods(ctx context.Context) ([]*observed.Pod, error) {
	r.mu.Lock()
	hangs := r.hangingLists
	r.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.mu.Lock()
	r.lists++
	pods, delay, err := slices.Collect(maps.Values(r.pods)), r.listDelay, r.listErr
	r.mu.Unlock()
	time.Sleep(delay)
	return pods, err
}

func (r *fakeRuntime) InspectPod(ctx context.Context, uid podid.UID) (*observed.Pod, error) {
	begin := time.Now()
	r.mu.Lock()
	r.inspections[uid]++
	r.concurrent++
	r.maxConcurrent = max(r.maxConcurrent, r.concurrent)
	delay, hangs := r.inspectDelay, r.hangingPods[uid]
	held, found := r.pods[uid]
	r.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	time.Sleep(delay)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.concurrent--
	if hangs {
		return nil, ctx.Err()
	}
	if err := r.inspectErrs[uid]; err != nil {
		return nil, err
	}
	if !r.readsFirst {
		held, found = r.pods[uid]
	}
	pod := &observed.Pod{UID: uid}
	if found {
		*pod = *held
	}
	pod.At = begin
	return pod, nil
}

func (r *fakeRuntime) WatchPods(ctx context.Context, changed func(podid.UID)) error {
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
		case <-r.streamFailures:
			return errors.New("stream failed")
		case uid := <-r.events:
			changed(uid)
		}
	}
}

// setPod adds or replaces a pod with a ready sandbox and a container in the given state.
func (r *fakeRuntime) setPod(uid podid.UID, state observed.State, mutate ...func(*observed.Pod)) {
	pod := &observed.Pod{
		UID:       uid,
		Sandboxes: []observed.Sandbox{{ID: "s-" + string(uid), Ready: true}},
		Containers: []observed.Container{{
			ID: observed.ContainerID{Runtime: "test", ID: "c-" + string(uid)}, Name: "main", SandboxID: "s-" + string(uid), State: state,
		}},
	}
	for _, change := range mutate {
		change(pod)
	}
	r.update(func() { r.pods[uid] = pod })
}

// update calls change with the lock held.
func (r *fakeRuntime) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// read returns the value of a counter of the runtime.
func (r *fakeRuntime) read(counter *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *counter
}

func (r *fakeRuntime) inspectionsOf(uid podid.UID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inspections[uid]
}

// harness is a running PLEG with a fake runtime in a synctest bubble.
type harness struct {
	*pleg.PLEG
	t       *testing.T
	runtime *fakeRuntime
}

// run calls test in a bubble with a PLEG that has made its first relist.
func run(t *testing.T, newRuntime func() *fakeRuntime, test func(*harness), configure ...func(*pleg.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		config := pleg.Config{Runtime: r}
		for _, change := range configure {
			change(&config)
		}
		p, err := pleg.New(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = p.Run(ctx) })
		synctest.Wait()
		test(&harness{PLEG: p, t: t, runtime: r})
		stop()
		running.Wait()
	})
}

// relist waits for one more relist and the inspections that follow.
func (h *harness) relist() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// changes returns the pending changes without blocking.
func (h *harness) changes() []podid.UID {
	ctx, cancel := context.WithCancel(h.t.Context())
	synctest.Wait()
	var got []podid.UID
	var reading sync.WaitGroup
	reading.Go(func() { got, _ = h.WaitForChanges(ctx) })
	synctest.Wait()
	cancel()
	reading.Wait()
	return got
}

func (h *harness) wantChanges(want ...podid.UID) {
	h.t.Helper()
	if got := h.changes(); !slices.Equal(got, want) {
		h.t.Errorf("changes: got %v, want %v", got, want)
	}
}

func (h *harness) stateOf(uid podid.UID) observed.State {
	containers := h.Get(uid).Containers
	if len(containers) == 0 {
		return observed.Unknown
	}
	return containers[0].State
}

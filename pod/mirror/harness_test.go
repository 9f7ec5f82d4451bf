package mirror_test

import (
	"context"
	"fmt"
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

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodeName = "n1"

func withUID(uid types.UID) func(*v1.Pod) { return func(pod *v1.Pod) { pod.UID = uid } }

// newUserPod returns a pod on this node as a user creates it.
func newUserPod(name string) *v1.Pod {
	return heraldtest.NewPod(name, withUID(""), heraldtest.OnNode(nodeName))
}

func newAPIPod(name string, uid types.UID) *v1.Pod {
	return heraldtest.NewPod(name, withUID(uid), heraldtest.OnNode(nodeName), func(pod *v1.Pod) {
		pod.Annotations = map[string]string{podid.SourceAnnotation: string(podid.API)}
	})
}

// newStaticPod returns a static pod whose UID is its hash, as the sources compute it (CFG-6).
func newStaticPod(name string, uid types.UID) *v1.Pod {
	return heraldtest.NewPod(name, withUID(uid), heraldtest.OnNode(nodeName), heraldtest.Static(podid.File))
}

// newMirrorPod returns the mirror of a static pod with this hash, as the API source delivers it.
func newMirrorPod(name string, uid types.UID, hash string) *v1.Pod {
	isController := true
	return heraldtest.NewPod(name, withUID(uid), heraldtest.OnNode(nodeName), func(pod *v1.Pod) {
		pod.Annotations = map[string]string{
			podid.SourceAnnotation: string(podid.API), podid.HashAnnotation: hash, podid.MirrorAnnotation: hash,
		}
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: nodeName, UID: "node-uid", Controller: &isController,
		}}
	})
}

func fullName(name string) podid.FullName {
	return podid.FullName{Namespace: metav1.NamespaceDefault, Name: name}
}

// harness is a node with its pod manager and Reconciler, and a cluster whose watch feeds the pod manager.
type harness struct {
	*testing.T
	*fakeCluster
	pods       *pod.Manager
	reconciler *mirror.Reconciler
	metrics    *prometheus.Registry

	mu           sync.Mutex // guards all below
	events       []string
	watchLag     time.Duration
	watchBroken  bool // the watch drops changes
	terminating  map[podid.FullName]bool
	sourcesReady bool
	changes      chan change
}

// change is an event of the watch.
type change struct {
	before, after *v1.Pod
	time          time.Time
}

// run executes the test in a synctest bubble in which the Reconciler runs.
func run(t *testing.T, test func(*harness)) {
	t.Helper()
	runWith(t, func(*mirror.Config) {}, test)
}

// runWith is run with a modified config.
func runWith(t *testing.T, configure func(*mirror.Config), test func(*harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, configure)
		defer h.start()()
		test(h)
		if len(h.violations) > 0 {
			h.Errorf("violations: %q", h.violations)
		}
	})
}

func newHarness(t *testing.T, configure ...func(*mirror.Config)) *harness {
	t.Helper()
	h := &harness{
		T:            t,
		fakeCluster:  newFakeCluster(),
		pods:         pod.NewManager(),
		metrics:      prometheus.NewPedanticRegistry(),
		terminating:  map[podid.FullName]bool{},
		sourcesReady: true,
		changes:      make(chan change, 10_000),
	}
	h.onChange = func(before, after *v1.Pod) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.watchBroken {
			h.changes <- change{before, after, time.Now()}
		}
	}
	config := mirror.Config{
		NodeName:           nodeName,
		Pods:               h.pods,
		API:                h.fakeCluster,
		Terminating:        func(name podid.FullName) bool { return locked(h, func() bool { return h.terminating[name] }) },
		StaticSourcesReady: func() bool { return locked(h, func() bool { return h.sourcesReady }) },
		Events:             h,
		Metrics:            h.metrics,
	}
	for _, change := range configure {
		change(&config)
	}
	var err error
	if h.reconciler, err = mirror.New(config); err != nil {
		t.Fatal(err)
	}
	return h
}

// locked calls access under the harness's lock.
func locked[T any](h *harness, access func() T) T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return access()
}

func (h *harness) setTerminating(name string, terminating bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.terminating[fullName(name)] = terminating
}

func (h *harness) setWatchLag(lag time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchLag = lag
}

func (h *harness) setSourcesReady(ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sourcesReady = ready
}

// start runs the Reconciler and the watch until stop is called.
func (h *harness) start() (stop func()) {
	ctx, cancel := context.WithCancel(h.Context())
	var running sync.WaitGroup
	running.Go(func() { h.watch(ctx) })
	running.Go(func() {
		if err := h.reconciler.Run(ctx); err != nil {
			h.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return func() { cancel(); running.Wait() }
}

// watch delivers the changes in order, each after the watch's lag.
func (h *harness) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-h.changes:
			lag := locked(h, func() time.Duration { return h.watchLag })
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(change.time.Add(lag))):
			}
			h.deliver(change)
		}
	}
}

// deliver updates the pod manager as the API source and its consumer do.
func (h *harness) deliver(change change) {
	changed := change.after
	if changed == nil {
		changed = change.before
	}
	if changed.Spec.NodeName != nodeName {
		return
	}
	watched := changed.DeepCopy()
	metav1.SetMetaDataAnnotation(&watched.ObjectMeta, podid.SourceAnnotation, string(podid.API))
	if change.after == nil {
		h.pods.RemovePod(watched)
	} else {
		h.pods.UpdatePod(watched)
	}
	h.reconciler.Enqueue(podid.FullNameOf(watched))
}

// Event implements event.Recorder.
func (h *harness) Event(object runtime.Object, eventType, reason, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprint(eventType, " ", reason, " ", object.(*v1.Pod).Name))
}

func (h *harness) addStaticPod(name string, uid types.UID) *v1.Pod {
	static := newStaticPod(name, uid)
	h.pods.AddPod(static)
	h.reconciler.Enqueue(fullName(name))
	return static
}

func (h *harness) removeStaticPod(name string) {
	if static, _ := h.pods.GetStaticPodAndMirrorPod(fullName(name)); static != nil {
		h.pods.RemovePod(static)
		h.reconciler.Enqueue(fullName(name))
	}
}

// replaceStaticPod has the effect of a changed manifest: another UID (CFG-35).
func (h *harness) replaceStaticPod(name string, uid types.UID) {
	h.removeStaticPod(name)
	h.addStaticPod(name, uid)
}

// advance lets time pass and waits until every goroutine is blocked.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantMirror checks that the cluster has the static pod's mirror pod and that the pod manager translates its UID.
func (h *harness) wantMirror(name string) *v1.Pod {
	h.Helper()
	static, _ := h.pods.GetStaticPodAndMirrorPod(fullName(name))
	stored := h.pod(fullName(name))
	switch {
	case static == nil || stored == nil:
		h.Fatalf("%s: got static pod %v and mirror pod %v, want both", name, static, stored)
	case !podid.IsMirrorOf(stored, static) || stored.DeletionTimestamp != nil:
		h.Errorf("%s: got %v, want a live mirror pod of %v", name, stored.ObjectMeta, static.ObjectMeta)
	case h.pods.TranslatePodUID(stored.UID) != podid.UID(static.UID):
		h.Errorf("%s: got translated UID %s, want %s", name, h.pods.TranslatePodUID(stored.UID), static.UID)
	}
	return stored
}

func (h *harness) wantNoMirror(name string) {
	h.Helper()
	if stored := h.pod(fullName(name)); stored != nil {
		h.Errorf("%s: got mirror pod %s, want none", name, stored.UID)
	}
}

func (h *harness) wantRequests(want map[string]int) {
	h.Helper()
	if diff := cmp.Diff(want, h.takeRequests()); diff != "" {
		h.Errorf("requests (-want +got):\n%s", diff)
	}
}

func (h *harness) wantNoRequests() {
	h.Helper()
	h.wantRequests(map[string]int{})
}

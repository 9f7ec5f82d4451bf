package pod_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

// world is a node with its Manager and Mirrors, and a cluster whose watch feeds the Manager.
type world struct {
	*testing.T
	*cluster
	pods    *pod.Manager
	mirrors *pod.Mirrors
	metrics *prometheus.Registry

	mu           sync.Mutex // guards all below
	events       []string
	lag          time.Duration
	deaf         bool // the watch loses what happens
	terminating  map[podid.FullName]bool
	sourcesReady bool
	changes      chan change
}

// change is one event of the watch, on its way since at.
type change struct {
	before, after *v1.Pod
	at            time.Time
}

// inWorld runs the story in a bubble of its own time; Mirrors runs from its start to its end.
func inWorld(t *testing.T, story func(*world)) {
	t.Helper()
	inWorldWith(t, func(*pod.MirrorConfig) {}, story)
}

// inWorldWith is inWorld with another config.
func inWorldWith(t *testing.T, configure func(*pod.MirrorConfig), story func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, configure)
		defer w.start()()
		story(w)
		if len(w.misdeeds) > 0 {
			w.Errorf("misdeeds: %q", w.misdeeds)
		}
	})
}

func newWorld(t *testing.T, configure ...func(*pod.MirrorConfig)) *world {
	t.Helper()
	w := &world{
		T:            t,
		cluster:      newCluster(),
		pods:         pod.NewManager(),
		metrics:      prometheus.NewPedanticRegistry(),
		terminating:  map[podid.FullName]bool{},
		sourcesReady: true,
		changes:      make(chan change, 10_000),
	}
	w.hear = func(before, after *v1.Pod) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.deaf {
			w.changes <- change{before, after, time.Now()}
		}
	}
	config := pod.MirrorConfig{
		NodeName:           nodeName,
		Pods:               w.pods,
		API:                w.cluster,
		Terminating:        func(name podid.FullName) bool { return with(w, func() bool { return w.terminating[name] }) },
		StaticSourcesReady: func() bool { return with(w, func() bool { return w.sourcesReady }) },
		Events:             w,
		Metrics:            w.metrics,
	}
	for _, change := range configure {
		change(&config)
	}
	var err error
	if w.mirrors, err = pod.NewMirrors(config); err != nil {
		t.Fatal(err)
	}
	return w
}

// with reads or changes the world's own part.
func with[T any](w *world, do func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return do()
}

// start runs Mirrors and the watch until the returned function is called.
func (w *world) start() (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() { w.watch(ctx) })
	running.Go(func() {
		if err := w.mirrors.Run(ctx); err != nil {
			w.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return func() { cancel(); running.Wait() }
}

// watch delivers the changes in their order, each not before its lag is over.
func (w *world) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-w.changes:
			lag := with(w, func() time.Duration { return w.lag })
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(change.at.Add(lag))):
			}
			w.deliver(change)
		}
	}
}

// deliver does what the API source and its consumer do: mark, file, wake.
func (w *world) deliver(change change) {
	either := change.after
	if either == nil {
		either = change.before
	}
	if either.Spec.NodeName != nodeName {
		return
	}
	seen := either.DeepCopy()
	if seen.Annotations == nil {
		seen.Annotations = map[string]string{}
	}
	seen.Annotations[podid.SourceAnnotation] = "api"
	if change.after == nil {
		w.pods.RemovePod(seen)
	} else {
		w.pods.UpdatePod(seen)
	}
	w.mirrors.Wake(podid.FullNameOf(seen))
}

func (w *world) Event(object runtime.Object, eventtype, reason, _ string) {
	with(w, func() any {
		w.events = append(w.events, fmt.Sprint(eventtype, " ", reason, " ", object.(*v1.Pod).Name))
		return nil
	})
}

// addStatic is what a source's addition comes to.
func (w *world) addStatic(name string, uid types.UID) *v1.Pod {
	static := staticPod(name, uid)
	w.pods.AddPod(static)
	w.mirrors.Wake(fullName(name))
	return static
}

func (w *world) removeStatic(name string) {
	if static, _ := w.pods.GetStaticPodAndMirrorPod(fullName(name)); static != nil {
		w.pods.RemovePod(static)
		w.mirrors.Wake(fullName(name))
	}
}

// editStatic is what a changed manifest comes to: another UID (CFG-35).
func (w *world) editStatic(name string, uid types.UID) {
	w.removeStatic(name)
	w.addStatic(name, uid)
}

// pass lets time go by until everything waits for something later.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantMirror checks that the cluster has the static pod's mirror, and that the Manager translates between them.
func (w *world) wantMirror(name string) *v1.Pod {
	w.Helper()
	static, _ := w.pods.GetStaticPodAndMirrorPod(fullName(name))
	mirror := w.pod(fullName(name))
	switch {
	case static == nil || mirror == nil:
		w.Fatalf("%s: static pod %v, in the cluster %v", name, static, mirror)
	case !podid.Reflects(mirror, static) || mirror.DeletionTimestamp != nil:
		w.Errorf("%s: the cluster has %v, which is not the live mirror of %v", name, mirror.ObjectMeta, static.ObjectMeta)
	case w.pods.TranslatePodUID(mirror.UID) != podid.UID(static.UID):
		w.Errorf("%s: mirror %s is not translated to %s", name, mirror.UID, static.UID)
	}
	return mirror
}

func (w *world) wantSent(want map[string]int) {
	w.Helper()
	if diff := cmp.Diff(want, w.sent()); diff != "" {
		w.Errorf("requests (-want +got):\n%s", diff)
	}
}

func (w *world) wantNothingSent() {
	w.Helper()
	w.wantSent(map[string]int{})
}

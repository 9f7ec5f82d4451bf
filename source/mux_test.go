package source_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// muxHarness is a running Mux with fake sources in a synctest bubble.
type muxHarness struct {
	t     *testing.T
	mux   *source.Mux
	sinks map[podid.Source]source.Sink
}

func newMuxHarness(t *testing.T, mutate func(*source.MuxConfig), names ...podid.Source) *muxHarness {
	t.Helper()
	m := &muxHarness{t: t, sinks: map[podid.Source]source.Sink{}}
	config := source.MuxConfig{}
	var fakes []*fakeSource
	for _, name := range names {
		s := newFakeSource(name)
		fakes = append(fakes, s)
		config.Sources = append(config.Sources, s)
	}
	if mutate != nil {
		mutate(&config)
	}
	mux, err := source.NewMux(config)
	if err != nil {
		t.Fatal(err)
	}
	m.mux = mux
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mux.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range mux.Updates() {
		}
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	for _, s := range fakes {
		m.sinks[s.name] = <-s.sink
	}
	return m
}

// receiveUpdates receives and acknowledges all pending updates.
func (m *muxHarness) receiveUpdates() (updates []source.Update) {
	for {
		synctest.Wait()
		select {
		case u, open := <-m.mux.Updates():
			if !open {
				return updates
			}
			updates = append(updates, u)
			u.Ack()
		default:
			return updates
		}
	}
}

func (m *muxHarness) expectUpdates(want ...string) []source.Update {
	m.t.Helper()
	updates := m.receiveUpdates()
	var got []string
	for _, u := range updates {
		got = append(got, describe(u))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Fatalf("updates (-want +got):\n%s", diff)
	}
	return updates
}

func TestCFG35_BatchOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.API)
		api := m.sinks[podid.API]
		api.Replace([]*v1.Pod{
			newPod("web", "u1"), newPod("up", "u2", withVersion("1")), newPod("del", "u3", withVersion("1")), newPod("rec", "u4", withVersion("1")),
			newPod("same", "u5", withVersion("1")),
		})
		m.expectUpdates("api ADD web/u1 up/u2 del/u3 rec/u4 same/u5")
		api.Replace([]*v1.Pod{
			newPod("rec", "u4", withVersion("2"), withPhase(v1.PodRunning)), newPod("del", "u3", withVersion("2"), terminating),
			newPod("up", "u2", withVersion("2"), withImage("new")), newPod("web", "u6"), newPod("same", "u5", withVersion("1")),
		})
		m.expectUpdates("api REMOVE web/u1", "api ADD web/u6", "api UPDATE up/u2", "api DELETE del/u3", "api RECONCILE rec/u4")
	})
}

func TestCFG37_CFG38_Operation(t *testing.T) {
	base := func() *v1.Pod {
		return newPod("web", "u", withVersion("1"), withAnnotation("team", "red"), withAnnotation(podid.HashAnnotation, "h"))
	}
	tests := map[string]struct {
		mutate func(*v1.Pod)
		want   []string
	}{
		"nothing": {mutate: func(*v1.Pod) {}},
		"spec":    {mutate: withImage("other"), want: []string{"api UPDATE web/u"}},
		"labels": {
			mutate: func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, want: []string{"api UPDATE web/u"},
		},
		"annotation": {mutate: withAnnotation("team", "blue"), want: []string{"api UPDATE web/u"}},
		"annotation removed": {
			mutate: func(p *v1.Pod) { delete(p.Annotations, "team") }, want: []string{"api UPDATE web/u"},
		},
		"hash":             {mutate: withAnnotation(podid.HashAnnotation, "h2"), want: []string{"api UPDATE web/u"}},
		"deletion":         {mutate: terminating, want: []string{"api DELETE web/u"}},
		"status":           {mutate: withPhase(v1.PodRunning), want: []string{"api RECONCILE web/u"}},
		"resource version": {mutate: withVersion("2"), want: []string{"api RECONCILE web/u"}},
		"generation":       {mutate: func(p *v1.Pod) { p.Generation = 7 }, want: []string{"api RECONCILE web/u"}},
		"finalizers": {
			mutate: func(p *v1.Pod) { p.Finalizers = []string{"x/y"} }, want: []string{"api RECONCILE web/u"},
		},
		"owners": {
			mutate: func(p *v1.Pod) { p.OwnerReferences = make([]metav1.OwnerReference, 1) },
			want:   []string{"api RECONCILE web/u"},
		},
		"source annotation":         {mutate: withAnnotation(podid.SourceAnnotation, "file")},
		"first-seen":                {mutate: withAnnotation(podid.SeenAnnotation, "yesterday")},
		"mirror annotation":         {mutate: withAnnotation(podid.MirrorAnnotation, "h")},
		"managed fields":            {mutate: func(p *v1.Pod) { p.ManagedFields = make([]metav1.ManagedFieldsEntry, 1) }},
		"empty list instead of nil": {mutate: func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMuxHarness(t, nil, podid.API)
				first := base()
				first.ResourceVersion = "" // compare the fields
				m.sinks[podid.API].Replace([]*v1.Pod{first})
				m.expectUpdates("api ADD web/u")
				second := base()
				second.ResourceVersion = ""
				test.mutate(second)
				m.sinks[podid.API].Apply([]*v1.Pod{second}, nil)
				m.expectUpdates(test.want...)
			})
		})
	}
}

func TestCFG37_UpdateContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.API)
		api := m.sinks[podid.API]
		api.Replace([]*v1.Pod{newPod("web", "u", withVersion("1"))})
		seen := m.expectUpdates("api ADD web/u")[0].Pods[0].Annotations[podid.SeenAnnotation]
		time.Sleep(time.Minute)
		api.Apply([]*v1.Pod{newPod("web", "u", withVersion("2"), withImage("new"), withPhase(v1.PodRunning), withAnnotation("a", "b"), terminating,
			func(p *v1.Pod) { p.Generation, p.Finalizers = 3, []string{"x/y"} })}, nil)
		got := m.expectUpdates("api DELETE web/u")[0].Pods[0]
		want := newPod("web", "u", withVersion("2"), withImage("new"), withPhase(v1.PodRunning), withAnnotation("a", "b"), terminating,
			withAnnotation(podid.SourceAnnotation, "api"), withAnnotation(podid.SeenAnnotation, seen),
			func(p *v1.Pod) { p.Generation, p.Finalizers = 3, []string{"x/y"} })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("delivered pod (-want +got):\n%s", diff)
		}
	})
}

func TestCFG38_LocalAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.API)
		api := m.sinks[podid.API]
		api.Replace([]*v1.Pod{newPod("web", "u", withAnnotation(podid.SourceAnnotation, "file"))})
		first := m.expectUpdates("api ADD web/u")[0].Pods[0]
		if podid.SourceOf(first) != podid.API {
			t.Fatalf("got source %q, want api", podid.SourceOf(first))
		}
		api.Apply([]*v1.Pod{newPod("web", "u", withImage("new"), withAnnotation(podid.MirrorAnnotation, "h"),
			withAnnotation(podid.SourceAnnotation, "http"), withAnnotation(podid.SeenAnnotation, "never"))}, nil)
		second := m.expectUpdates("api UPDATE web/u")[0].Pods[0]
		if diff := cmp.Diff(first.Annotations, second.Annotations); diff != "" {
			t.Fatalf("annotations (-want +got):\n%s", diff)
		}
	})
}

func TestCFG6_AnnotationsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File)
		given := newPod("web", "u", withAnnotation("team", "red"))
		untouched := given.DeepCopy()
		m.sinks[podid.File].Replace([]*v1.Pod{given})
		got := m.expectUpdates("file ADD web/u")[0].Pods[0]
		want := map[string]string{
			"team": "red", podid.SourceAnnotation: "file", podid.SeenAnnotation: time.Now().Format(time.RFC3339Nano),
		}
		if diff := cmp.Diff(want, got.Annotations); diff != "" {
			t.Fatalf("annotations (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(untouched, given); diff != "" {
			t.Fatalf("the pod of the source changed (-want +got):\n%s", diff)
		}
	})
}

func TestCFG39_RemovedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.API)
		m.sinks[podid.API].Replace([]*v1.Pod{newPod("web", "u", withVersion("1"))})
		m.expectUpdates("api ADD web/u")
		m.sinks[podid.API].Apply([]*v1.Pod{newPod("web", "u", withVersion("2"), withImage("new"))}, nil)
		delivered := m.expectUpdates("api UPDATE web/u")[0].Pods[0]
		m.sinks[podid.API].Apply(nil, []types.UID{"u", "unknown"})
		if gone := m.expectUpdates("api REMOVE web/u")[0].Pods[0]; gone != delivered {
			t.Fatalf("got %v, want the pod that was delivered last", gone)
		}
	})
}

func TestCFG39_UndeliveredGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File, podid.API)
		m.sinks[podid.API].Replace([]*v1.Pod{newPod("web", "u", withVersion("1"))})
		m.expectUpdates("api ADD web/u")
		m.sinks[podid.File].Replace([]*v1.Pod{newPod("db", "v")}) // not received yet, so that the following changes accumulate
		synctest.Wait()
		m.sinks[podid.API].Apply([]*v1.Pod{newPod("web", "u", withVersion("2"), terminating)}, nil) // force deletion: grace period 0
		m.sinks[podid.API].Apply(nil, []types.UID{"u"})
		gone := m.expectUpdates("file ADD db/v", "api REMOVE web/u")[1].Pods[0]
		if grace := gone.DeletionGracePeriodSeconds; grace == nil || *grace != 0 {
			t.Fatalf("got grace period %v, want 0 as last known", grace)
		}
	})
}

func TestCFG40_EmptyFirstSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File)
		m.sinks[podid.File].Replace(nil)
		m.expectUpdates("file ADD")
		m.sinks[podid.File].Replace(nil)
		m.expectUpdates()
	})
}

func TestCFG41_ReadyAfterAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File, podid.API)
		ready := func(want bool) {
			t.Helper()
			synctest.Wait()
			if got := m.mux.Ready(podid.API); got != want {
				t.Fatalf("Ready(api): got %v, want %v", got, want)
			}
		}
		m.sinks[podid.File].Replace(nil)
		m.expectUpdates("file ADD")
		m.sinks[podid.API].Apply([]*v1.Pod{newPod("early", "u0")}, nil)
		m.expectUpdates("api ADD early/u0")
		ready(false) // a change is not a set
		m.sinks[podid.API].Replace([]*v1.Pod{newPod("web", "u1")})
		ready(false)
		remove, add := <-m.mux.Updates(), <-m.mux.Updates()
		ready(false) // received, but not acknowledged
		add.Ack()
		add.Ack()
		ready(false)
		if m.mux.AllReady() {
			t.Fatal("AllReady: got true before the API source is ready, want false")
		}
		remove.Ack()
		ready(true)
		if !m.mux.AllReady() || !m.mux.Ready(podid.HTTP) {
			t.Fatal("got not ready, want a source that is not configured to be ready (CFG-32)")
		}
	})
}

func TestBUG11_SilentSourceBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.API, podid.File)
		file := m.sinks[podid.File]
		file.Replace([]*v1.Pod{newPod("etcd", "u1")})
		m.expectUpdates("file ADD etcd/u1")
		if !m.mux.Ready(podid.File) || m.mux.Ready(podid.API) || m.mux.AllReady() {
			t.Fatal("got another readiness, want file ready and api not ready")
		}
		file.Replace([]*v1.Pod{newPod("etcd", "u2")})
		m.expectUpdates("file REMOVE etcd/u1", "file ADD etcd/u2")
		file.Replace(nil)
		m.expectUpdates("file REMOVE etcd/u2")
	})
}

func TestMux_SlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File, podid.API)
		file, api := m.sinks[podid.File], m.sinks[podid.API]
		file.Replace([]*v1.Pod{newPod("a", "a1"), newPod("b", "b1"), newPod("c", "c1")})
		m.expectUpdates("file ADD a/a1 b/b1 c/c1")
		file.Replace([]*v1.Pod{newPod("a", "a2"), newPod("b", "b1"), newPod("c", "c1")})
		synctest.Wait() // the Mux now waits for the consumer to receive the change of a
		for range 100 {
			file.Replace([]*v1.Pod{newPod("b", "b1", withImage("half")), newPod("passing", "p1")})
			file.Replace([]*v1.Pod{newPod("b", "b1", withImage("done")), newPod("c", "c1"), newPod("d", "d1")})
			api.Replace([]*v1.Pod{newPod("x", "x1")})
		}
		updates := m.expectUpdates("file REMOVE a/a1", "file ADD a/a2", "api ADD x/x1",
			"file REMOVE a/a2 c/c1", "file ADD c/c1 d/d1", "file UPDATE b/b1")
		if got := updates[5].Pods[0].Spec.Containers[0].Image; got != "done" {
			t.Fatalf("got image %q, want done", got)
		}
	})
}

func TestCFG36_DuplicateName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.HTTP)
		http := m.sinks[podid.HTTP]
		http.Replace([]*v1.Pod{newPod("web", "u1"), newPod("web", "u2"), newPod("db", "u3")})
		m.expectUpdates("http ADD web/u1 db/u3")
		want := "web_default: metadata.name: not started (UID u2): conflicts with pod web_default (UID u1, source http); " +
			"it starts when that pod is removed"
		if got := problemText(m.mux.Problems()); got != want {
			t.Fatalf("problems: got %q, want %q", got, want)
		}
		http.Replace([]*v1.Pod{newPod("web", "u2"), newPod("web", "u1"), newPod("db", "u3")})
		m.expectUpdates() // the order of a set does not matter
		http.Replace([]*v1.Pod{newPod("web", "u2"), newPod("db", "u3")})
		m.expectUpdates("http REMOVE web/u1", "http ADD web/u2")
		if problems := m.mux.Problems(); len(problems) != 0 {
			t.Fatalf("problems: got %v, want none", problems)
		}
	})
}

func TestMux_DuplicateNameAcrossSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File, podid.HTTP, podid.API)
		file, http, api := m.sinks[podid.File], m.sinks[podid.HTTP], m.sinks[podid.API]
		file.Replace([]*v1.Pod{newPod("web", "f1")})
		m.expectUpdates("file ADD web/f1")
		api.Replace([]*v1.Pod{newPod("web", "a1"), newPod("db", "a2")})
		m.expectUpdates("api ADD web/a1 db/a2") // the kubelet runs both too
		http.Replace([]*v1.Pod{newPod("web", "h1"), newPod("web", "h2")})
		m.expectUpdates("http ADD")
		if got := len(m.mux.Problems()); got != 2 {
			t.Fatalf("got %d problems, want 2", got)
		}
		file.Replace([]*v1.Pod{newPod("web", "f2")})
		m.expectUpdates("file REMOVE web/f1", "file ADD web/f2") // an edited pod keeps its name
		http.Replace([]*v1.Pod{newPod("web", "h2"), newPod("web", "h1", withImage("new"))})
		m.expectUpdates() // and a waiting pod its place
		api.Apply(nil, []types.UID{"a1"})
		m.expectUpdates("api REMOVE web/a1")
		file.Replace(nil)
		added := m.expectUpdates("file REMOVE web/f2", "http ADD web/h1")[1].Pods[0] // the earliest arrival
		if got := added.Spec.Containers[0].Image; got != "new" {
			t.Fatalf("got image %s, want new", got)
		}
		http.Replace(nil)
		m.expectUpdates("http REMOVE web/h1")
		if problems := m.mux.Problems(); len(problems) != 0 {
			t.Fatalf("problems: got %v, want none", problems)
		}
	})
}

func TestMux_MirrorPodSharesName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File, podid.API)
		mirror := newPod("web", "m1", withAnnotation(podid.MirrorAnnotation, ""))
		m.sinks[podid.API].Replace([]*v1.Pod{mirror})
		m.expectUpdates("api ADD web/m1")
		m.sinks[podid.File].Replace([]*v1.Pod{newPod("web", "f1", withAnnotation(podid.MirrorAnnotation, "h"))})
		m.expectUpdates("file ADD web/f1")
		m.sinks[podid.File].Replace([]*v1.Pod{newPod("web", "f1", withAnnotation(podid.MirrorAnnotation, "h")), newPod("web", "f2")})
		m.expectUpdates()
		m.sinks[podid.API].Apply(nil, []types.UID{"m1"})
		m.expectUpdates("api REMOVE web/m1") // the static pod still has the name
	})
}

func TestMux_DuplicateUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuxHarness(t, nil, podid.File, podid.API)
		m.sinks[podid.File].Replace([]*v1.Pod{newPod("web", "u"), newPod("db", "u"), newPod("none", "")})
		m.expectUpdates("file ADD web/u")
		m.sinks[podid.API].Replace([]*v1.Pod{newPod("other", "u")})
		m.expectUpdates("api ADD")
		if got := len(m.mux.Problems()); got != 3 {
			t.Fatalf("got %d problems, want 3: %v", got, m.mux.Problems())
		}
		m.sinks[podid.File].Replace([]*v1.Pod{newPod("renamed", "u")})
		m.expectUpdates("file REMOVE web/u", "file ADD renamed/u") // same UID, other name: another pod
		m.sinks[podid.File].Replace(nil)
		m.expectUpdates("file REMOVE renamed/u", "api ADD other/u")
	})
}

func TestMux_SourceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := newFakeSource(podid.HTTP)
		broken.err = errors.New("broken")
		m := newMuxHarness(t, func(c *source.MuxConfig) { c.Sources = append(c.Sources, broken) }, podid.File)
		m.sinks[podid.File].Replace([]*v1.Pod{newPod("web", "u")})
		m.expectUpdates("file ADD web/u")
		problems := m.mux.Problems()
		if len(problems) != 1 || problems[0].Source != podid.HTTP {
			t.Fatalf("got problems %v, want one of source http", problems)
		}
	})
}

func TestMuxConfig_Validation(t *testing.T) {
	file := newFakeSource(podid.File)
	tests := map[string]struct {
		config source.MuxConfig
		want   string
	}{
		"no source": {source.MuxConfig{}, "source.MuxConfig: Sources is required"},
		"duplicate name": {
			source.MuxConfig{Sources: []source.Source{file, file}}, `source.MuxConfig: Sources contains two sources named "file"`,
		},
		"no node name": {
			source.MuxConfig{Sources: []source.Source{file}, Events: &fakeRecorder{}},
			"source.MuxConfig: NodeName is required with Events",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := source.NewMux(test.config); err == nil || err.Error() != test.want {
				t.Fatalf("got error %v, want %s", err, test.want)
			}
		})
	}
}

func TestOp_String(t *testing.T) {
	var got []string
	for op := source.OpRemove; op <= source.OpReconcile+1; op++ {
		got = append(got, op.String())
	}
	want := []string{"REMOVE", "ADD", "UPDATE", "DELETE", "RECONCILE", "Op(6)"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	source.Update{}.Ack() // must not panic
}

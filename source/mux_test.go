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

// merged is a running Mux with scripted sources, inside a synctest bubble.
type merged struct {
	t     *testing.T
	mux   *source.Mux
	sinks map[podid.Source]source.Sink
}

func merge(t *testing.T, edit func(*source.MuxConfig), names ...podid.Source) *merged {
	t.Helper()
	m := &merged{t: t, sinks: map[podid.Source]source.Sink{}}
	config := source.MuxConfig{}
	var scripts []*scripted
	for _, name := range names {
		s := newScripted(name)
		scripts = append(scripts, s)
		config.Sources = append(config.Sources, s)
	}
	if edit != nil {
		edit(&config)
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
	for _, s := range scripts {
		m.sinks[s.name] = <-s.sink
	}
	return m
}

// receive takes all that is to be delivered now, as a consumer that acts on each batch at once.
func (m *merged) receive() (updates []source.Update) {
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

func (m *merged) expect(want ...string) []source.Update {
	m.t.Helper()
	updates := m.receive()
	var got []string
	for _, u := range updates {
		got = append(got, written(u))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Fatalf("batches (-want +got):\n%s", diff)
	}
	return updates
}

func TestCFG35BatchesComeInOrderAndTheOldPodOfANameLeavesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.API)
		api := m.sinks[podid.API]
		api.Replace([]*v1.Pod{
			pod("web", "u1"), pod("up", "u2", version("1")), pod("del", "u3", version("1")), pod("rec", "u4", version("1")),
			pod("same", "u5", version("1")),
		})
		m.expect("api ADD web/u1 up/u2 del/u3 rec/u4 same/u5")
		api.Replace([]*v1.Pod{
			pod("rec", "u4", version("2"), phase(v1.PodRunning)), pod("del", "u3", version("2"), deleted),
			pod("up", "u2", version("2"), image("new")), pod("web", "u6"), pod("same", "u5", version("1")),
		})
		m.expect("api REMOVE web/u1", "api ADD web/u6", "api UPDATE up/u2", "api DELETE del/u3", "api RECONCILE rec/u4")
	})
}

func TestCFG37AndCFG38WhatAChangeMeans(t *testing.T) {
	base := func() *v1.Pod {
		return pod("web", "u", version("1"), annotated("team", "red"), annotated(podid.HashAnnotation, "h"))
	}
	tests := map[string]struct {
		edit func(*v1.Pod)
		want []string
	}{
		"nothing": {edit: func(*v1.Pod) {}},
		"spec":    {edit: image("other"), want: []string{"api UPDATE web/u"}},
		"labels": {
			edit: func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, want: []string{"api UPDATE web/u"},
		},
		"an annotation": {edit: annotated("team", "blue"), want: []string{"api UPDATE web/u"}},
		"an annotation that is gone": {
			edit: func(p *v1.Pod) { delete(p.Annotations, "team") }, want: []string{"api UPDATE web/u"},
		},
		"the hash":         {edit: annotated(podid.HashAnnotation, "h2"), want: []string{"api UPDATE web/u"}},
		"deletion":         {edit: deleted, want: []string{"api DELETE web/u"}},
		"status":           {edit: phase(v1.PodRunning), want: []string{"api RECONCILE web/u"}},
		"resource version": {edit: version("2"), want: []string{"api RECONCILE web/u"}},
		"generation":       {edit: func(p *v1.Pod) { p.Generation = 7 }, want: []string{"api RECONCILE web/u"}},
		"finalizers": {
			edit: func(p *v1.Pod) { p.Finalizers = []string{"x/y"} }, want: []string{"api RECONCILE web/u"},
		},
		"owners": {
			edit: func(p *v1.Pod) { p.OwnerReferences = make([]metav1.OwnerReference, 1) },
			want: []string{"api RECONCILE web/u"},
		},
		"source annotation":   {edit: annotated(podid.SourceAnnotation, "file")},
		"first-seen":          {edit: annotated(podid.SeenAnnotation, "yesterday")},
		"mirror annotation":   {edit: annotated(podid.MirrorAnnotation, "h")},
		"who wrote a field":   {edit: func(p *v1.Pod) { p.ManagedFields = make([]metav1.ManagedFieldsEntry, 1) }},
		"nil for empty lists": {edit: func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := merge(t, nil, podid.API)
				first := base()
				first.ResourceVersion = "" // so that the fields decide
				m.sinks[podid.API].Replace([]*v1.Pod{first})
				m.expect("api ADD web/u")
				second := base()
				second.ResourceVersion = ""
				test.edit(second)
				m.sinks[podid.API].Apply([]*v1.Pod{second}, nil)
				m.expect(test.want...)
			})
		})
	}
}

func TestCFG37AnUpdateCarriesAllThatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.API)
		api := m.sinks[podid.API]
		api.Replace([]*v1.Pod{pod("web", "u", version("1"))})
		seen := m.expect("api ADD web/u")[0].Pods[0].Annotations[podid.SeenAnnotation]
		time.Sleep(time.Minute)
		api.Apply([]*v1.Pod{pod("web", "u", version("2"), image("new"), phase(v1.PodRunning), annotated("a", "b"), deleted,
			func(p *v1.Pod) { p.Generation, p.Finalizers = 3, []string{"x/y"} })}, nil)
		got := m.expect("api DELETE web/u")[0].Pods[0]
		want := pod("web", "u", version("2"), image("new"), phase(v1.PodRunning), annotated("a", "b"), deleted,
			annotated(podid.SourceAnnotation, "api"), annotated(podid.SeenAnnotation, seen),
			func(p *v1.Pod) { p.Generation, p.Finalizers = 3, []string{"x/y"} })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("delivered pod (-want +got):\n%s", diff)
		}
	})
}

func TestCFG38LocalAnnotationsAreNeverOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.API)
		api := m.sinks[podid.API]
		api.Replace([]*v1.Pod{pod("web", "u", annotated(podid.SourceAnnotation, "file"))})
		first := m.expect("api ADD web/u")[0].Pods[0]
		if podid.SourceOf(first) != podid.API {
			t.Fatalf("source %q, want api", podid.SourceOf(first))
		}
		api.Apply([]*v1.Pod{pod("web", "u", image("new"), annotated(podid.MirrorAnnotation, "h"),
			annotated(podid.SourceAnnotation, "http"), annotated(podid.SeenAnnotation, "never"))}, nil)
		second := m.expect("api UPDATE web/u")[0].Pods[0]
		if diff := cmp.Diff(first.Annotations, second.Annotations); diff != "" {
			t.Fatalf("annotations changed (-before +after):\n%s", diff)
		}
	})
}

func TestCFG6AnnotationsAreAddedWithoutTouchingTheSourcesObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File)
		given := pod("web", "u", annotated("team", "red"))
		untouched := given.DeepCopy()
		m.sinks[podid.File].Replace([]*v1.Pod{given})
		got := m.expect("file ADD web/u")[0].Pods[0]
		want := map[string]string{
			"team": "red", podid.SourceAnnotation: "file", podid.SeenAnnotation: time.Now().Format(time.RFC3339Nano),
		}
		if diff := cmp.Diff(want, got.Annotations); diff != "" {
			t.Fatalf("annotations (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(untouched, given); diff != "" {
			t.Fatalf("the source's object was changed:\n%s", diff)
		}
	})
}

func TestCFG39ARemovalCarriesTheLastKnownObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.API)
		m.sinks[podid.API].Replace([]*v1.Pod{pod("web", "u", version("1"))})
		m.expect("api ADD web/u")
		m.sinks[podid.API].Apply([]*v1.Pod{pod("web", "u", version("2"), image("new"))}, nil)
		told := m.expect("api UPDATE web/u")[0].Pods[0]
		m.sinks[podid.API].Apply(nil, []types.UID{"u", "unknown"})
		if gone := m.expect("api REMOVE web/u")[0].Pods[0]; gone != told {
			t.Fatalf("removed %v, want the object that was told last", gone)
		}
	})
}

func TestCFG39ARemovalCarriesHowThePodIsToEndEvenIfBothCameAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File, podid.API)
		m.sinks[podid.API].Replace([]*v1.Pod{pod("web", "u", version("1"))})
		m.expect("api ADD web/u")
		m.sinks[podid.File].Replace([]*v1.Pod{pod("db", "v")}) // nobody takes it yet, so that what follows piles up
		synctest.Wait()
		m.sinks[podid.API].Apply([]*v1.Pod{pod("web", "u", version("2"), deleted)}, nil) // by force: grace 0
		m.sinks[podid.API].Apply(nil, []types.UID{"u"})
		gone := m.expect("file ADD db/v", "api REMOVE web/u")[1].Pods[0]
		if grace := gone.DeletionGracePeriodSeconds; grace == nil || *grace != 0 {
			t.Fatalf("removed with grace %v, want 0: what was last known of it", grace)
		}
	})
}

func TestCFG40TheFirstSetAnnouncesItselfEvenWhenEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File)
		m.sinks[podid.File].Replace(nil)
		m.expect("file ADD")
		m.sinks[podid.File].Replace(nil)
		m.expect()
	})
}

func TestCFG41ASourceIsReadyWhenTheConsumerHasActedOnItsFirstSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File, podid.API)
		ready := func(want bool) {
			t.Helper()
			synctest.Wait()
			if got := m.mux.Ready(podid.API); got != want {
				t.Fatalf("Ready(api) = %v, want %v", got, want)
			}
		}
		m.sinks[podid.File].Replace(nil)
		m.expect("file ADD")
		m.sinks[podid.API].Apply([]*v1.Pod{pod("early", "u0")}, nil)
		m.expect("api ADD early/u0")
		ready(false) // a change is not a set
		m.sinks[podid.API].Replace([]*v1.Pod{pod("web", "u1")})
		ready(false)
		remove, add := <-m.mux.Updates(), <-m.mux.Updates()
		ready(false) // received, but nothing done yet
		add.Ack()
		add.Ack()
		ready(false)
		if m.mux.AllReady() {
			t.Fatal("AllReady before the API source was")
		}
		remove.Ack()
		ready(true)
		if !m.mux.AllReady() || !m.mux.Ready(podid.HTTP) {
			t.Fatal("a source that is not configured is waited for (CFG-32)")
		}
	})
}

func TestBUG11ASourceThatNeverSpeaksBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.API, podid.File)
		file := m.sinks[podid.File]
		file.Replace([]*v1.Pod{pod("etcd", "u1")})
		m.expect("file ADD etcd/u1")
		if !m.mux.Ready(podid.File) || m.mux.Ready(podid.API) || m.mux.AllReady() {
			t.Fatal("want file ready, api not")
		}
		file.Replace([]*v1.Pod{pod("etcd", "u2")})
		m.expect("file REMOVE etcd/u1", "file ADD etcd/u2")
		file.Replace(nil)
		m.expect("file REMOVE etcd/u2")
	})
}

func TestASlowConsumerGetsTheNewestStateAndEveryRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File, podid.API)
		file, api := m.sinks[podid.File], m.sinks[podid.API]
		file.Replace([]*v1.Pod{pod("a", "a1"), pod("b", "b1"), pod("c", "c1")})
		m.expect("file ADD a/a1 b/b1 c/c1")
		file.Replace([]*v1.Pod{pod("a", "a2"), pod("b", "b1"), pod("c", "c1")})
		synctest.Wait() // the Mux now waits for the consumer with a's change
		for range 100 {
			file.Replace([]*v1.Pod{pod("b", "b1", image("half")), pod("passing", "p1")})
			file.Replace([]*v1.Pod{pod("b", "b1", image("done")), pod("c", "c1"), pod("d", "d1")})
			api.Replace([]*v1.Pod{pod("x", "x1")})
		}
		updates := m.expect("file REMOVE a/a1", "file ADD a/a2", "api ADD x/x1",
			"file REMOVE a/a2 c/c1", "file ADD c/c1 d/d1", "file UPDATE b/b1")
		if got := updates[5].Pods[0].Spec.Containers[0].Image; got != "done" {
			t.Fatalf("image %q, want the newest", got)
		}
	})
}

func TestCFG36TheFirstOfTwoPodsWithOneNameStaysAndTheOtherFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.HTTP)
		http := m.sinks[podid.HTTP]
		http.Replace([]*v1.Pod{pod("web", "u1"), pod("web", "u2"), pod("db", "u3")})
		m.expect("http ADD web/u1 db/u3")
		want := "web_default: metadata.name: held back with UID u2, because pod web_default " +
			"with UID u1 from source http was there first; it runs when that pod is gone"
		if got := texts(m.mux.Problems()); got != want {
			t.Fatalf("problems:\n%s", got)
		}
		http.Replace([]*v1.Pod{pod("web", "u2"), pod("web", "u1"), pod("db", "u3")})
		m.expect() // the order of a set is no reason to restart anything
		http.Replace([]*v1.Pod{pod("web", "u2"), pod("db", "u3")})
		m.expect("http REMOVE web/u1", "http ADD web/u2")
		if problems := m.mux.Problems(); len(problems) != 0 {
			t.Fatalf("problems stay: %v", problems)
		}
	})
}

func TestAcrossSourcesTheFirstPodOfANameStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File, podid.HTTP, podid.API)
		file, http, api := m.sinks[podid.File], m.sinks[podid.HTTP], m.sinks[podid.API]
		file.Replace([]*v1.Pod{pod("web", "f1")})
		m.expect("file ADD web/f1")
		api.Replace([]*v1.Pod{pod("web", "a1"), pod("db", "a2")})
		m.expect("api ADD db/a2")
		http.Replace([]*v1.Pod{pod("web", "h1")})
		m.expect("http ADD")
		if got := len(m.mux.Problems()); got != 2 {
			t.Fatalf("%d problems, want one for each pod that waits", got)
		}
		file.Replace([]*v1.Pod{pod("web", "f2")})
		m.expect("file REMOVE web/f1", "file ADD web/f2") // an edit does not lose the name
		api.Apply([]*v1.Pod{pod("web", "a1", version("2"))}, nil)
		m.expect() // nor does one lose the place among those that wait
		file.Replace(nil)
		added := m.expect("file REMOVE web/f2", "api ADD web/a1")[1].Pods[0] // the one that waited longest
		if added.ResourceVersion != "2" {
			t.Fatal("an old version was kept while it waited")
		}
		http.Replace(nil)
		m.expect()
		api.Apply(nil, []types.UID{"a1"})
		m.expect("api REMOVE web/a1")
		if problems := m.mux.Problems(); len(problems) != 0 {
			t.Fatalf("problems stay: %v", problems)
		}
	})
}

func TestAMirrorIsNoDuplicateOfItsStaticPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File, podid.API)
		mirror := pod("web", "m1", annotated(podid.MirrorAnnotation, ""))
		m.sinks[podid.API].Replace([]*v1.Pod{mirror})
		m.expect("api ADD web/m1")
		m.sinks[podid.File].Replace([]*v1.Pod{pod("web", "f1", annotated(podid.MirrorAnnotation, "claimed"))})
		m.expect("file ADD web/f1")
		m.sinks[podid.API].Replace([]*v1.Pod{mirror, pod("web", "a1")})
		m.expect()
		m.sinks[podid.API].Apply(nil, []types.UID{"m1"})
		m.expect("api REMOVE web/m1") // the name still belongs to the static pod
	})
}

func TestTwoPodsNeverShareAUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := merge(t, nil, podid.File, podid.API)
		m.sinks[podid.File].Replace([]*v1.Pod{pod("web", "u"), pod("db", "u"), pod("none", "")})
		m.expect("file ADD web/u")
		m.sinks[podid.API].Replace([]*v1.Pod{pod("other", "u")})
		m.expect("api ADD")
		if got := len(m.mux.Problems()); got != 3 {
			t.Fatalf("%d problems, want 3: %v", got, m.mux.Problems())
		}
		m.sinks[podid.File].Replace([]*v1.Pod{pod("renamed", "u")})
		m.expect("file REMOVE web/u", "file ADD renamed/u") // a pinned UID is not the name of two pods in turn
		m.sinks[podid.File].Replace(nil)
		m.expect("file REMOVE renamed/u", "api ADD other/u")
	})
}

func TestASourceThatStopsIsShownAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := newScripted(podid.HTTP)
		broken.fail = errors.New("no such thing")
		m := merge(t, func(c *source.MuxConfig) { c.Sources = append(c.Sources, broken) }, podid.File)
		m.sinks[podid.File].Replace([]*v1.Pod{pod("web", "u")})
		m.expect("file ADD web/u")
		problems := m.mux.Problems()
		if len(problems) != 1 || problems[0].Source != podid.HTTP {
			t.Fatalf("problems: %v", problems)
		}
	})
}

func TestTheMuxSaysWhichFieldOfItsConfigurationIsWrong(t *testing.T) {
	file := newScripted(podid.File)
	tests := map[string]struct {
		config source.MuxConfig
		want   string
	}{
		"no source": {source.MuxConfig{}, "source.MuxConfig.Sources: want at least one"},
		"two with a name": {
			source.MuxConfig{Sources: []source.Source{file, file}}, `source.MuxConfig.Sources: two are named "file"`,
		},
		"events need Node": {
			source.MuxConfig{Sources: []source.Source{file}, Events: &events{}},
			"source.MuxConfig.Node: required with Events",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := source.NewMux(test.config); err == nil || err.Error() != test.want {
				t.Fatalf("error %v, want %s", err, test.want)
			}
		})
	}
}

func TestOperationsHaveTheKubeletsNames(t *testing.T) {
	var got []string
	for op := source.OpRemove; op <= source.OpReconcile+1; op++ {
		got = append(got, op.String())
	}
	want := []string{"REMOVE", "ADD", "UPDATE", "DELETE", "RECONCILE", "Op(6)"}
	if !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	source.Update{}.Ack() // nobody waits for it
}

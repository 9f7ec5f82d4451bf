package source_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// TestReplayingTheBatchesGivesWhatTheSourcesWant drives three sources with random sets and changes, and a consumer that
// takes batches when it likes. Whatever the order, the batches are consistent at every moment, and in the end the
// consumer has exactly the newest version of every pod that is not held back.
func TestReplayingTheBatchesGivesWhatTheSourcesWant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inBubble := struct{ rapid.TB }{t} // a *testing.T would be asked for its deadline, which a bubble has not
		rapid.Check(inBubble, func(t *rapid.T) {
			s := startStory(t)
			defer s.end(t)
			t.Repeat(map[string]func(*rapid.T){
				"replace": func(t *rapid.T) { s.replace(drawSource(t), rapid.SliceOfN(drawPod(), 0, 6).Draw(t, "set")) },
				"apply": func(t *rapid.T) {
					s.apply(drawSource(t), drawPod().Draw(t, "pod"), types.UID(drawUID().Draw(t, "gone")))
				},
				"consume": func(t *rapid.T) { s.consume(t, rapid.IntRange(1, 4).Draw(t, "batches")) },
			})
			s.consume(t, -1)
			s.check(t)
		})
	})
}

var allSources = []podid.Source{podid.File, podid.HTTP, podid.API}

func drawSource(t *rapid.T) podid.Source { return rapid.SampledFrom(allSources).Draw(t, "source") }

func drawUID() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"u1", "u2", "u3", "u4", "u5", "u6", "u7"})
}

func drawPod() *rapid.Generator[*v1.Pod] {
	return rapid.Custom(func(t *rapid.T) *v1.Pod {
		p := pod(rapid.SampledFrom([]string{"web", "db", "log"}).Draw(t, "name"), drawUID().Draw(t, "uid"))
		p.Spec.Containers[0].Image = rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "image")
		p.Status.Phase = rapid.SampledFrom([]v1.PodPhase{v1.PodPending, v1.PodRunning}).Draw(t, "phase")
		if rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
			deleted(p)
		}
		if rapid.IntRange(0, 4).Draw(t, "mirror") == 0 {
			annotated(podid.MirrorAnnotation, "h")(p)
		}
		return p
	})
}

// key is a pod of one source.
type key struct {
	source podid.Source
	uid    types.UID
}

type story struct {
	mux    *source.Mux
	cancel context.CancelFunc
	ended  chan error
	sinks  map[podid.Source]source.Sink
	wanted map[podid.Source][]*v1.Pod // the model: what each source wants, in order
	has    map[key]*v1.Pod            // what the consumer has made of the batches
}

func startStory(t *rapid.T) *story {
	s := &story{
		ended: make(chan error), sinks: map[podid.Source]source.Sink{},
		wanted: map[podid.Source][]*v1.Pod{}, has: map[key]*v1.Pod{},
	}
	config := source.MuxConfig{}
	for _, name := range allSources {
		config.Sources = append(config.Sources, newScripted(name))
	}
	mux, err := source.NewMux(config)
	if err != nil {
		t.Fatal(err)
	}
	s.mux = mux
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { s.ended <- mux.Run(ctx) }()
	for _, script := range config.Sources {
		s.sinks[script.Name()] = <-script.(*scripted).sink
	}
	return s
}

func (s *story) end(t *rapid.T) {
	s.cancel()
	for range s.mux.Updates() {
	}
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
}

func (s *story) replace(name podid.Source, pods []*v1.Pod) {
	s.sinks[name].Replace(pods)
	s.wanted[name] = nil
	for _, p := range pods {
		s.want(name, p)
	}
}

func (s *story) apply(name podid.Source, changed *v1.Pod, gone types.UID) {
	s.sinks[name].Apply([]*v1.Pod{changed}, []types.UID{gone})
	s.wanted[name] = slices.DeleteFunc(s.wanted[name], func(p *v1.Pod) bool {
		return p.UID == gone || p.UID == changed.UID
	})
	s.want(name, changed)
}

// want adds to the model; the first pod with a UID counts.
func (s *story) want(name podid.Source, p *v1.Pod) {
	if !slices.ContainsFunc(s.wanted[name], func(other *v1.Pod) bool { return other.UID == p.UID }) {
		s.wanted[name] = append(s.wanted[name], p)
	}
}

// consume takes so many batches, or all that there are.
func (s *story) consume(t *rapid.T, batches int) {
	for ; batches != 0; batches-- {
		synctest.Wait()
		select {
		case u := <-s.mux.Updates():
			s.play(t, u)
		default:
			return
		}
	}
}

func (s *story) play(t *rapid.T, u source.Update) {
	for _, p := range u.Pods {
		k := key{u.Source, p.UID}
		_, known := s.has[k]
		switch {
		case known == (u.Op == source.OpAdd):
			t.Fatalf("%s: known is %v", written(u), known)
		case u.Op == source.OpRemove:
			delete(s.has, k)
		default:
			s.has[k] = p
		}
		if u.Op == source.OpDelete && p.DeletionTimestamp == nil {
			t.Fatalf("%s: not being deleted", written(u))
		}
	}
	if u.Op == source.OpRemove {
		return
	}
	names, uids := map[podid.FullName]key{}, map[types.UID]key{}
	for k, p := range s.has {
		if other, taken := uids[k.uid]; taken {
			t.Fatalf("after %s: %v and %v share a UID", written(u), other, k)
		}
		uids[k.uid] = k
		if isAPIMirror(k.source, p) {
			continue
		}
		if other, taken := names[podid.FullNameOf(p)]; taken {
			t.Fatalf("after %s: %v and %v share a name", written(u), other, k)
		}
		names[podid.FullNameOf(p)] = k
	}
}

func isAPIMirror(from podid.Source, p *v1.Pod) bool { return from == podid.API && podid.IsMirror(p) }

func (s *story) check(t *rapid.T) {
	wanted := 0
	for _, name := range allSources {
		for _, want := range s.wanted[name] {
			wanted++
			if got, found := s.has[key{name, want.UID}]; found {
				if imageOf(got) != imageOf(want) || got.Status.Phase != want.Status.Phase ||
					!got.DeletionTimestamp.Equal(want.DeletionTimestamp) || podid.SourceOf(got) != name || got.Name != want.Name {
					t.Fatalf("%s of %s is %+v, want %+v", want.UID, name, got, want)
				}
			} else if !s.blocked(want) {
				t.Fatalf("%s of %s is missing, though its name and UID are free", want.UID, name)
			}
		}
	}
	for k := range s.has {
		if !slices.ContainsFunc(s.wanted[k.source], func(p *v1.Pod) bool { return p.UID == k.uid }) {
			t.Fatalf("%v is not wanted", k)
		}
	}
	held := 0
	for _, p := range s.mux.Problems() {
		if p.Field == "metadata.name" || p.Field == "metadata.uid" {
			held++
		}
	}
	if waiting := wanted - len(s.has); held < waiting {
		t.Fatalf("%d pods wait, %d problems tell so", waiting, held)
	}
}

// blocked reports whether a pod that the consumer has stands in the way of this one.
func (s *story) blocked(p *v1.Pod) bool {
	for k, other := range s.has {
		if k.uid == p.UID || podid.FullNameOf(other) == podid.FullNameOf(p) && !isAPIMirror(k.source, other) {
			return true
		}
	}
	return false
}

func imageOf(p *v1.Pod) string { return p.Spec.Containers[0].Image }

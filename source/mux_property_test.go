package source_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// TestMux_ReplayedUpdatesMatchSources drives three sources with random sets and changes, and a consumer that
// receives updates at random times. The consumer's pods are consistent after each update, and in the end it has exactly
// the newest version of every pod that does not wait.
func TestMux_ReplayedUpdatesMatchSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inBubble := struct{ rapid.TB }{t} // rapid calls Deadline of a *testing.T, which panics in a bubble
		rapid.Check(inBubble, func(t *rapid.T) {
			h := startReplay(t)
			defer h.stop(t)
			t.Repeat(map[string]func(*rapid.T){
				"replace": func(t *rapid.T) { h.replace(drawSource(t), rapid.SliceOfN(drawPod(), 0, 6).Draw(t, "set")) },
				"apply": func(t *rapid.T) {
					h.apply(drawSource(t), drawPod().Draw(t, "pod"), types.UID(drawUID().Draw(t, "deleted")))
				},
				"receive": func(t *rapid.T) { h.receive(t, rapid.IntRange(1, 4).Draw(t, "updates")) },
			})
			h.receive(t, -1)
			h.verify(t)
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
		p := newPod(rapid.SampledFrom([]string{"web", "db", "log"}).Draw(t, "name"), drawUID().Draw(t, "uid"))
		p.Spec.Containers[0].Image = rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "image")
		p.Status.Phase = rapid.SampledFrom([]v1.PodPhase{v1.PodPending, v1.PodRunning}).Draw(t, "phase")
		if rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
			terminating(p)
		}
		if rapid.IntRange(0, 4).Draw(t, "mirror") == 0 {
			withAnnotation(podid.MirrorAnnotation, "h")(p)
		}
		return p
	})
}

// podKey identifies a pod of one source.
type podKey struct {
	source podid.Source
	uid    types.UID
}

// replayHarness runs a Mux beside a model of its sources and its consumer.
type replayHarness struct {
	mux      *source.Mux
	cancel   context.CancelFunc
	done     chan error
	sinks    map[podid.Source]source.Sink
	desired  map[podid.Source][]*v1.Pod // the pods of each source, in order
	consumed map[podKey]*v1.Pod         // the pods of the consumer
}

func startReplay(t *rapid.T) *replayHarness {
	h := &replayHarness{
		done: make(chan error), sinks: map[podid.Source]source.Sink{},
		desired: map[podid.Source][]*v1.Pod{}, consumed: map[podKey]*v1.Pod{},
	}
	config := source.MuxConfig{}
	for _, name := range allSources {
		config.Sources = append(config.Sources, newFakeSource(name))
	}
	mux, err := source.NewMux(config)
	if err != nil {
		t.Fatal(err)
	}
	h.mux = mux
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	go func() { h.done <- mux.Run(ctx) }()
	for _, fake := range config.Sources {
		h.sinks[fake.Name()] = <-fake.(*fakeSource).sink
	}
	return h
}

func (h *replayHarness) stop(t *rapid.T) {
	h.cancel()
	for range h.mux.Updates() {
	}
	if err := <-h.done; err != nil {
		t.Fatal(err)
	}
}

func (h *replayHarness) replace(name podid.Source, pods []*v1.Pod) {
	h.sinks[name].Replace(pods)
	h.desired[name] = nil
	for _, p := range pods {
		h.addDesired(name, p)
	}
}

func (h *replayHarness) apply(name podid.Source, updated *v1.Pod, deleted types.UID) {
	h.sinks[name].Apply([]*v1.Pod{updated}, []types.UID{deleted})
	h.desired[name] = slices.DeleteFunc(h.desired[name], func(p *v1.Pod) bool {
		return p.UID == deleted || p.UID == updated.UID
	})
	h.addDesired(name, updated)
}

// addDesired adds a pod to the model unless it has a pod with the same UID.
func (h *replayHarness) addDesired(name podid.Source, p *v1.Pod) {
	if !slices.ContainsFunc(h.desired[name], func(other *v1.Pod) bool { return other.UID == p.UID }) {
		h.desired[name] = append(h.desired[name], p)
	}
}

// receive receives that many updates, or all pending ones if it is negative.
func (h *replayHarness) receive(t *rapid.T, updates int) {
	for ; updates != 0; updates-- {
		synctest.Wait()
		select {
		case update := <-h.mux.Updates():
			h.consume(t, update)
		default:
			return
		}
	}
}

// consume applies an update to the consumer's pods.
func (h *replayHarness) consume(t *rapid.T, u source.Update) {
	for _, p := range u.Pods {
		k := podKey{u.Source, p.UID}
		_, known := h.consumed[k]
		switch {
		case known == (u.Op == source.OpAdd):
			t.Fatalf("%s: got known %v, want the opposite", describe(u), known)
		case u.Op == source.OpRemove:
			delete(h.consumed, k)
		default:
			h.consumed[k] = p
		}
		if u.Op == source.OpDelete && p.DeletionTimestamp == nil {
			t.Fatalf("%s: got no deletion timestamp, want one", describe(u))
		}
	}
	if u.Op == source.OpRemove {
		return
	}
	names, uids := map[string]podKey{}, map[types.UID]podKey{}
	for k, p := range h.consumed {
		if other, taken := uids[k.uid]; taken {
			t.Fatalf("after %s: %v and %v share a UID", describe(u), other, k)
		}
		uids[k.uid] = k
		if isAPIMirror(k.source, p) {
			continue
		}
		name := fmt.Sprint(k.source == podid.API, podid.FullNameOf(p)) // an API pod may have the name of a static pod
		if other, taken := names[name]; taken {
			t.Fatalf("after %s: %v and %v share a name", describe(u), other, k)
		}
		names[name] = k
	}
}

func isAPIMirror(from podid.Source, p *v1.Pod) bool { return from == podid.API && podid.IsMirror(p) }

func (h *replayHarness) verify(t *rapid.T) {
	desired := 0
	for _, name := range allSources {
		for _, want := range h.desired[name] {
			desired++
			if got, found := h.consumed[podKey{name, want.UID}]; found {
				if imageOf(got) != imageOf(want) || got.Status.Phase != want.Status.Phase ||
					!got.DeletionTimestamp.Equal(want.DeletionTimestamp) || podid.SourceOf(got) != name || got.Name != want.Name {
					t.Fatalf("pod %s of %s: got %+v, want %+v", want.UID, name, got, want)
				}
			} else if !h.isBlocked(name, want) {
				t.Fatalf("pod %s of %s: got none, want it because its name and UID are free", want.UID, name)
			}
		}
	}
	for k := range h.consumed {
		if !slices.ContainsFunc(h.desired[k.source], func(p *v1.Pod) bool { return p.UID == k.uid }) {
			t.Fatalf("got pod %v, which no source has", k)
		}
	}
	conflicts := 0
	for _, p := range h.mux.Problems() {
		if p.Field == "metadata.name" || p.Field == "metadata.uid" {
			conflicts++
		}
	}
	if waiting := desired - len(h.consumed); conflicts < waiting {
		t.Fatalf("got %d conflicts, want at least %d", conflicts, waiting)
	}
}

// isBlocked reports whether a pod of the consumer has the UID or the name of this one.
func (h *replayHarness) isBlocked(source podid.Source, p *v1.Pod) bool {
	for k, other := range h.consumed {
		sharesName := podid.FullNameOf(other) == podid.FullNameOf(p) && (k.source == podid.API) == (source == podid.API)
		if k.uid == p.UID || sharesName && !isAPIMirror(k.source, other) {
			return true
		}
	}
	return false
}

func imageOf(p *v1.Pod) string { return p.Spec.Containers[0].Image }

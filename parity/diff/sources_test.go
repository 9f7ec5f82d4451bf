package diff_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// batch is one delivery in a form that both sides can be compared in.
type batch struct {
	Op, Source string
	Pods       []string // UID, and what of the pod counts
}

func describe(pods []*v1.Pod) []string {
	var all []string
	for _, p := range pods {
		all = append(all, fmt.Sprintf("%s name=%s image=%s label=%s phase=%s deleted=%v source=%s",
			p.UID, p.Name, p.Spec.Containers[0].Image, p.Labels["l"], p.Status.Phase, p.DeletionTimestamp != nil, podid.SourceOf(p)))
	}
	slices.Sort(all)
	return all
}

// muxes are the kubelet's merging of sources and ours, side by side.
type muxes struct {
	kubelet *config.PodConfig
	send    map[string]func([]*v1.Pod)
	close   []func() // end the kubelet's listeners
	herald  *source.Mux
	sources map[string]*teller
	got     []batch
	mu      sync.Mutex // guards got
}

// teller is a source that says what a test wants it to say.
type teller struct {
	name podid.Source
	sets chan []*v1.Pod
}

func (s *teller) Name() podid.Source { return s.name }

func (s *teller) Run(ctx context.Context, sink source.Sink) error {
	for {
		select {
		case pods := <-s.sets:
			sink.Replace(pods)
		case <-ctx.Done():
			return nil
		}
	}
}

// nobody observes nothing: the kubelet wants to tell somebody when it first saw a pod.
type nobody struct{}

func (nobody) ObservedPodOnWatch(*v1.Pod, time.Time) {}

func newMuxes(ctx context.Context, t *rapid.T) *muxes {
	m := &muxes{
		kubelet: config.NewPodConfig(&record.FakeRecorder{}, nobody{}),
		send:    map[string]func([]*v1.Pod){}, sources: map[string]*teller{},
	}
	var all []source.Source
	for _, name := range []string{"api", "file"} {
		send, closed := sender(m.kubelet.Channel(ctx, name))
		m.send[name], m.close = send, append(m.close, closed)
		m.sources[name] = &teller{name: podid.Source(name), sets: make(chan []*v1.Pod)}
		all = append(all, m.sources[name])
	}
	var err error
	if m.herald, err = source.NewMux(source.MuxConfig{Sources: all}); err != nil {
		t.Fatal(err)
	}
	return m
}

// sender fills the one field of the kubelet's message, whose type it keeps to itself.
func sender[T any](channel chan<- T) (send func([]*v1.Pod), closed func()) {
	send = func(pods []*v1.Pod) {
		var message T
		reflect.ValueOf(&message).Elem().FieldByName("Pods").Set(reflect.ValueOf(pods))
		channel <- message
	}
	return send, func() { close(channel) }
}

func (m *muxes) consume() {
	for update := range m.herald.Updates() {
		m.mu.Lock()
		m.got = append(m.got, batch{Op: update.Op.String(), Source: string(update.Source), Pods: describe(update.Pods)})
		m.mu.Unlock()
		update.Ack()
	}
}

// step tells both the same set and returns what each delivered.
func (m *muxes) step(from string, pods []*v1.Pod) (kubelet, herald []batch) {
	m.send[from](copied(pods))
	m.sources[from].sets <- copied(pods)
	synctest.Wait()
	for len(m.kubelet.Updates()) > 0 {
		update := <-m.kubelet.Updates()
		kubelet = append(kubelet, batch{Op: opName(update.Op), Source: update.Source, Pods: describe(update.Pods)})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	herald, m.got = m.got, nil
	return kubelet, herald
}

func opName(op kubetypes.PodOperation) string {
	return map[kubetypes.PodOperation]string{
		kubetypes.ADD: "ADD", kubetypes.UPDATE: "UPDATE", kubetypes.REMOVE: "REMOVE",
		kubetypes.DELETE: "DELETE", kubetypes.RECONCILE: "RECONCILE",
	}[op]
}

func copied(pods []*v1.Pod) []*v1.Pod {
	var all []*v1.Pod
	for _, p := range pods {
		all = append(all, p.DeepCopy())
	}
	return all
}

// setOf draws a complete set of a source: up to four pods, each of one of two lives, in one of a few states.
func setOf(t *rapid.T, from string) []*v1.Pod {
	var pods []*v1.Pod
	for _, name := range []string{"a", "b", "c", "d"} {
		life := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, name)
		if life == "" {
			continue
		}
		draw := func(what string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name+"."+what) }
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: from + "-" + name, Namespace: "ns", UID: types.UID(from + name + life), Labels: map[string]string{"l": draw("label", "x", "y")},
			},
			Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: draw("image", "one", "two")}}},
			Status: v1.PodStatus{Phase: v1.PodPhase(draw("phase", "Pending", "Running"))},
		}
		if draw("deleted", "no", "no", "yes") == "yes" {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		pods = append(pods, p)
	}
	return pods
}

// TestCFG35ToCFG40SourcesAreMergedAsTheKubeletMergesThem tells both the same sets, one source after the other at random,
// and compares every batch: operation, order, and what the pods in it say.
func TestCFG35ToCFG40SourcesAreMergedAsTheKubeletMergesThem(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.IntRange(1, 12).Draw(rt, "steps")
		type told struct {
			from string
			set  []*v1.Pod
		}
		var story []told
		for range steps {
			from := rapid.SampledFrom([]string{"api", "file"}).Draw(rt, "from")
			story = append(story, told{from, setOf(rt, from)})
		}
		var differs string
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			m := newMuxes(ctx, rt)
			var all sync.WaitGroup
			all.Go(func() { _ = m.herald.Run(ctx) })
			all.Go(m.consume)
			for i, s := range story {
				kubelet, herald := m.step(s.from, s.set)
				if diff := cmp.Diff(kubelet, herald); diff != "" && differs == "" {
					differs = fmt.Sprintf("step %d, %s: kubelet (-) and Herald (+) deliver\n%s", i, s.from, diff)
				}
			}
			cancel()
			for _, end := range m.close {
				end()
			}
			all.Wait()
		})
		if differs != "" {
			rt.Fatal(differs)
		}
	})
}

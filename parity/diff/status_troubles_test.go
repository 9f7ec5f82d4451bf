package diff_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// troubles is what a node meets in bad times, besides what it meets in good ones.
var troubles = map[string]func(w *twins, l *life, h happening){
	"requests fail":          func(w *twins, _ *life, h happening) { w.fail(h.Variant) },
	"more requests fail":     func(w *twins, _ *life, h happening) { w.fail(h.Variant) },
	"the watch is cut":       func(w *twins, _ *life, _ happening) { w.servers((*memory).cutWatches) },
	"the watch stalls":       func(w *twins, _ *life, _ happening) { w.script(fault.On("watch", "/pods").Times(1).Stall) },
	"etcd is compacted":      func(w *twins, _ *life, _ happening) { w.servers((*memory).compact) },
	"the API server is down": func(w *twins, _ *life, _ happening) { w.servers(func(m *memory) { m.SetDown(true) }) },
	"the API server is back": func(w *twins, _ *life, _ happening) { w.servers(func(m *memory) { m.SetDown(false) }) },
	"its worker is behind":   func(w *twins, l *life, h happening) { w.sayLate(l, h.Variant) },
}

func (m *memory) cutWatches() { m.CutWatches() }
func (m *memory) compact()    { m.Compact() }

func (w *twins) servers(do func(*memory)) {
	for _, n := range w.nodes {
		do(n.cluster.(*memory))
	}
	w.pause()
}

// script puts a fault of one kind in force on both nodes.
func (w *twins) script(kind func() *fault.Rule) {
	for _, n := range w.nodes {
		w.heal = append(w.heal, n.faults.Add(kind()))
	}
	w.pause()
}

// fail breaks one to three of the next requests of a kind.
func (w *twins) fail(variant int) {
	verb := []string{"PATCH", "PATCH", "DELETE", "get"}[variant%4]
	next := fault.On(verb, "/pods/").Times(1 + variant%3)
	kinds := []func() *fault.Rule{
		func() *fault.Rule { return next.Reply(http.StatusInternalServerError) },
		func() *fault.Rule { return next.Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)) },
		func() *fault.Rule { return next.Reply(http.StatusServiceUnavailable) },
		func() *fault.Rule { return next.Delay(2 * requestTimeout) }, // never answered, as far as the client knows
		func() *fault.Rule { return next.HoldFor(2 * requestTimeout) },
		func() *fault.Rule { return next.Delay(2 * time.Second) },
		next.Refuse, next.Reset, next.LoseReply, next.Duplicate,
		func() *fault.Rule { return fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusConflict) },
	}
	w.script(kinds[variant%len(kinds)])
}

// sayLate reports a probe of a container and lets the worker tell, after it, what it had seen before (TestBUG7).
func (w *twins) sayLate(l *life, number int) {
	c, spec := l.container(number)
	if c.State.Running == nil || !*c.Started || spec.ReadinessProbe == nil || !l.told || l.finished {
		return
	}
	w.each(l, func(n *twin, p *v1.Pod) {
		before := l.status(p)
		n.SetContainerReadiness(p.UID, c.ContainerID, !c.Ready)
		n.SetPodStatus(p, before)
	})
	c.Ready = !c.Ready
}

// anyTrouble draws as many bad things as good ones.
var anyTrouble = rapid.Custom(func(t *rapid.T) happening {
	h := anyHappening.Draw(t, "happening")
	if rapid.Bool().Draw(t, "bad") {
		h.What = rapid.SampledFrom(slices.Sorted(maps.Keys(troubles))).Draw(t, "what")
	}
	return h
})

func TestStatusManagersTellTheSameAfterAllTroubles(t *testing.T) {
	checkHistories(t, func(rt *rapid.T) {
		history := rapid.SliceOfN(anyTrouble, 1, 40).Draw(rt, "history")
		var wrong string
		synctest.Test(t, func(t *testing.T) {
			w := inMemory(t, nil)
			defer w.stop()
			wrong = w.survive(history)
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// survive leads both through the history, ends all troubles, and returns in what the nodes then differ.
func (w *twins) survive(history []happening) string {
	for _, name := range []string{webPod, jobPod, staticPod} {
		w.appear(name)
	}
	for _, h := range history {
		happen := happenings[h.What]
		if happen == nil {
			happen = troubles[h.What]
		}
		happen(w, w.newest(h.Name), h)
		time.Sleep(h.Then)
	}
	w.recover()
	if diff := w.compare(anyTime); diff != "" {
		return fmt.Sprintf("after all troubles the kubelet (-) and Herald (+) differ:\n%s", diff)
	}
	for _, n := range w.nodes {
		n.faults.Forget()
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	if asked := w.nodes[1].faults.Requests().Of("*", "/pods/"); len(asked) > 0 {
		return fmt.Sprintf("at rest Herald asked %+v", asked)
	}
	return ""
}

// recover ends all troubles, lets the nodes come to rest, and the workers say what they know.
func (w *twins) recover() {
	for _, heal := range w.heal {
		heal()
	}
	w.servers(func(m *memory) { m.SetDown(false) })
	time.Sleep(3 * time.Minute)
	w.resync()
	time.Sleep(3 * time.Minute)
	w.housekeeping()
	synctest.Wait()
}

// anyTime makes times equal: after troubles, the two came to know things at different times.
var anyTime = cmp.FilterPath(func(p cmp.Path) bool {
	field := p.Last().String()
	return field == ".StartTime" || field == ".LastTransitionTime"
}, cmp.Ignore())

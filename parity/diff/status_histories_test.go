package diff_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/status"
)

var (
	statusSeed  = flag.Uint64("status.seed", 1, "the first of the seeds that the histories of status managers are made from")
	statusCases = flag.Int("status.cases", 300, "how many histories status managers are led through")
)

// inMemory makes twins, each in a cluster of its own. It must be called in a bubble.
func inMemory(t *testing.T, change func(*status.Config)) *twins {
	t.Helper()
	kubelet := newKubeletReporter("kubelet", &memory{APIServer: heraldtest.NewAPIServer(), namespace: "kubelet"})
	herald := newHeraldReporter("herald", &memory{APIServer: heraldtest.NewAPIServer(), namespace: "herald"})
	herald.change = change
	w := &twins{t: t, pause: synctest.Wait}
	w.boot(kubelet, herald)
	return w
}

// calm takes client-go's handlers of errors away: they remember the time of the last one for the whole process, and the clocks
// of two bubbles differ.
func calm(t *testing.T) {
	t.Helper()
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// happening is one thing that befalls both nodes, in one of its variants, and the time until the next.
type happening struct {
	What, Name string
	Variant    int
	Then       time.Duration
}

func (h happening) String() string {
	return fmt.Sprintf("%s: %s (%d), %v later", h.Name, h.What, h.Variant, h.Then)
}

// happenings is what a node meets in good times.
var happenings = map[string]func(w *twins, l *life, h happening){
	"a pod is bound": func(w *twins, _ *life, h happening) { w.appear(h.Name) },
	"a container goes on": func(w *twins, l *life, h happening) {
		l.goOn(h.Variant, int32(h.Variant/6%2))
		w.say(l)
	},
	"its worker resyncs":     func(w *twins, l *life, _ happening) { w.say(l) },
	"a container is probed":  func(w *twins, l *life, h happening) { w.probe(l, h.Variant, h.Variant%3 > 0) },
	"its worker errs":        func(w *twins, l *life, h happening) { w.err(l, h.Variant) },
	"nothing of it runs":     func(w *twins, l *life, _ happening) { w.stopContainers(l) },
	"it ends":                func(w *twins, l *life, _ happening) { w.end(l) },
	"it is disrupted":        func(_ *twins, l *life, _ happening) { l.disrupted = true },
	"kubectl delete":         func(w *twins, l *life, _ happening) { w.kubectlDelete(l, 30) },
	"kubectl delete --force": func(w *twins, l *life, _ happening) { w.kubectlDelete(l, 0) },
	"somebody interferes": func(w *twins, l *life, h happening) {
		w.interfere(l.name, interferences[h.Variant%len(interferences)])
		l.meddled = l.meddled || h.Variant%len(interferences) == turnsReady
	},
	"the agents restart": func(w *twins, _ *life, _ happening) { w.restart(); w.resync() },
	"time passes":        func(*twins, *life, happening) {},
	"a container goes  on": func(w *twins, l *life, h happening) {
		l.goOn(h.Variant, int32(h.Variant/6%2))
		w.say(l)
	},
}

// interferences is what others write.
var interferences = []func(*v1.Pod){
	func(p *v1.Pod) { setCondition(p, gate, v1.ConditionTrue) },
	func(p *v1.Pod) { setCondition(p, gate, v1.ConditionFalse) },
	func(p *v1.Pod) { setCondition(p, v1.PodReady, v1.ConditionFalse) },
	func(p *v1.Pod) { setCondition(p, v1.DisruptionTarget, v1.ConditionTrue) },
	func(p *v1.Pod) { p.Labels = map[string]string{"app": "changed"} },
	func(p *v1.Pod) { p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}} },
	func(p *v1.Pod) {
		if p.Status.Phase == v1.PodRunning {
			p.Status.Phase = v1.PodPending
		}
	},
}

// turnsReady is the place of the one that writes Ready.
const turnsReady = 2

func setCondition(p *v1.Pod, kind v1.PodConditionType, value v1.ConditionStatus) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			if c.Status != value {
				c.LastTransitionTime = now
			}
			c.Status, c.Message = value, "theirs"
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: value, LastTransitionTime: now})
}

var anyHappening = rapid.Custom(func(t *rapid.T) happening {
	return happening{
		What:    rapid.SampledFrom(slices.Sorted(maps.Keys(happenings))).Draw(t, "what"),
		Name:    rapid.SampledFrom([]string{webPod, jobPod, staticPod}).Draw(t, "name"),
		Variant: rapid.IntRange(0, 41).Draw(t, "variant"),
		Then:    rapid.SampledFrom([]time.Duration{0, 300 * time.Millisecond, 2 * time.Second, time.Minute}).Draw(t, "then"),
	}
})

// quiet is longer than either takes to repair whatever it repairs.
const quiet = 21 * time.Second

func TestStatusManagersTellTheSame(t *testing.T) {
	checkHistories(t, func(rt *rapid.T) {
		history := rapid.SliceOfN(anyHappening, 1, 40).Draw(rt, "history")
		var wrong string // the bubble's goroutine must not end the property's
		synctest.Test(t, func(t *testing.T) {
			w := inMemory(t, nil)
			defer w.stop()
			wrong = w.live(history)
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// checkHistories leads the property through as many histories as the flags say.
func checkHistories(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	calm(t)
	checkSeeded(t, "status", *statusSeed, *statusCases, property)
}

// checkSeeded leads the property through so many cases. Its flags are called after what it is about.
func checkSeeded(t *testing.T, about string, seed uint64, cases int, property func(*rapid.T)) {
	t.Helper()
	for name, value := range map[string]string{
		"rapid.seed": strconv.FormatUint(seed, 10), "rapid.checks": strconv.Itoa(cases),
	} {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set(name, before) }()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to see it again: -run %s -%[2]s.seed=%[3]d -%[2]s.cases=%[4]d", t.Name(), about, seed, cases)
		}
	})
	rapid.Check(t, property)
}

// live leads both through the history and returns in what they differ at the first quiet moment in which they do.
func (w *twins) live(history []happening) string {
	for _, name := range []string{webPod, jobPod, staticPod} {
		w.appear(name)
	}
	for i, h := range history {
		if l := w.newest(h.Name); l != nil {
			happenings[h.What](w, l, h)
		}
		time.Sleep(h.Then)
		time.Sleep(quiet)
		synctest.Wait()
		if diff := w.compare(); diff != "" {
			return fmt.Sprintf("after %d happenings the kubelet (-) and Herald (+) differ:\n%s", i+1, diff)
		}
		if wrong := w.compareRequests(); wrong != "" {
			return fmt.Sprintf("after %d happenings: %s", i+1, wrong)
		}
		w.housekeeping()
	}
	return ""
}

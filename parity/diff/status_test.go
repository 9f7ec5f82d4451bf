package diff_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/parity/controlplane"
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

// genuine is a namespace of a real cluster, and a node whose pods are in it.
type genuine struct {
	t    *testing.T
	pods corev1.PodInterface
	node *rest.Config
}

func newGenuine(t *testing.T, cp *controlplane.ControlPlane, name string) genuine {
	t.Helper()
	admin, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	space := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.CreateNode(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return genuine{t, admin.CoreV1().Pods(name), cp.NodeConfig(name)}
}

func (g genuine) config() *rest.Config { return rest.CopyConfig(g.node) }

func (g genuine) add(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Namespace = ""
	created, err := g.pods.Create(g.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return created
}

func (g genuine) pod(name string) *v1.Pod {
	p, err := g.pods.Get(g.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			g.t.Error(err)
		}
		return nil
	}
	return p
}

// update writes the pod and then its status, as two controllers would. What the server refuses is refused on both nodes.
func (g genuine) update(name string, edit func(*v1.Pod)) {
	type write = func(context.Context, *v1.Pod, metav1.UpdateOptions) (*v1.Pod, error)
	for _, send := range []write{g.pods.Update, g.pods.UpdateStatus} {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			p := g.pod(name)
			if p == nil {
				return nil
			}
			edit(p)
			_, err := send(g.t.Context(), p, metav1.UpdateOptions{})
			return err
		})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
			g.t.Error(err)
		}
	}
}

func (g genuine) remove(name string, grace int64) {
	err := g.pods.Delete(g.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil && !apierrors.IsNotFound(err) {
		g.t.Error(err)
	}
}

// settled waits until the address books of both nodes show what the API server has.
func (w *twins) settled(ctx context.Context) {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		for _, n := range w.nodes {
			if !n.isUpToDate() {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		w.t.Errorf("the watch is behind: %v", err)
	}
}

func (n *twin) isUpToDate() bool {
	list, err := n.cluster.(genuine).pods.List(n.cluster.(genuine).t.Context(), metav1.ListOptions{})
	if err != nil {
		return false
	}
	versions := map[string]bool{}
	pods, mirrors := n.held()
	for _, p := range append(pods, mirrors...) {
		if p.Annotations["kubernetes.io/config.source"] != "file" {
			versions[p.ResourceVersion] = true
		}
	}
	for i := range list.Items {
		if !versions[list.Items[i].ResourceVersion] {
			return false
		}
	}
	return len(list.Items) == len(versions)
}

func TestStatusManagersTellTheSameToARealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs time: it starts a control plane; run it without -short")
	}
	cp := controlplane.ForTest(t)
	t.Run("histories", func(t *testing.T) { // all of them end before the control plane does
		for i := range 16 {
			seed := int(*statusSeed) + i
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				t.Parallel()
				history := rapid.SliceOfN(anyHappening, 16, 30).Example(seed)
				kubelet := newKubeletReporter(fmt.Sprintf("kubelet-%d", i), newGenuine(t, cp, fmt.Sprintf("kubelet-%d", i)))
				herald := newHeraldReporter(fmt.Sprintf("herald-%d", i), newGenuine(t, cp, fmt.Sprintf("herald-%d", i)))
				w := &twins{t: t}
				w.pause = func() { w.settled(t.Context()) }
				w.boot(kubelet, herald)
				defer w.stop()
				w.endure(history)
			})
		}
	})
}

// endure leads both through the history, without its pauses, and waits until both tell the same.
func (w *twins) endure(history []happening) {
	for _, name := range []string{webPod, jobPod, staticPod} {
		w.appear(name)
	}
	for _, h := range history {
		happenings[h.What](w, w.newest(h.Name), h)
		w.t.Log(h)
	}
	w.resync()
	var diff string
	err := wait.PollUntilContextTimeout(w.t.Context(), time.Second/4, 2*quiet, true, func(context.Context) (bool, error) {
		diff = w.compare(anyTime)
		return diff == "", nil
	})
	if err != nil {
		w.t.Errorf("in the end the kubelet (-) and Herald (+) differ:\n%s", diff)
	}
	kubelet, herald := w.nodes[0].tally(), w.nodes[1].tally()
	if herald.gets+herald.patches+herald.deletes > kubelet.gets+kubelet.patches+kubelet.deletes {
		w.t.Errorf("the kubelet asked %+v, Herald asked %+v", kubelet, herald)
	}
}

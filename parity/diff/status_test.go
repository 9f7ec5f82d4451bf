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
func newMemoryPair(t *testing.T, configure func(*status.Config)) *nodePair {
	t.Helper()
	kubelet := newKubeletNode("kubelet", &memoryCluster{APIServer: heraldtest.NewAPIServer(), namespace: "kubelet"})
	herald := newHeraldNode("herald", &memoryCluster{APIServer: heraldtest.NewAPIServer(), namespace: "herald"})
	herald.configure = configure
	pair := &nodePair{t: t, waitIdle: synctest.Wait}
	pair.start(kubelet, herald)
	return pair
}

// calm takes client-go's handlers of errors away: they remember the time of the last one for the whole process, and the clocks
// of two bubbles differ.
func disableErrorBackoff(t *testing.T) {
	t.Helper()
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// happening is one thing that befalls both nodes, in one of its variants, and the time until the next.
type podEvent struct {
	Name, Pod string
	Variant   int
	Delay     time.Duration
}

func (h podEvent) String() string {
	return fmt.Sprintf("%s: %s (%d), %v later", h.Pod, h.Name, h.Variant, h.Delay)
}

// happenings is what a node meets in good times.
var podEvents = map[string]func(pair *nodePair, sim *podSim, h podEvent){
	"a pod is bound": func(pair *nodePair, _ *podSim, h podEvent) { pair.ensurePod(h.Pod) },
	"a container goes on": func(pair *nodePair, sim *podSim, h podEvent) {
		sim.advance(h.Variant, int32(h.Variant/6%2))
		pair.sync(sim)
	},
	"its worker resyncs":     func(pair *nodePair, sim *podSim, _ podEvent) { pair.sync(sim) },
	"a container is probed":  func(pair *nodePair, sim *podSim, h podEvent) { pair.probe(sim, h.Variant, h.Variant%3 > 0) },
	"its worker errs":        func(pair *nodePair, sim *podSim, h podEvent) { pair.proposeInvalid(sim, h.Variant) },
	"nothing of it runs":     func(pair *nodePair, sim *podSim, _ podEvent) { pair.stopContainers(sim) },
	"it ends":                func(pair *nodePair, sim *podSim, _ podEvent) { pair.finishPod(sim) },
	"it is disrupted":        func(_ *nodePair, sim *podSim, _ podEvent) { sim.disrupted = true },
	"kubectl delete":         func(pair *nodePair, sim *podSim, _ podEvent) { pair.kubectlDelete(sim, 30) },
	"kubectl delete --force": func(pair *nodePair, sim *podSim, _ podEvent) { pair.kubectlDelete(sim, 0) },
	"somebody interferes": func(pair *nodePair, sim *podSim, h podEvent) {
		pair.updateAsOther(sim.name, foreignWrites[h.Variant%len(foreignWrites)])
		sim.readyOverwritten = sim.readyOverwritten || h.Variant%len(foreignWrites) == overwriteReady
	},
	"the agents restart": func(pair *nodePair, _ *podSim, _ podEvent) { pair.restart(); pair.resync() },
	"time passes":        func(*nodePair, *podSim, podEvent) {},
	"a container goes  on": func(pair *nodePair, sim *podSim, h podEvent) {
		sim.advance(h.Variant, int32(h.Variant/6%2))
		pair.sync(sim)
	},
}

// interferences is what others write.
var foreignWrites = []func(*v1.Pod){
	func(p *v1.Pod) { setCondition(p, gateCondition, v1.ConditionTrue) },
	func(p *v1.Pod) { setCondition(p, gateCondition, v1.ConditionFalse) },
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
const overwriteReady = 2

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

var podEventGen = rapid.Custom(func(t *rapid.T) podEvent {
	return podEvent{
		Name:    rapid.SampledFrom(slices.Sorted(maps.Keys(podEvents))).Draw(t, "what"),
		Pod:     rapid.SampledFrom([]string{webPod, jobPod, staticPod}).Draw(t, "name"),
		Variant: rapid.IntRange(0, 41).Draw(t, "variant"),
		Delay:   rapid.SampledFrom([]time.Duration{0, 300 * time.Millisecond, 2 * time.Second, time.Minute}).Draw(t, "then"),
	}
})

// quiet is longer than either takes to repair whatever it repairs.
const quietPeriod = 21 * time.Second

func TestStatusManager_SameStatuses(t *testing.T) {
	checkHistories(t, func(rt *rapid.T) {
		history := rapid.SliceOfN(podEventGen, 1, 40).Draw(rt, "history")
		var violation string // the bubble's goroutine must not end the property's
		synctest.Test(t, func(t *testing.T) {
			pair := newMemoryPair(t, nil)
			defer pair.stop()
			violation = pair.runHistory(history)
		})
		if violation != "" {
			rt.Fatal(violation)
		}
	})
}

// checkHistories leads the property through as many histories as the flags say.
func checkHistories(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	disableErrorBackoff(t)
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
func (pair *nodePair) runHistory(history []podEvent) string {
	for _, name := range []string{webPod, jobPod, staticPod} {
		pair.ensurePod(name)
	}
	for i, event := range history {
		if sim := pair.latest(event.Pod); sim != nil {
			podEvents[event.Name](pair, sim, event)
		}
		time.Sleep(event.Delay)
		time.Sleep(quietPeriod)
		synctest.Wait()
		if diff := pair.compare(); diff != "" {
			return fmt.Sprintf("after %d happenings the kubelet (-) and Herald (+) differ:\n%s", i+1, diff)
		}
		if violation := pair.compareRequests(); violation != "" {
			return fmt.Sprintf("after %d happenings: %s", i+1, violation)
		}
		pair.housekeeping()
	}
	return ""
}

// troubles is what a node meets in bad times, besides what it meets in good ones.
var faultEvents = map[string]func(pair *nodePair, sim *podSim, h podEvent){
	"requests fail":      func(pair *nodePair, _ *podSim, h podEvent) { pair.failRequests(h.Variant) },
	"more requests fail": func(pair *nodePair, _ *podSim, h podEvent) { pair.failRequests(h.Variant) },
	"the watch is cut":   func(pair *nodePair, _ *podSim, _ podEvent) { pair.forEachServer((*memoryCluster).dropWatches) },
	"the watch stalls":   func(pair *nodePair, _ *podSim, _ podEvent) { pair.addFault(fault.On("watch", "/pods").Times(1).Stall) },
	"etcd is compacted":  func(pair *nodePair, _ *podSim, _ podEvent) { pair.forEachServer((*memoryCluster).compactEtcd) },
	"the API server is down": func(pair *nodePair, _ *podSim, _ podEvent) {
		pair.forEachServer(func(m *memoryCluster) { m.SetDown(true) })
	},
	"the API server is back": func(pair *nodePair, _ *podSim, _ podEvent) {
		pair.forEachServer(func(m *memoryCluster) { m.SetDown(false) })
	},
	"its worker is behind": func(pair *nodePair, sim *podSim, h podEvent) { pair.reportStale(sim, h.Variant) },
}

func (m *memoryCluster) dropWatches() { m.CutWatches() }
func (m *memoryCluster) compactEtcd() { m.Compact() }

func (pair *nodePair) forEachServer(do func(*memoryCluster)) {
	for _, n := range pair.nodes {
		do(n.cluster.(*memoryCluster))
	}
	pair.waitIdle()
}

// script puts a fault of one kind in force on both nodes.
func (pair *nodePair) addFault(kind func() *fault.Rule) {
	for _, n := range pair.nodes {
		pair.clearFaults = append(pair.clearFaults, n.faults.Add(kind()))
	}
	pair.waitIdle()
}

// fail breaks one to three of the next requests of a kind.
func (pair *nodePair) failRequests(variant int) {
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
	pair.addFault(kinds[variant%len(kinds)])
}

// sayLate reports a probe of a container and lets the worker tell, after it, what it had seen before (TestBUG7).
func (pair *nodePair) reportStale(sim *podSim, number int) {
	c, spec := sim.container(number)
	if c.State.Running == nil || !*c.Started || spec.ReadinessProbe == nil || !sim.reported || sim.terminated {
		return
	}
	pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) {
		before := sim.status(p)
		n.SetContainerReadiness(p.UID, c.ContainerID, !c.Ready)
		n.SetPodStatus(p, before)
	})
	c.Ready = !c.Ready
}

// anyTrouble draws as many bad things as good ones.
var faultEventGen = rapid.Custom(func(t *rapid.T) podEvent {
	h := podEventGen.Draw(t, "happening")
	if rapid.Bool().Draw(t, "bad") {
		h.Name = rapid.SampledFrom(slices.Sorted(maps.Keys(faultEvents))).Draw(t, "what")
	}
	return h
})

func TestStatusManager_SameAfterFaults(t *testing.T) {
	checkHistories(t, func(rt *rapid.T) {
		history := rapid.SliceOfN(faultEventGen, 1, 40).Draw(rt, "history")
		var violation string
		synctest.Test(t, func(t *testing.T) {
			pair := newMemoryPair(t, nil)
			defer pair.stop()
			violation = pair.runFaultHistory(history)
		})
		if violation != "" {
			rt.Fatal(violation)
		}
	})
}

// survive leads both through the history, ends all troubles, and returns in what the nodes then differ.
func (pair *nodePair) runFaultHistory(history []podEvent) string {
	for _, name := range []string{webPod, jobPod, staticPod} {
		pair.ensurePod(name)
	}
	for _, event := range history {
		apply := podEvents[event.Name]
		if apply == nil {
			apply = faultEvents[event.Name]
		}
		apply(pair, pair.latest(event.Pod), event)
		time.Sleep(event.Delay)
	}
	pair.recoverFromFaults()
	if diff := pair.compare(ignoreTimes); diff != "" {
		return fmt.Sprintf("after all troubles the kubelet (-) and Herald (+) differ:\n%s", diff)
	}
	for _, n := range pair.nodes {
		n.faults.Forget()
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	if requests := pair.nodes[1].faults.Requests().Of("*", "/pods/"); len(requests) > 0 {
		return fmt.Sprintf("at rest Herald asked %+v", requests)
	}
	return ""
}

// recover ends all troubles, lets the nodes come to rest, and the workers say what they know.
func (pair *nodePair) recoverFromFaults() {
	for _, heal := range pair.clearFaults {
		heal()
	}
	pair.forEachServer(func(m *memoryCluster) { m.SetDown(false) })
	time.Sleep(3 * time.Minute)
	pair.resync()
	time.Sleep(3 * time.Minute)
	pair.housekeeping()
	synctest.Wait()
}

// anyTime makes times equal: after troubles, the two came to know things at different times.
var ignoreTimes = cmp.FilterPath(func(p cmp.Path) bool {
	field := p.Last().String()
	return field == ".StartTime" || field == ".LastTransitionTime"
}, cmp.Ignore())

// genuine is a namespace of a real cluster, and a node whose pods are in it.
type realCluster struct {
	t          *testing.T
	podClient  corev1.PodInterface
	nodeConfig *rest.Config
}

func newRealCluster(t *testing.T, cp *controlplane.ControlPlane, name string) realCluster {
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
	return realCluster{t, admin.CoreV1().Pods(name), cp.NodeConfig(name)}
}

func (g realCluster) restConfig() *rest.Config { return rest.CopyConfig(g.nodeConfig) }

func (g realCluster) createPod(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Namespace = ""
	created, err := g.podClient.Create(g.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return created
}

func (g realCluster) getPod(name string) *v1.Pod {
	p, err := g.podClient.Get(g.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			g.t.Error(err)
		}
		return nil
	}
	return p
}

// update writes the pod and then its status, as two controllers would. What the server refuses is refused on both nodes.
func (g realCluster) updatePod(name string, edit func(*v1.Pod)) {
	type write = func(context.Context, *v1.Pod, metav1.UpdateOptions) (*v1.Pod, error)
	for _, send := range []write{g.podClient.Update, g.podClient.UpdateStatus} {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			p := g.getPod(name)
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

func (g realCluster) deletePod(name string, grace int64) {
	err := g.podClient.Delete(g.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil && !apierrors.IsNotFound(err) {
		g.t.Error(err)
	}
}

// settled waits until the address books of both nodes show what the API server has.
func (pair *nodePair) waitForWatch(ctx context.Context) {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		for _, n := range pair.nodes {
			if !n.watchCaughtUp() {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		pair.t.Errorf("the watch is behind: %v", err)
	}
}

func (n *pairedNode) watchCaughtUp() bool {
	list, err := n.cluster.(realCluster).podClient.List(n.cluster.(realCluster).t.Context(), metav1.ListOptions{})
	if err != nil {
		return false
	}
	versions := map[string]bool{}
	pods, mirrors := n.listPods()
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

func TestStatusManager_RealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs time: it starts a control plane; run it without -short")
	}
	cp := controlplane.ForTest(t)
	t.Run("histories", func(t *testing.T) { // all of them end before the control plane does
		for i := range 16 {
			seed := int(*statusSeed) + i
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				t.Parallel()
				history := rapid.SliceOfN(podEventGen, 16, 30).Example(seed)
				kubelet := newKubeletNode(fmt.Sprintf("kubelet-%d", i), newRealCluster(t, cp, fmt.Sprintf("kubelet-%d", i)))
				herald := newHeraldNode(fmt.Sprintf("herald-%d", i), newRealCluster(t, cp, fmt.Sprintf("herald-%d", i)))
				pair := &nodePair{t: t}
				pair.waitIdle = func() { pair.waitForWatch(t.Context()) }
				pair.start(kubelet, herald)
				defer pair.stop()
				pair.runOnServer(history)
			})
		}
	})
}

// endure leads both through the history, without its pauses, and waits until both tell the same.
func (pair *nodePair) runOnServer(history []podEvent) {
	for _, name := range []string{webPod, jobPod, staticPod} {
		pair.ensurePod(name)
	}
	for _, event := range history {
		podEvents[event.Name](pair, pair.latest(event.Pod), event)
		pair.t.Log(event)
	}
	pair.resync()
	var diff string
	err := wait.PollUntilContextTimeout(pair.t.Context(), time.Second/4, 2*quietPeriod, true, func(context.Context) (bool, error) {
		diff = pair.compare(ignoreTimes)
		return diff == "", nil
	})
	if err != nil {
		pair.t.Errorf("in the end the kubelet (-) and Herald (+) differ:\n%s", diff)
	}
	kubelet, herald := pair.nodes[0].countRequests(), pair.nodes[1].countRequests()
	if herald.gets+herald.patches+herald.deletes > kubelet.gets+kubelet.patches+kubelet.deletes {
		pair.t.Errorf("the kubelet asked %+v, Herald asked %+v", kubelet, herald)
	}
}

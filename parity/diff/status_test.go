package diff_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
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
	statusSeed  = flag.Uint64("status.seed", 1, "seed of the status manager histories")
	statusCases = flag.Int("status.cases", 300, "number of status manager histories")
)

// newMemoryPair returns two nodes, each in its own cluster. It must be called in a synctest bubble.
func newMemoryPair(t *testing.T, configure func(*status.Config)) *nodePair {
	t.Helper()
	kubelet := newKubeletNode("kubelet", &memoryCluster{APIServer: heraldtest.NewAPIServer(), namespace: "kubelet"})
	herald := newHeraldNode("herald", &memoryCluster{APIServer: heraldtest.NewAPIServer(), namespace: "herald"})
	herald.configure = configure
	pair := &nodePair{t: t, waitIdle: synctest.Wait}
	pair.start(kubelet, herald)
	return pair
}

// disableErrorBackoff removes client-go's error handlers. They remember the time of the last error for the whole
// process, and the clocks of two bubbles differ.
func disableErrorBackoff(t *testing.T) {
	t.Helper()
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// podAction is something that happens to a pod on both nodes.
type podAction struct {
	name  string
	apply func(pair *nodePair, sim *podSim, event podEvent)
}

// podEvent is an action in one of its variants, and the time until the next one.
type podEvent struct {
	Action  podAction
	Pod     string
	Variant int
	Delay   time.Duration
}

func (e podEvent) String() string {
	return fmt.Sprintf("%s: %s (%d), then %v", e.Pod, e.Action.name, e.Variant, e.Delay)
}

// podActions happen without faults. The advance of a container is listed twice, which makes it twice as likely.
var podActions = []podAction{
	{"advance container", advanceContainer},
	{"advance container", advanceContainer},
	{"probe container", func(pair *nodePair, sim *podSim, event podEvent) { pair.probe(sim, event.Variant, event.Variant%3 > 0) }},
	{"bind pod", func(pair *nodePair, _ *podSim, event podEvent) { pair.ensurePod(event.Pod) }},
	{"finish pod", func(pair *nodePair, sim *podSim, _ podEvent) { pair.finishPod(sim) }},
	{"disrupt pod", func(_ *nodePair, sim *podSim, _ podEvent) { sim.disrupted = true }},
	{"invalid status", func(pair *nodePair, sim *podSim, event podEvent) { pair.proposeInvalid(sim, event.Variant) }},
	{"sync", func(pair *nodePair, sim *podSim, _ podEvent) { pair.sync(sim) }},
	{"kubectl delete", func(pair *nodePair, sim *podSim, _ podEvent) { pair.kubectlDelete(sim, 30) }},
	{"kubectl delete --force", func(pair *nodePair, sim *podSim, _ podEvent) { pair.kubectlDelete(sim, 0) }},
	{"stop containers", func(pair *nodePair, sim *podSim, _ podEvent) { pair.stopContainers(sim) }},
	{"foreign write", func(pair *nodePair, sim *podSim, event podEvent) {
		pair.updateAsOther(sim.name, foreignWrites[event.Variant%len(foreignWrites)])
		sim.readyOverwritten = sim.readyOverwritten || event.Variant%len(foreignWrites) == overwriteReady
	}},
	{"agents restart", func(pair *nodePair, _ *podSim, _ podEvent) { pair.restart(); pair.resync() }},
	{"wait", func(*nodePair, *podSim, podEvent) {}},
}

func advanceContainer(pair *nodePair, sim *podSim, event podEvent) {
	sim.advance(event.Variant, int32(event.Variant/6%2))
	pair.sync(sim)
}

// foreignWrites are writes by other clients.
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

// overwriteReady is the index of the write that changes Ready.
const overwriteReady = 2

func setCondition(p *v1.Pod, kind v1.PodConditionType, value v1.ConditionStatus) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			if c.Status != value {
				c.LastTransitionTime = now
			}
			c.Status, c.Message = value, "foreign"
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: value, LastTransitionTime: now})
}

var podEventGen = rapid.Custom(func(t *rapid.T) podEvent {
	return podEvent{
		Action:  rapid.SampledFrom(podActions).Draw(t, "action"),
		Pod:     rapid.SampledFrom([]string{webPod, jobPod, staticPod}).Draw(t, "pod"),
		Variant: rapid.IntRange(0, 41).Draw(t, "variant"),
		Delay:   rapid.SampledFrom([]time.Duration{0, 300 * time.Millisecond, 2 * time.Second, time.Minute}).Draw(t, "delay"),
	}
})

// quietPeriod is longer than either side takes for any repair.
const quietPeriod = 21 * time.Second

func TestStatusManager_SameStatuses(t *testing.T) {
	checkHistories(t, func(rt *rapid.T) {
		history := rapid.SliceOfN(podEventGen, 1, 40).Draw(rt, "history")
		var violation string // rt.Fatal must not be called from the bubble's goroutine
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

// checkHistories checks the property on as many histories as the flags say.
func checkHistories(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	disableErrorBackoff(t)
	checkSeeded(t, "status", *statusSeed, *statusCases, property)
}

// runHistory applies the history to both nodes and returns their first difference while idle.
func (pair *nodePair) runHistory(history []podEvent) string {
	for _, name := range []string{webPod, jobPod, staticPod} {
		pair.ensurePod(name)
	}
	for i, event := range history {
		if sim := pair.latest(event.Pod); sim != nil {
			event.Action.apply(pair, sim, event)
		}
		time.Sleep(event.Delay)
		time.Sleep(quietPeriod)
		synctest.Wait()
		if diff := pair.compare(); diff != "" {
			return fmt.Sprintf("after %d events kubelet (-) and Herald (+) differ:\n%s", i+1, diff)
		}
		if violation := pair.compareRequests(); violation != "" {
			return fmt.Sprintf("after %d events: %s", i+1, violation)
		}
		pair.housekeeping()
	}
	return ""
}

// faultActions happen besides podActions in histories with faults.
var faultActions = []podAction{
	{"compact etcd", func(pair *nodePair, _ *podSim, _ podEvent) { pair.forEachServer((*memoryCluster).compactEtcd) }},
	{"stale status", func(pair *nodePair, sim *podSim, event podEvent) { pair.reportStale(sim, event.Variant) }},
	{"fail requests", func(pair *nodePair, _ *podSim, event podEvent) { pair.failRequests(event.Variant) }},
	{"fail requests", func(pair *nodePair, _ *podSim, event podEvent) { pair.failRequests(event.Variant) }},
	{"API server up", func(pair *nodePair, _ *podSim, _ podEvent) {
		pair.forEachServer(func(m *memoryCluster) { m.SetDown(false) })
	}},
	{"API server down", func(pair *nodePair, _ *podSim, _ podEvent) {
		pair.forEachServer(func(m *memoryCluster) { m.SetDown(true) })
	}},
	{"drop watches", func(pair *nodePair, _ *podSim, _ podEvent) { pair.forEachServer((*memoryCluster).dropWatches) }},
	{"stall watch", func(pair *nodePair, _ *podSim, _ podEvent) { pair.addFault(fault.On("watch", "/pods").Times(1).Stall) }},
}

func (m *memoryCluster) dropWatches() { m.CutWatches() }
func (m *memoryCluster) compactEtcd() { m.Compact() }

func (pair *nodePair) forEachServer(do func(*memoryCluster)) {
	for _, n := range pair.nodes {
		do(n.cluster.(*memoryCluster))
	}
	pair.waitIdle()
}

// addFault activates a fault on both nodes.
func (pair *nodePair) addFault(kind func() *fault.Rule) {
	for _, n := range pair.nodes {
		pair.clearFaults = append(pair.clearFaults, n.faults.Add(kind()))
	}
	pair.waitIdle()
}

// failRequests makes the next one to three requests of a kind fail.
func (pair *nodePair) failRequests(variant int) {
	verb := []string{"PATCH", "PATCH", "DELETE", "get"}[variant%4]
	next := fault.On(verb, "/pods/").Times(1 + variant%3)
	kinds := []func() *fault.Rule{
		func() *fault.Rule { return next.Reply(http.StatusInternalServerError) },
		func() *fault.Rule { return next.Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)) },
		func() *fault.Rule { return next.Reply(http.StatusServiceUnavailable) },
		func() *fault.Rule { return next.Delay(2 * requestTimeout) }, // longer than the client waits
		func() *fault.Rule { return next.HoldFor(2 * requestTimeout) },
		func() *fault.Rule { return next.Delay(2 * time.Second) },
		next.Refuse, next.Reset, next.LoseReply, next.Duplicate,
		func() *fault.Rule { return fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusConflict) },
	}
	pair.addFault(kinds[variant%len(kinds)])
}

// reportStale reports a probe result, followed by a status that was computed before it (TestBUG7_StaleStatus).
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

// faultEventGen generates faults in half of the events.
var faultEventGen = rapid.Custom(func(t *rapid.T) podEvent {
	event := podEventGen.Draw(t, "event")
	if rapid.Bool().Draw(t, "fault") {
		event.Action = rapid.SampledFrom(faultActions).Draw(t, "action")
	}
	return event
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

// runFaultHistory applies the history, removes all faults, and returns how the nodes then differ.
func (pair *nodePair) runFaultHistory(history []podEvent) string {
	for _, name := range []string{webPod, jobPod, staticPod} {
		pair.ensurePod(name)
	}
	for _, event := range history {
		event.Action.apply(pair, pair.latest(event.Pod), event)
		time.Sleep(event.Delay)
	}
	pair.recoverFromFaults()
	if diff := pair.compare(ignoreTimes); diff != "" {
		return fmt.Sprintf("after all faults kubelet (-) and Herald (+) differ:\n%s", diff)
	}
	for _, n := range pair.nodes {
		n.faults.ClearRequests()
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	if requests := pair.nodes[1].faults.Requests().Filter("*", "/pods/"); len(requests) > 0 {
		return fmt.Sprintf("got requests %+v from Herald while idle, want none", requests)
	}
	return ""
}

// recoverFromFaults removes all faults, waits until the nodes are idle, and syncs all pods.
func (pair *nodePair) recoverFromFaults() {
	for _, clear := range pair.clearFaults {
		clear()
	}
	pair.forEachServer(func(m *memoryCluster) { m.SetDown(false) })
	time.Sleep(3 * time.Minute)
	pair.resync()
	time.Sleep(3 * time.Minute)
	pair.housekeeping()
	synctest.Wait()
}

// ignoreTimes ignores times: after faults, the two sides learned of changes at different times.
var ignoreTimes = cmp.FilterPath(func(p cmp.Path) bool {
	field := p.Last().String()
	return field == ".StartTime" || field == ".LastTransitionTime"
}, cmp.Ignore())

// hangTimeout only ends a hang: a busy machine must not fail a test.
const hangTimeout = 5 * time.Minute

// realCluster is a namespace of a real cluster and a node whose pods are in it.
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
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.CreateNode(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return realCluster{t, admin.CoreV1().Pods(name), cp.NodeConfig(name)}
}

func (c realCluster) restConfig() *rest.Config { return rest.CopyConfig(c.nodeConfig) }

func (c realCluster) createPod(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Namespace = ""
	created, err := c.podClient.Create(c.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c realCluster) getPod(name string) *v1.Pod {
	p, err := c.podClient.Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			c.t.Error(err)
		}
		return nil
	}
	return p
}

// updatePod writes the pod and then its status, as two controllers would. The server rejects invalid writes on both
// nodes.
func (c realCluster) updatePod(name string, edit func(*v1.Pod)) {
	type write = func(context.Context, *v1.Pod, metav1.UpdateOptions) (*v1.Pod, error)
	for _, send := range []write{c.podClient.Update, c.podClient.UpdateStatus} {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			p := c.getPod(name)
			if p == nil {
				return nil
			}
			edit(p)
			_, err := send(c.t.Context(), p, metav1.UpdateOptions{})
			return err
		})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
			c.t.Error(err)
		}
	}
}

func (c realCluster) deletePod(name string, grace int64) {
	err := c.podClient.Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Error(err)
	}
}

// waitForWatch waits until the pod managers of both nodes have what the API server has.
func (pair *nodePair) waitForWatch(ctx context.Context) {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, hangTimeout, true, func(context.Context) (bool, error) {
		for _, n := range pair.nodes {
			if !n.watchCaughtUp() {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		pair.t.Errorf("watch has not caught up: %v", err)
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
		t.Skip("starts a control plane; run without -short")
	}
	cp := controlplane.ForTest(t)
	t.Run("histories", func(t *testing.T) { // waits for the parallel subtests before the control plane stops
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

// runOnServer applies the history without its delays and waits until both nodes agree.
func (pair *nodePair) runOnServer(history []podEvent) {
	for _, name := range []string{webPod, jobPod, staticPod} {
		pair.ensurePod(name)
	}
	for _, event := range history {
		event.Action.apply(pair, pair.latest(event.Pod), event)
		pair.t.Log(event)
	}
	pair.resync()
	var diff string
	err := wait.PollUntilContextTimeout(pair.t.Context(), time.Second/4, hangTimeout, true, func(context.Context) (bool, error) {
		diff = pair.compare(ignoreTimes)
		return diff == "", nil
	})
	if err != nil {
		pair.t.Errorf("after the history kubelet (-) and Herald (+) differ:\n%s", diff)
	}
	kubelet, herald := pair.nodes[0].countRequests(), pair.nodes[1].countRequests()
	if herald.gets+herald.patches+herald.deletes > kubelet.gets+kubelet.patches+kubelet.deletes {
		pair.t.Errorf("got kubelet %+v, Herald %+v; want no more requests from Herald", kubelet, herald)
	}
}

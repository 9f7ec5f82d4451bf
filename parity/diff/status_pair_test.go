package diff_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// nodePair is two nodes to which the same happens at the same time: one runs the kubelet's status manager, the other
// Herald's.
type nodePair struct {
	t      *testing.T
	nodes  [2]*pairedNode // the kubelet's first
	sims   []*podSim
	serial int
	// allowedExtra counts, since the last comparison of requests, what Herald's node cannot know from the watch: the status
	// of a pod that the pod manager has lost, and a terminated pod whose object vanishes as its deletion is announced.
	allowedExtra int
	clearFaults  []func() // removes the active faults
	// waitIdle waits until everything in progress has finished.
	waitIdle func()
}

// pairedNode is one node of a pair.
type pairedNode struct {
	*testNode
	// pods are the copies that the worker of each simulated pod last used.
	pods map[*podSim]*v1.Pod
}

// start starts both nodes.
func (pair *nodePair) start(kubelet, herald *testNode) {
	pair.t.Helper()
	for i, node := range []*testNode{kubelet, herald} {
		pair.nodes[i] = &pairedNode{testNode: node, pods: map[*podSim]*v1.Pod{}}
		node.start(pair.t, nil)
	}
	pair.waitIdle()
}

func (pair *nodePair) stop() {
	for _, n := range pair.nodes {
		n.stop()
	}
}

// restart stops both agents and starts them again. They know only what the API server knows.
func (pair *nodePair) restart() {
	pair.stop()
	for _, n := range pair.nodes {
		var manifests []*v1.Pod
		for sim, p := range n.pods {
			if podid.IsStatic(p) && sim == pair.latest(sim.name) {
				manifests = append(manifests, p)
			}
		}
		n.start(pair.t, manifests)
	}
	pair.waitIdle()
}

// latest returns the newest simulated pod with that name, or nil.
func (pair *nodePair) latest(name string) *podSim {
	for _, sim := range slices.Backward(pair.sims) {
		if sim.name == name {
			return sim
		}
	}
	return nil
}

// ensurePod binds a pod to each node, or creates the mirror pod of a static pod, unless one with that name exists.
func (pair *nodePair) ensurePod(name string) {
	for _, n := range pair.nodes {
		if n.cluster.getPod(name) != nil {
			return
		}
	}
	sim := pair.latest(name)
	if sim == nil || name != staticPod {
		pair.serial++
		sim = newPodSim(name, pair.serial)
		pair.sims = append(pair.sims, sim)
	}
	for _, n := range pair.nodes {
		n.createPod(sim)
	}
	pair.waitIdle()
}

func (n *pairedNode) createPod(sim *podSim) {
	if sim.name != staticPod {
		p := podTemplate(sim.name)
		p.Spec.NodeName = n.name
		n.pods[sim] = n.cluster.createPod(p)
		n.runtime.set(n.pods[sim].UID, true)
		return
	}
	if n.pods[sim] == nil {
		n.pods[sim] = newStaticPod(sim.name)
		n.pods[sim].Namespace = n.name
		n.runtime.set(n.pods[sim].UID, true)
		n.updatePod(n.pods[sim])
	}
	n.cluster.createPod(newMirrorPod(n.pods[sim], n.name))
}

// workerPod returns the pod that the worker uses: the newest copy that it received.
func (n *pairedNode) workerPod(sim *podSim) *v1.Pod {
	if p := n.latestPod(n.pods[sim].UID); p != nil {
		n.pods[sim] = p
	}
	return n.pods[sim]
}

// forEachNode calls do on both nodes, one after the other.
func (pair *nodePair) forEachNode(sim *podSim, do func(n *pairedNode, p *v1.Pod)) {
	for _, n := range pair.nodes {
		do(n, n.workerPod(sim))
		pair.waitIdle()
	}
	if pair.nodes[1].latestPod(pair.nodes[1].pods[sim].UID) == nil {
		pair.allowedExtra++
	}
}

// sync sets the pod's current status on both nodes, unless the pod has terminated.
func (pair *nodePair) sync(sim *podSim) {
	if !sim.terminated {
		pair.setStatus(sim)
	}
}

func (pair *nodePair) setStatus(sim *podSim) {
	pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.SetPodStatus(p, sim.status(p)) })
	sim.reported = true
}

// probe reports a probe result, if the container could have been probed: readiness if it is started, startup if it is
// not. After a startup probe the worker syncs the pod (PRB-40).
func (pair *nodePair) probe(sim *podSim, number int, passed bool) {
	c, spec := sim.container(number)
	if c.State.Running == nil || !sim.reported || sim.terminated {
		return
	}
	if !*c.Started {
		c.Started, c.Ready = new(passed), passed && spec.ReadinessProbe == nil
		pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.SetContainerStartup(p.UID, c.ContainerID, passed) })
		pair.sync(sim)
	} else if spec.ReadinessProbe != nil {
		c.Ready = passed
		pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.SetContainerReadiness(p.UID, c.ContainerID, passed) })
	}
}

// stopContainers stops the containers before the pod has terminated: it may still hold other resources.
func (pair *nodePair) stopContainers(sim *podSim) {
	sim.terminateContainers()
	pair.sync(sim)
	pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.runtime.set(p.UID, false) })
}

// finishPod terminates the pod after its containers have stopped. A static pod may run again.
func (pair *nodePair) finishPod(sim *podSim) {
	if sim.name == staticPod && !sim.reported { // TestSM17_StaticPodTerminatedAtOnce
		return
	}
	sim.terminateContainers()
	pair.setStatus(sim)
	pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) {
		n.runtime.set(p.UID, false)
		n.TerminatePod(p)
	})
	if sim.name != staticPod {
		sim.terminated = true
		if sim.phase != v1.PodSucceeded {
			sim.phase = v1.PodFailed
		}
	}
}

// proposeInvalid sets a status in which a container that has terminated for good runs again.
func (pair *nodePair) proposeInvalid(sim *podSim, number int) {
	c, _ := sim.container(number)
	if c.State.Terminated == nil || sim.terminated || sim.name != jobPod {
		return
	}
	before := c.State
	c.State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	pair.forEachNode(sim, func(n *pairedNode, p *v1.Pod) { n.SetPodStatus(p, sim.status(p)) })
	c.State = before
}

// updateAsOther is a write by another client.
func (pair *nodePair) updateAsOther(name string, edit func(*v1.Pod)) {
	for _, n := range pair.nodes {
		n.cluster.updatePod(name, edit)
	}
	pair.waitIdle()
}

// kubectlDelete deletes the pod as a user would.
func (pair *nodePair) kubectlDelete(sim *podSim, grace int64) {
	for _, n := range pair.nodes {
		n.cluster.deletePod(sim.name, grace)
	}
	if derive.IsTerminal(sim.phase) && pair.nodes[1].cluster.getPod(sim.name) == nil {
		pair.allowedExtra++
	}
	pair.waitIdle()
}

// housekeeping drops the statuses of pods that are in no source.
func (pair *nodePair) housekeeping() {
	for _, n := range pair.nodes {
		keep := map[types.UID]bool{}
		pods, mirrors := n.listPods()
		for _, p := range slices.Concat(pods, mirrors) {
			keep[p.UID] = true
		}
		n.RemoveOrphanedStatuses(keep)
	}
}

// resync sets all statuses again, as workers do from time to time.
func (pair *nodePair) resync() {
	for _, sim := range pair.sims {
		switch {
		case sim.terminated:
			pair.finishPod(sim)
		case sim.reported:
			pair.sync(sim)
		}
	}
}

// nodeView is what is visible of a node's pods when it is idle. Identities are those of the simulated pods, so that
// views of two nodes can be compared.
type nodeView struct {
	// Objects are the API objects, by name.
	Objects map[string]objectView
	// Cached are the node's statuses of the pods that it should run, by simulated pod.
	Cached map[string]v1.PodStatus
}

// objectView is an object in the API server.
type objectView struct {
	Instance string
	Deleted  bool
	Labels   map[string]string
	Status   v1.PodStatus
}

func (sim *podSim) String() string { return fmt.Sprintf("%s#%d", sim.name, sim.serial) }

func (pair *nodePair) viewOf(n *pairedNode) nodeView {
	p := nodeView{Objects: map[string]objectView{}, Cached: map[string]v1.PodStatus{}}
	pods, _ := n.listPods()
	for _, sim := range pair.sims {
		isHeld := slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == n.pods[sim].UID })
		if known, found := n.GetPodStatus(n.pods[sim].UID); found && isHeld {
			p.Cached[sim.String()] = normalizeCached(known)
		}
		object := n.cluster.getPod(sim.name)
		if object == nil {
			continue
		}
		seen := objectView{Deleted: object.DeletionTimestamp != nil, Labels: object.Labels, Status: sortConditions(object.Status)}
		if object.UID == n.pods[sim].UID || sim.name == staticPod {
			seen.Instance = sim.String()
			p.Objects[sim.name] = seen
		}
	}
	return p
}

// sortConditions returns the status with its conditions sorted by type.
func sortConditions(status v1.PodStatus) v1.PodStatus {
	status.Conditions = slices.SortedFunc(slices.Values(status.Conditions), func(a, b v1.PodCondition) int {
		return cmp.Compare(a.Type, b.Type)
	})
	return status
}

// normalizeCached sorts a cached status and removes the time that the kubelet writes into its own cache while it sends
// (TestSM65_CacheUnchangedBySend).
func normalizeCached(status v1.PodStatus) v1.PodStatus {
	status = sortConditions(status)
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == v1.DisruptionTarget {
			c.LastTransitionTime = metav1.Time{}
		}
	}
	return status
}

// compare returns how the two nodes differ: kubelet (-), Herald (+).
func (pair *nodePair) compare(options ...gocmp.Option) string {
	kubelet, herald := pair.viewOf(pair.nodes[0]), pair.viewOf(pair.nodes[1])
	for _, sim := range pair.sims {
		if sim.readyOverwritten {
			allowLaterReady(kubelet.Objects[sim.name].Status, herald.Objects[sim.name].Status)
			allowLaterReady(kubelet.Cached[sim.String()], herald.Cached[sim.String()])
		}
	}
	options = append(options, cmpopts.EquateEmpty(), gocmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) }))
	return gocmp.Diff(kubelet, herald, options...)
}

// allowLaterReady equates the times of Ready if Herald's is later, which it may be if another client has written Ready
// (TestSM24_ForeignCondition).
func allowLaterReady(kubelet, herald v1.PodStatus) {
	theirs, ours := findCondition(kubelet, v1.PodReady), findCondition(herald, v1.PodReady)
	if theirs != nil && ours != nil && theirs.LastTransitionTime.Before(&ours.LastTransitionTime) {
		theirs.LastTransitionTime = ours.LastTransitionTime
	}
}

func findCondition(status v1.PodStatus, kind v1.PodConditionType) *v1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

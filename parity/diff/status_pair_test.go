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

	"github.com/heraldnode/herald/podid"
)

// twins are two nodes to which the same happens at the same time: on one the kubelet's status manager is at work, on the
// other ours.
type twins struct {
	t      *testing.T
	nodes  [2]*twin // the kubelet's first
	lives  []*life
	serial int
	// blind counts, since requests were last compared, what our node cannot know from the watch: a status of a pod that the
	// address book has lost, and a pod that has ended and whose object goes in the moment in which its deletion is heard of.
	blind int
	heal  []func() // ends the faults in force
	// pause lets all come to rest that is under way at this moment.
	pause func()
}

// twin is one of them.
type twin struct {
	*reporter
	// pods are the copies with which the worker of each life last worked.
	pods map[*life]*v1.Pod
}

// boot starts both.
func (w *twins) boot(kubelet, herald *reporter) {
	w.t.Helper()
	for i, r := range []*reporter{kubelet, herald} {
		w.nodes[i] = &twin{reporter: r, pods: map[*life]*v1.Pod{}}
		r.boot(w.t, nil)
	}
	w.pause()
}

func (w *twins) stop() {
	for _, n := range w.nodes {
		n.stop()
	}
}

// restart ends both agents and starts them anew. They know what the API server knows.
func (w *twins) restart() {
	w.stop()
	for _, n := range w.nodes {
		var manifests []*v1.Pod
		for l, p := range n.pods {
			if podid.IsStatic(p) && l == w.newest(l.name) {
				manifests = append(manifests, p)
			}
		}
		n.boot(w.t, manifests)
	}
	w.pause()
}

// newest is the life of that name that is, or was, the last.
func (w *twins) newest(name string) *life {
	for _, l := range slices.Backward(w.lives) {
		if l.name == name {
			return l
		}
	}
	return nil
}

// appear binds a pod to each node, or gives a static pod its mirror, where there is none of that name.
func (w *twins) appear(name string) {
	for _, n := range w.nodes {
		if n.cluster.pod(name) != nil {
			return
		}
	}
	l := w.newest(name)
	if l == nil || name != staticPod {
		w.serial++
		l = newLife(name, w.serial)
		w.lives = append(w.lives, l)
	}
	for _, n := range w.nodes {
		n.appear(l)
	}
	w.pause()
}

func (n *twin) appear(l *life) {
	if l.name != staticPod {
		p := template(l.name)
		p.Spec.NodeName = n.name
		n.pods[l] = n.cluster.add(p)
		n.could.set(n.pods[l].UID, true)
		return
	}
	if n.pods[l] == nil {
		n.pods[l] = manifestOf(l.name)
		n.pods[l].Namespace = n.name
		n.could.set(n.pods[l].UID, true)
		n.saw(n.pods[l])
	}
	n.cluster.add(mirrorOf(n.pods[l], n.name))
}

// worker is the pod with which the worker of that life works: the newest copy that it got.
func (n *twin) worker(l *life) *v1.Pod {
	if p := n.copyOf(n.pods[l].UID); p != nil {
		n.pods[l] = p
	}
	return n.pods[l]
}

// each lets both nodes hear something about the pod, one after the other.
func (w *twins) each(l *life, tell func(n *twin, p *v1.Pod)) {
	for _, n := range w.nodes {
		tell(n, n.worker(l))
		w.pause()
	}
	if w.nodes[1].copyOf(w.nodes[1].pods[l].UID) == nil {
		w.blind++
	}
}

// say lets the workers tell both nodes what the pod does now; the worker of a pod that has ended has nothing more to say.
func (w *twins) say(l *life) {
	if !l.finished {
		w.tell(l)
	}
}

func (w *twins) tell(l *life) {
	w.each(l, func(n *twin, p *v1.Pod) { n.SetPodStatus(p, l.status(p)) })
	l.told = true
}

// probe reports what a probe of a container found, if it could have been probed: readiness of one that is started, startup of
// one that is not. After a startup probe the worker looks at the pod (PRB-40).
func (w *twins) probe(l *life, number int, passed bool) {
	c, spec := l.container(number)
	if c.State.Running == nil || !l.told || l.finished {
		return
	}
	if !*c.Started {
		c.Started, c.Ready = new(passed), passed && spec.ReadinessProbe == nil
		w.each(l, func(n *twin, p *v1.Pod) { n.SetContainerStartup(p.UID, c.ContainerID, passed) })
		w.say(l)
	} else if spec.ReadinessProbe != nil {
		c.Ready = passed
		w.each(l, func(n *twin, p *v1.Pod) { n.SetContainerReadiness(p.UID, c.ContainerID, passed) })
	}
}

// stopContainers ends what runs, before the pod has ended: it may still hold something else on the node.
func (w *twins) stopContainers(l *life) {
	l.endContainers()
	w.say(l)
	w.each(l, func(n *twin, p *v1.Pod) { n.could.set(p.UID, false) })
}

// end says that the pod has ended and nothing of it runs any more. A static pod may be run again.
func (w *twins) end(l *life) {
	if l.name == staticPod && !l.told { // TestSM17
		return
	}
	l.endContainers()
	w.tell(l)
	w.each(l, func(n *twin, p *v1.Pod) {
		n.could.set(p.UID, false)
		n.TerminatePod(p)
	})
	if l.name != staticPod {
		l.finished = true
		if l.phase != v1.PodSucceeded {
			l.phase = v1.PodFailed
		}
	}
}

// err proposes that a container which has ended for good runs again.
func (w *twins) err(l *life, number int) {
	c, _ := l.container(number)
	if c.State.Terminated == nil || l.finished || l.name != jobPod {
		return
	}
	before := c.State
	c.State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	w.each(l, func(n *twin, p *v1.Pod) { n.SetPodStatus(p, l.status(p)) })
	c.State = before
}

// interfere is a write by somebody else.
func (w *twins) interfere(name string, edit func(*v1.Pod)) {
	for _, n := range w.nodes {
		n.cluster.update(name, edit)
	}
	w.pause()
}

// kubectlDelete deletes the pod as a user would.
func (w *twins) kubectlDelete(l *life, grace int64) {
	for _, n := range w.nodes {
		n.cluster.remove(l.name, grace)
	}
	if isEnd := l.phase == v1.PodSucceeded || l.phase == v1.PodFailed; isEnd && w.nodes[1].cluster.pod(l.name) == nil {
		w.blind++
	}
	w.pause()
}

// housekeeping forgets the pods that are in no source any more.
func (w *twins) housekeeping() {
	for _, n := range w.nodes {
		keep := map[types.UID]bool{}
		pods, mirrors := n.held()
		for _, p := range slices.Concat(pods, mirrors) {
			keep[p.UID] = true
		}
		n.RemoveOrphanedStatuses(keep)
	}
}

// resync is what workers do now and then: they say once more what they know.
func (w *twins) resync() {
	for _, l := range w.lives {
		switch {
		case l.finished:
			w.end(l)
		case l.told:
			w.say(l)
		}
	}
}

// picture is what can be seen of a node's pods when all is quiet. Identities are those of the history, so that pictures of
// two nodes can be compared.
type picture struct {
	// Objects is what the API server has, by name.
	Objects map[string]shown
	// Cached is what the node says of the pods that it should run, by life.
	Cached map[string]v1.PodStatus
}

// shown is an object in the API server.
type shown struct {
	Life    string
	Deleted bool
	Labels  map[string]string
	Status  v1.PodStatus
}

func (l *life) String() string { return fmt.Sprintf("%s#%d", l.name, l.serial) }

func (w *twins) picture(n *twin) picture {
	p := picture{Objects: map[string]shown{}, Cached: map[string]v1.PodStatus{}}
	pods, _ := n.held()
	for _, l := range w.lives {
		isHeld := slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == n.pods[l].UID })
		if known, found := n.GetPodStatus(n.pods[l].UID); found && isHeld {
			p.Cached[l.String()] = cached(known)
		}
		object := n.cluster.pod(l.name)
		if object == nil {
			continue
		}
		seen := shown{Deleted: object.DeletionTimestamp != nil, Labels: object.Labels, Status: sorted(object.Status)}
		if object.UID == n.pods[l].UID || l.name == staticPod {
			seen.Life = l.String()
			p.Objects[l.name] = seen
		}
	}
	return p
}

// sorted is the status with its conditions in an order of their own: the API keeps them by type.
func sorted(status v1.PodStatus) v1.PodStatus {
	status.Conditions = slices.SortedFunc(slices.Values(status.Conditions), func(a, b v1.PodCondition) int {
		return cmp.Compare(a.Type, b.Type)
	})
	return status
}

// cached is a sorted status from a cache, without the time that the kubelet writes into its own while it sends (TestSM65).
func cached(status v1.PodStatus) v1.PodStatus {
	status = sorted(status)
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == v1.DisruptionTarget {
			c.LastTransitionTime = metav1.Time{}
		}
	}
	return status
}

// compare returns in what the two nodes differ: the kubelet's has a minus, ours a plus.
func (w *twins) compare(options ...gocmp.Option) string {
	kubelet, herald := w.picture(w.nodes[0]), w.picture(w.nodes[1])
	for _, l := range w.lives {
		if l.meddled {
			allowLaterReady(kubelet.Objects[l.name].Status, herald.Objects[l.name].Status)
			allowLaterReady(kubelet.Cached[l.String()], herald.Cached[l.String()])
		}
	}
	options = append(options, cmpopts.EquateEmpty(), gocmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) }))
	return gocmp.Diff(kubelet, herald, options...)
}

// allowLaterReady makes the times of Ready the same if ours is later, which it may be for a pod whose Ready somebody else
// has turned (TestSM24).
func allowLaterReady(kubelet, herald v1.PodStatus) {
	theirs, ours := conditionOf(kubelet, v1.PodReady), conditionOf(herald, v1.PodReady)
	if theirs != nil && ours != nil && theirs.LastTransitionTime.Before(&ours.LastTransitionTime) {
		theirs.LastTransitionTime = ours.LastTransitionTime
	}
}

func conditionOf(status v1.PodStatus, kind v1.PodConditionType) *v1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

package diff_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
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

package status_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// world is a cluster, a node in it, and the pods as a worker knows them: whatever befalls the connection between the two,
// the worker's word is what the cluster must come to show.
type world struct {
	t       *testing.T
	server  *heraldtest.APIServer
	seen    *recorder
	node    *node
	guards  []*guard
	folder  string
	state   *checkpoint.Dir
	cleanup *cleanup // outlives the agent, as the containers do
	heal    []func()
	foreign int
	pods    map[string][]*worked // by name, oldest first
	wrong   []string

	mu      sync.Mutex // guards ended, which guards read
	ended   map[types.UID]bool
	mirrors map[types.UID]types.UID // a mirror's UID to that of its static pod
}

// worked is a pod in the hands of its worker.
type worked struct {
	pod      *v1.Pod
	status   v1.PodStatus
	sequence int // of the last status that was accepted; it is in the container's image ID
	seenBy   *node
	finished bool // TerminatePod was called
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, server: heraldtest.NewAPIServer(), folder: t.TempDir(), cleanup: newCleanup(), pods: map[string][]*worked{},
		ended: map[types.UID]bool{}, mirrors: map[types.UID]types.UID{},
	}
	w.seen = record(t, w.server)
	w.seen.more = w.misdeeds
	w.start()
	return w
}

func (w *world) start() {
	w.t.Helper()
	var err error
	if w.state, err = checkpoint.Open(w.folder, checkpoint.Options{}); err != nil {
		w.t.Fatal(err)
	}
	w.node = newNode(w.t, w.server, func(c *status.Config) {
		g := newGuard(c.API, w.mayDelete)
		w.guards = append(w.guards, g)
		c.API, c.Deletion, c.State = g, w.cleanup, w.state
	})
	for _, p := range w.all() {
		if podid.IsStatic(p.pod) {
			w.node.book.AddPod(p.pod)
		}
	}
}

// stop is an orderly end of the agent.
func (w *world) stop() {
	w.t.Helper()
	w.node.stop()
	if err := w.state.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// crash is the agent's sudden death: what it had on disk is all that is left, and what it had sent is on its way.
func (w *world) crash() {
	w.t.Helper()
	left := copyOf(w.t, w.folder)
	w.guards[len(w.guards)-1].die()
	w.stop()
	w.folder = left
}

// misdeeds is what the recorder cannot know: whose status it is that a pod shows, and how old it is.
func (w *world) misdeeds(before, after *v1.Pod) (wrong []string) {
	was, is := shownSequence(before), shownSequence(after)
	own := w.ownUID(after.UID)
	if is.uid != "" && is.uid != own {
		wrong = append(wrong, fmt.Sprintf("I9: it shows the status of %s", is.uid))
	}
	if is.uid == was.uid && is.number < was.number {
		wrong = append(wrong, fmt.Sprintf("it went back from status %d to %d", was.number, is.number))
	}
	if isEnd(after.Status.Phase) && !isEnd(before.Status.Phase) && w.cleanup.PodCouldHaveRunningContainers(podid.UID(own)) {
		wrong = append(wrong, "SM-67: it shows an end while containers could run")
	}
	return wrong
}

func (w *world) ownUID(uid types.UID) types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if static, isMirror := w.mirrors[uid]; isMirror {
		return static
	}
	return uid
}

func (w *world) mayDelete(uid types.UID) error {
	w.mu.Lock()
	_, isMirror := w.mirrors[uid]
	hasEnded := w.ended[uid]
	w.mu.Unlock()
	switch {
	case isMirror:
		return errors.New("it is a mirror")
	case !hasEnded || w.cleanup.PodCouldHaveRunningContainers(podid.UID(uid)):
		return errors.New("its containers could run")
	case w.cleanup.isHeld(uid):
		return errors.New("it still holds something on the node")
	}
	return nil
}

func isEnd(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// sequence tells whose status a pod shows, and which.
type sequence struct {
	uid    types.UID
	number int
}

func shownSequence(p *v1.Pod) sequence {
	if len(p.Status.ContainerStatuses) == 0 {
		return sequence{}
	}
	uid, number, _ := strings.Cut(p.Status.ContainerStatuses[0].ImageID, "#")
	n, _ := strconv.Atoi(number)
	return sequence{types.UID(uid), n}
}

// bind creates a pod on the node; its containers could run until its worker says otherwise.
func (w *world) bind(name string, policy v1.RestartPolicy) {
	if w.server.Pod(podid.FullName{Namespace: "shop", Name: name}) != nil {
		return
	}
	created := w.server.AddPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{NodeName: nodeName, RestartPolicy: policy, Containers: []v1.Container{{
			Name: "web", Image: "web", ReadinessProbe: &v1.Probe{}, StartupProbe: &v1.Probe{},
		}}},
	})
	w.cleanup.setRunning(created.UID, true)
	w.take(name, created)
}

// place puts a static pod and its mirror on the node, or only the mirror if that is missing.
func (w *world) place(name string) {
	if len(w.pods[name]) == 0 {
		static := staticPod(name)
		w.cleanup.setRunning(static.UID, true)
		w.node.book.AddPod(static)
		w.take(name, static)
	}
	static := w.pods[name][0].pod
	if w.server.Pod(podid.FullNameOf(static)) != nil {
		return
	}
	created := w.server.AddPod(mirrorOf(static))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mirrors[created.UID] = static.UID
}

func (w *world) take(name string, pod *v1.Pod) {
	p := &worked{pod: pod, status: runningStatus()}
	p.status.Phase = v1.PodPending
	p.status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	p.status.ContainerStatuses[0].ContainerID = ""
	p.status.ContainerStatuses[0].Ready, p.status.ContainerStatuses[0].Started = false, new(false)
	w.pods[name] = append(w.pods[name], p)
}

func (w *world) all() (all []*worked) {
	for _, sameName := range w.pods {
		all = append(all, sameName...)
	}
	return all
}

// set tells the manager the worker's newest status and notes whether it was accepted.
func (w *world) set(p *worked, s v1.PodStatus) bool {
	s = *s.DeepCopy()
	s.ContainerStatuses[0].ImageID = fmt.Sprintf("%s#%d", p.pod.UID, p.sequence+1)
	if _, changed := w.node.SetPodStatus(p.pod, s); !changed {
		return false
	}
	p.sequence++
	return true
}

// hasWorker reports whether the agent, since it was started, has heard of the pod. The pod is then the address book's newest
// copy, or the last one that it had.
func (w *world) hasWorker(p *worked) bool {
	if held, found := w.node.book.GetPodByUID(podid.UID(p.pod.UID)); found {
		p.pod, p.seenBy = held, w.node
	}
	return p.seenBy == w.node
}

// goOn takes the pod's container one step further: it starts, it ends, and it starts again where it may.
func (w *world) goOn(p *worked, exitCode int32) {
	c := &p.status.ContainerStatuses[0]
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	switch {
	case p.finished:
		return
	case c.State.Waiting != nil:
		c.ContainerID = fmt.Sprintf("test://%s-0", p.pod.UID)
		c.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}
		p.status.Phase = v1.PodRunning
	case c.State.Running != nil:
		c.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: exitCode, StartedAt: c.State.Running.StartedAt, FinishedAt: now, ContainerID: c.ContainerID,
		}}
		if p.pod.Spec.RestartPolicy == v1.RestartPolicyNever {
			p.status.Phase = map[bool]v1.PodPhase{true: v1.PodSucceeded, false: v1.PodFailed}[exitCode == 0]
		}
	case p.pod.Spec.RestartPolicy == v1.RestartPolicyNever:
		return
	default:
		c.LastTerminationState = c.State
		c.RestartCount++
		c.ContainerID = fmt.Sprintf("test://%s-%d", p.pod.UID, c.RestartCount)
		c.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}
	}
	if !w.set(p, p.status) {
		w.wrong = append(w.wrong, fmt.Sprintf("a legal status of %s was refused", p.pod.Name))
	}
}

// goBack proposes that a container which has ended for good runs again: it must be refused.
func (w *world) goBack(p *worked) {
	if p.status.ContainerStatuses[0].State.Terminated == nil || p.pod.Spec.RestartPolicy != v1.RestartPolicyNever || p.sequence == 0 {
		return
	}
	illegal := *p.status.DeepCopy()
	illegal.Phase = v1.PodRunning
	illegal.ContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	if w.set(p, illegal) {
		w.wrong = append(w.wrong, fmt.Sprintf("SM-23: the container of %s runs again", p.pod.Name))
	}
}

// end says that the pod has ended and nothing of it runs any more.
func (w *world) end(p *worked) {
	w.cleanup.setRunning(p.pod.UID, false)
	w.mu.Lock()
	w.ended[p.pod.UID] = true
	w.mu.Unlock()
	p.finished = true
	w.node.TerminatePod(p.pod)
}

// interfere is a write by somebody else.
func (w *world) interfere(name string, edit func(*v1.Pod)) {
	w.foreign++
	w.server.UpdatePod(podid.FullName{Namespace: "shop", Name: name}, func(p *v1.Pod) {
		edit(p)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, foreignMark, strconv.Itoa(w.foreign))
	})
}

// resync is what workers do after a restart of their agent, and now and then: they say once more what they know.
func (w *world) resync() {
	for _, p := range w.all() {
		if !w.hasWorker(p) {
			continue
		}
		if p.sequence > 0 {
			w.set(p, p.status)
		}
		if p.finished {
			w.end(p)
		}
	}
}

// housekeeping forgets the pods that are in no source any more.
func (w *world) housekeeping() {
	keep := map[types.UID]bool{}
	for _, p := range w.node.book.GetPods() {
		keep[p.UID] = true
	}
	w.node.RemoveOrphanedStatuses(keep)
}

// rest ends all faults and lets the world come to rest. It returns what is not as it should be then.
func (w *world) rest() []string {
	for _, heal := range w.heal {
		heal()
	}
	w.server.SetDown(false)
	time.Sleep(3 * time.Minute)
	w.resync()
	time.Sleep(3 * time.Minute)
	w.housekeeping()
	for _, p := range w.all() {
		w.check(p)
	}
	w.node.faults.Forget()
	time.Sleep(5 * time.Minute)
	for _, request := range w.node.faults.Requests().Of("*", "/pods/") {
		w.wrong = append(w.wrong, fmt.Sprintf("I10: %s %s at rest, at %v", request.Method, request.Path, request.Start))
	}
	for _, g := range w.guards {
		w.wrong = append(w.wrong, g.misses()...)
	}
	return append(w.wrong, w.seen.misses()...)
}

// check compares the API server with the cache, and the cache with the worker, for a pod at rest.
func (w *world) check(p *worked) {
	object := w.server.Pod(podid.FullNameOf(p.pod))
	if object == nil || w.ownUID(object.UID) != p.pod.UID {
		return
	}
	say := func(format string, args ...any) {
		w.wrong = append(w.wrong, fmt.Sprintf("pod %s %s at rest: ", p.pod.Name, p.pod.UID)+fmt.Sprintf(format, args...))
	}
	uid := podid.UID(p.pod.UID)
	couldRun := w.cleanup.PodCouldHaveRunningContainers(uid)
	if p.finished && object.DeletionTimestamp != nil && !podid.IsStatic(p.pod) && !couldRun && !w.cleanup.isHeld(p.pod.UID) {
		say("I12: it is still in the API server")
		return
	}
	cached, known := w.node.GetPodStatus(p.pod.UID)
	if !known {
		if p.sequence > 0 {
			say("it has no status")
		}
		return
	}
	if should := derive.Merge(object.Status, cached, couldRun, time.Now()); !derive.Equal(&object.Status, &should) {
		say("I10: the API server says\n%+v\nand the node\n%+v", object.Status, cached)
	}
	if got := shownSequence(object); got.number != p.sequence {
		say("I11: it shows status %d, the worker said %d", got.number, p.sequence)
	}
}

// Package recorder sees all that the API server shows of a node's pods and hears of the node's agent, and fails the test for
// what no agent may do.
package recorder

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	retrying "k8s.io/client-go/tools/watch"
)

// clock is how stories tell the time.
const clock = "15:04:05.000"

// Recorder sees every version of every pod of one node that the API server ever shows, past all faults, and every write
// that the node asked for. When the test ends, each step that no agent may cause (I1..I13, as far as they can be seen from
// outside) fails it, with the story of the pod.
//
// All methods may be called by any goroutine; those that wait fail the test, so they are for the test's own.
type Recorder struct {
	Cluster *Cluster
	Admin   kubernetes.Interface
	Node    string
	// Namespace is the one whose pods are seen; "" stands for all.
	Namespace string

	t     *testing.T
	since int64 // place in the audit log

	mu     sync.Mutex // guards all below
	lives  map[types.UID]*life
	newest map[string]*life // by name
	events int
	news   chan struct{} // closed and replaced with each event
}

// life is one pod from its creation to its end.
type life struct {
	pod   *v1.Pod // as last seen
	gone  bool
	past  []*v1.Pod // every version, the newest last
	story []string
	wrong []string
}

// Record begins to watch the node's pods in a namespace, or in all (""). A test calls it before it starts an agent: then the
// agent has ended when it is judged.
func Record(t *testing.T, on *Cluster, node, namespace string) *Recorder {
	t.Helper()
	r := Watch(t, on, node, namespace)
	t.Cleanup(r.judge)
	return r
}

// Watch is Record without a judge, for an agent that is not ours.
func Watch(t *testing.T, on *Cluster, node, namespace string) *Recorder {
	t.Helper()
	r := &Recorder{
		Cluster: on, Admin: ClientOf(t, on.AdminConfig()), Node: node, Namespace: namespace, t: t, since: on.place(),
		lives: map[types.UID]*life{}, newest: map[string]*life{}, news: make(chan struct{}),
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	version, err := r.catchUp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.follow(ctx, version)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return r
}

// catchUp sees what there is now, and returns the version from which a watch goes on.
func (r *Recorder) catchUp(ctx context.Context) (version string, err error) {
	list, err := r.List(ctx)
	if err != nil {
		return "", err
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		there[list.Items[i].UID] = true
		r.see(watch.Modified, &list.Items[i])
	}
	for _, p := range r.alive() {
		if !there[p.UID] {
			r.see(watch.Deleted, p)
		}
	}
	return list.ResourceVersion, nil
}

func (r *Recorder) alive() (pods []*v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lives {
		if !l.gone {
			pods = append(pods, l.pod)
		}
	}
	return pods
}

// List is what the API server has of the node's pods now.
func (r *Recorder) List(ctx context.Context) (*v1.PodList, error) {
	return r.Admin.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + r.Node})
}

func (r *Recorder) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.FieldSelector = "spec.nodeName=" + r.Node
	return r.Admin.CoreV1().Pods(r.Namespace).Watch(ctx, options)
}

// follow sees each event from that version on. An API server that was restarted knows no versions of before; what there is
// then shows whether any were missed.
func (r *Recorder) follow(ctx context.Context, version string) {
	for ctx.Err() == nil {
		events, err := retrying.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: r.watch})
		if err != nil {
			r.t.Errorf("the recorder of node %s: %v", r.Node, err)
			return
		}
		for event := range events.ResultChan() {
			if p, isPod := event.Object.(*v1.Pod); isPod {
				r.see(event.Type, p)
			}
		}
		again := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			version, err = r.catchUp(ctx)
			return err == nil, nil
		})
		if again != nil {
			return // it was stopped
		}
	}
}

func (r *Recorder) see(kind watch.EventType, pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[pod.UID]
	if l != nil && kind == watch.Modified && l.pod.ResourceVersion == pod.ResourceVersion {
		return
	}
	if l == nil {
		l = &life{}
		r.lives[pod.UID], r.newest[pod.Name] = l, l
	}
	l.past, l.story = append(l.past, pod), append(l.story, tell(kind, pod))
	if kind == watch.Deleted {
		l.gone = true
	}
	if l.pod != nil && kind == watch.Modified {
		l.wrong = append(l.wrong, misdeeds(l.pod, pod, time.Now())...)
	}
	l.pod = pod
	r.events++
	close(r.news)
	r.news = make(chan struct{})
}

// tell is one line of a pod's story.
func tell(kind watch.EventType, pod *v1.Pod) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%s version %s %s: %s", time.Now().Format(clock), pod.ResourceVersion, kind, pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		fmt.Fprintf(&line, ", %s=%s since %s", c.Type, c.Status, c.LastTransitionTime.Format(time.TimeOnly))
	}
	for _, c := range ContainersOf(&pod.Status) {
		fmt.Fprintf(&line, ", %s restarted %d times and %s", c.Name, c.RestartCount, stateOf(c))
	}
	if pod.Status.Message != "" {
		fmt.Fprintf(&line, ", message %.80q", pod.Status.Message)
	}
	if pod.DeletionTimestamp != nil {
		line.WriteString(", being deleted")
	}
	if mark := pod.Annotations[ForeignMark]; mark != "" {
		fmt.Fprintf(&line, ", foreign write %s", mark)
	}
	return line.String()
}

// Await waits until the newest pod of that name is there and is so, and returns it.
func (r *Recorder) Await(name, what string, is func(*v1.Pod) bool) *v1.Pod {
	r.t.Helper()
	var found *v1.Pod
	r.awaitLife(name, what, func(l *life) bool {
		found = l.pod
		return !l.gone && is(l.pod)
	})
	return found
}

// AwaitEnd waits until the newest pod of that name is gone.
func (r *Recorder) AwaitEnd(name string) {
	r.t.Helper()
	r.awaitLife(name, "to be gone", func(l *life) bool { return l.gone })
}

func (r *Recorder) awaitLife(name, what string, is func(*life) bool) {
	r.t.Helper()
	deadline := time.After(Patience)
	for {
		r.mu.Lock()
		l, news := r.newest[name], r.news
		held := l != nil && is(l)
		r.mu.Unlock()
		if held {
			return
		}
		select {
		case <-news:
		case <-deadline:
			r.t.Fatalf("pod %s was not seen %s; its story:\n%s", name, what, r.Story(name))
		}
	}
}

// Seen counts the events so far, and returns what is closed with the next one.
func (r *Recorder) Seen() (events int, next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events, r.news
}

// Versions is everything that the newest pod of that name has been, the last at the end. Nobody may change it.
func (r *Recorder) Versions(name string) []*v1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.newest[name]; l != nil {
		return slices.Clone(l.past)
	}
	return nil
}

// Story is all that was seen of the newest pod of that name.
func (r *Recorder) Story(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.newest[name]; l != nil {
		return strings.Join(l.story, "\n")
	}
	return "(never seen)"
}

// judge fails the test for everything that went wrong, once the recorder has seen all that there is to see.
func (r *Recorder) judge() {
	Eventually(r.t, "the recorder of node "+r.Node, r.hasCaughtUp)
	writes, err := r.Cluster.requests(r.Node, r.since)
	writes = slices.DeleteFunc(writes, func(w request) bool {
		return !w.isWrite() || r.Namespace != "" && w.Object.Namespace != r.Namespace
	})
	if err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, problem := range unlawful(writes, r.lives) {
		r.t.Error(problem)
	}
	for uid, l := range r.lives {
		if len(l.wrong) > 0 {
			r.t.Errorf("pod %s %s:\n%s\nits story:\n%s", l.pod.Name, uid, strings.Join(l.wrong, "\n"), strings.Join(l.story, "\n"))
		}
	}
}

// hasCaughtUp compares with what the API server has at this moment.
func (r *Recorder) hasCaughtUp() (string, bool) {
	list, err := r.List(context.WithoutCancel(r.t.Context()))
	if err != nil {
		return err.Error(), false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	alive := slices.DeleteFunc(slices.Collect(maps.Values(r.lives)), func(l *life) bool { return l.gone })
	for i := range list.Items {
		if l := r.lives[list.Items[i].UID]; l == nil || l.pod.ResourceVersion != list.Items[i].ResourceVersion {
			return "behind with pod " + list.Items[i].Name, false
		}
	}
	return "behind with deletions", len(alive) == len(list.Items)
}

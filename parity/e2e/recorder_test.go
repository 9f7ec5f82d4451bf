package e2e_test

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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	retrying "k8s.io/client-go/tools/watch"
)

// clock is how stories tell the time.
const clock = "15:04:05.000"

// patience is how long a test waits for what must happen.
const patience = time.Minute

// recorder sees every version of every pod of one node that the API server ever shows, past all faults, and every write
// that the node asked for. When the test ends, each step that no agent may cause (I1..I13, as far as they can be seen from
// outside) fails it, with the story of the pod.
//
// All methods may be called by any goroutine; those that wait fail the test, so they are for the test's own.
type recorder struct {
	t       *testing.T
	cluster *audited
	admin   kubernetes.Interface
	node    string
	since   int64 // place in the audit log

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
	story []string
	wrong []string
}

// record begins to watch the node's pods. A test calls it before it starts an agent: then the agent has ended when it is
// judged.
func record(t *testing.T, on *audited, node string) *recorder {
	t.Helper()
	r := &recorder{
		t: t, cluster: on, admin: clientOf(t, on.AdminConfig()), node: node, since: on.place(),
		lives: map[types.UID]*life{}, newest: map[string]*life{}, news: make(chan struct{}),
	}
	list, err := r.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		r.see(watch.Added, &list.Items[i])
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	events, err := retrying.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: r.watch})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.follow(events)
	}()
	t.Cleanup(func() {
		r.judge()
		stop()
		<-done
	})
	return r
}

func (r *recorder) list(ctx context.Context) (*v1.PodList, error) {
	return r.admin.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + r.node})
}

func (r *recorder) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.FieldSelector = "spec.nodeName=" + r.node
	return r.admin.CoreV1().Pods("").Watch(ctx, options)
}

func (r *recorder) follow(events watch.Interface) {
	for event := range events.ResultChan() {
		switch object := event.Object.(type) {
		case *v1.Pod:
			r.see(event.Type, object)
		case *metav1.Status:
			r.t.Errorf("the recorder of node %s has missed something: %s", r.node, object.Message)
		}
	}
}

func (r *recorder) see(kind watch.EventType, pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[pod.UID]
	if l == nil {
		l = &life{}
		r.lives[pod.UID], r.newest[pod.Name] = l, l
	}
	l.story = append(l.story, tell(kind, pod))
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
	for _, c := range containersOf(&pod.Status) {
		fmt.Fprintf(&line, ", %s restarted %d times and %s", c.Name, c.RestartCount, stateOf(c))
	}
	if pod.Status.Message != "" {
		fmt.Fprintf(&line, ", message %.80q", pod.Status.Message)
	}
	if pod.DeletionTimestamp != nil {
		line.WriteString(", being deleted")
	}
	if mark := pod.Annotations[foreignMark]; mark != "" {
		fmt.Fprintf(&line, ", foreign write %s", mark)
	}
	return line.String()
}

// await waits until the newest pod of that name is there and is so, and returns it.
func (r *recorder) await(name, what string, is func(*v1.Pod) bool) *v1.Pod {
	r.t.Helper()
	var found *v1.Pod
	r.awaitLife(name, what, func(l *life) bool {
		found = l.pod
		return !l.gone && is(l.pod)
	})
	return found
}

// awaitEnd waits until the newest pod of that name is gone.
func (r *recorder) awaitEnd(name string) {
	r.t.Helper()
	r.awaitLife(name, "to be gone", func(l *life) bool { return l.gone })
}

func (r *recorder) awaitLife(name, what string, is func(*life) bool) {
	r.t.Helper()
	deadline := time.After(patience)
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
			r.t.Fatalf("pod %s was not seen %s; its story:\n%s", name, what, r.story(name))
		}
	}
}

// seen counts the events so far, and returns what is closed with the next one.
func (r *recorder) seen() (events int, next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events, r.news
}

func (r *recorder) story(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.newest[name]; l != nil {
		return strings.Join(l.story, "\n")
	}
	return "(never seen)"
}

// judge fails the test for everything that went wrong, once the recorder has seen all that there is to see.
func (r *recorder) judge() {
	eventually(r.t, "the recorder of node "+r.node, r.hasCaughtUp)
	writes, err := r.cluster.writes(r.node, r.since)
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
func (r *recorder) hasCaughtUp() (string, bool) {
	list, err := r.list(context.WithoutCancel(r.t.Context()))
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

// Package recorder records all pod versions that the API server shows for a node and all writes of the node's agent. It fails
// the test for changes that no agent may make.
package recorder

import (
	"context"
	"errors"
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
	toolswatch "k8s.io/client-go/tools/watch"
)

// Timeout is how long the methods of a Recorder wait. It only ends a hang, so it is generous.
const Timeout = 3 * time.Minute

// timeFormat is the time format of pod histories.
const timeFormat = "15:04:05.000"

// Recorder records every version of every pod of one node that the API server shows, across all faults, and every write of the
// node. When the test ends, it checks the invariants I1..I13 as far as they are visible from outside. A violation fails the test
// and prints the history of the pod.
//
// All methods are safe for concurrent use. Those that wait fail the test, so only the test's goroutine may call them.
type Recorder struct {
	Cluster  *Cluster
	Admin    kubernetes.Interface
	NodeName string
	// Namespace limits the pods to one namespace. "" means all namespaces.
	Namespace string

	t           *testing.T
	auditOffset int64 // start of this recording in the audit log

	mu      sync.Mutex // guards all below
	pods    map[types.UID]*podHistory
	newest  map[string]*podHistory // by name
	events  int
	changed chan struct{} // closed and replaced with each event
}

// podHistory is all that was seen of one pod, from creation to deletion.
type podHistory struct {
	pod        *v1.Pod // newest version
	deleted    bool
	versions   []*v1.Pod // oldest first
	lines      []string
	violations []string
}

// Record starts to watch the node's pods in a namespace, or in all namespaces (""), and checks the invariants when the test
// ends. Call it before the agent starts: cleanups run in reverse order, so the agent has stopped when the check runs.
func Record(t *testing.T, cluster *Cluster, nodeName, namespace string) *Recorder {
	t.Helper()
	r := Watch(t, cluster, nodeName, namespace)
	t.Cleanup(r.check)
	return r
}

// Watch is like Record, but does not check the invariants. It is for agents other than Herald.
func Watch(t *testing.T, cluster *Cluster, nodeName, namespace string) *Recorder {
	t.Helper()
	r := &Recorder{
		Cluster: cluster, Admin: NewClient(t, cluster.AdminConfig()), NodeName: nodeName, Namespace: namespace,
		t: t, auditOffset: cluster.auditLogSize(),
		pods: map[types.UID]*podHistory{}, newest: map[string]*podHistory{}, changed: make(chan struct{}),
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	version, err := r.relist(ctx)
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

// relist records the current pods and returns the resource version to watch from.
func (r *Recorder) relist(ctx context.Context) (version string, err error) {
	list, err := r.List(ctx)
	if err != nil {
		return "", err
	}
	listed := map[types.UID]bool{}
	for i := range list.Items {
		listed[list.Items[i].UID] = true
		r.record(watch.Modified, &list.Items[i])
	}
	for _, pod := range r.existing() {
		if !listed[pod.UID] {
			r.record(watch.Deleted, pod)
		}
	}
	return list.ResourceVersion, nil
}

// existing returns the pods whose deletion was not seen.
func (r *Recorder) existing() (pods []*v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, history := range r.pods {
		if !history.deleted {
			pods = append(pods, history.pod)
		}
	}
	return pods
}

// List returns the node's pods as the API server has them now.
func (r *Recorder) List(ctx context.Context) (*v1.PodList, error) {
	return r.Admin.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + r.NodeName})
}

func (r *Recorder) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.FieldSelector = "spec.nodeName=" + r.NodeName
	return r.Admin.CoreV1().Pods(r.Namespace).Watch(ctx, options)
}

// follow records each event after this resource version. A restarted API server does not know older versions; a new list then
// shows whether any were missed.
func (r *Recorder) follow(ctx context.Context, version string) {
	for ctx.Err() == nil {
		events, err := toolswatch.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: r.watch})
		if err != nil {
			r.t.Errorf("watch pods of node %s: %v", r.NodeName, err)
			return
		}
		for event := range events.ResultChan() {
			if pod, isPod := event.Object.(*v1.Pod); isPod {
				r.record(event.Type, pod)
			}
		}
		err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			var err error
			version, err = r.relist(ctx)
			return err == nil, nil
		})
		if err != nil {
			return // stopped
		}
	}
}

// record adds a version to the pod's history and wakes the waiting goroutines.
func (r *Recorder) record(event watch.EventType, pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	history := r.pods[pod.UID]
	if history != nil && event == watch.Modified && history.pod.ResourceVersion == pod.ResourceVersion {
		return
	}
	if history == nil {
		history = &podHistory{}
		r.pods[pod.UID], r.newest[pod.Name] = history, history
	}
	history.versions, history.lines = append(history.versions, pod), append(history.lines, describe(event, pod))
	if event == watch.Deleted {
		history.deleted = true
	}
	if history.pod != nil && event == watch.Modified {
		history.violations = append(history.violations, violations(history.pod, pod, time.Now())...)
	}
	history.pod = pod
	r.events++
	close(r.changed)
	r.changed = make(chan struct{})
}

// describe returns one line of a pod's history.
func describe(event watch.EventType, pod *v1.Pod) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%s version %s %s: %s", time.Now().Format(timeFormat), pod.ResourceVersion, event, pod.Status.Phase)
	for _, condition := range pod.Status.Conditions {
		fmt.Fprintf(&line, ", %s=%s since %s", condition.Type, condition.Status, condition.LastTransitionTime.Format(time.TimeOnly))
	}
	for _, container := range ContainerStatuses(&pod.Status) {
		fmt.Fprintf(&line, ", %s restarted %d times and %s", container.Name, container.RestartCount, describeState(container))
	}
	if pod.Status.Message != "" {
		fmt.Fprintf(&line, ", message %.80q", pod.Status.Message)
	}
	if pod.DeletionTimestamp != nil {
		line.WriteString(", being deleted")
	}
	if number := pod.Annotations[ForeignWriteAnnotation]; number != "" {
		fmt.Fprintf(&line, ", foreign write %s", number)
	}
	return line.String()
}

func describeState(container v1.ContainerStatus) string {
	switch {
	case container.State.Terminated != nil:
		return fmt.Sprintf("terminated with %d", container.State.Terminated.ExitCode)
	case container.State.Running != nil:
		return "running"
	default:
		return "waiting"
	}
}

// Await waits until the newest pod of this name exists and meets the condition, and returns it. The description of the
// condition is for the failure message.
func (r *Recorder) Await(name, description string, condition func(*v1.Pod) bool) *v1.Pod {
	r.t.Helper()
	var found *v1.Pod
	r.await(name, description, func(history *podHistory) bool {
		found = history.pod
		return !history.deleted && condition(history.pod)
	})
	return found
}

// AwaitDeleted waits until the newest pod of this name is deleted.
func (r *Recorder) AwaitDeleted(name string) {
	r.t.Helper()
	r.await(name, "deleted", func(history *podHistory) bool { return history.deleted })
}

func (r *Recorder) await(name, description string, condition func(*podHistory) bool) {
	r.t.Helper()
	deadline := time.After(Timeout)
	for {
		r.mu.Lock()
		history, changed := r.newest[name], r.changed
		met := history != nil && condition(history)
		r.mu.Unlock()
		if met {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("pod %s: not %s within %v; history:\n%s", name, description, Timeout, r.History(name))
		}
	}
}

// Events returns the number of recorded events and a channel that is closed with the next one.
func (r *Recorder) Events() (count int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events, r.changed
}

// Versions returns all versions of the newest pod of this name, oldest first. They must not be modified.
func (r *Recorder) Versions(name string) []*v1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if history := r.newest[name]; history != nil {
		return slices.Clone(history.versions)
	}
	return nil
}

// History describes all versions of the newest pod of this name, one per line.
func (r *Recorder) History(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if history := r.newest[name]; history != nil {
		return strings.Join(history.lines, "\n")
	}
	return "(never seen)"
}

// check fails the test for each violation, once the recorder has seen the current state of the API server.
func (r *Recorder) check() {
	r.awaitCaughtUp()
	writes, err := r.Cluster.requests(r.NodeName, r.auditOffset)
	writes = slices.DeleteFunc(writes, func(w request) bool {
		return !w.isPodWrite() || r.Namespace != "" && w.Object.Namespace != r.Namespace
	})
	if err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, violation := range writeViolations(writes, r.pods) {
		r.t.Error(violation)
	}
	for uid, history := range r.pods {
		if len(history.violations) > 0 {
			r.t.Errorf("pod %s %s:\n%s\nhistory:\n%s",
				history.pod.Name, uid, strings.Join(history.violations, "\n"), strings.Join(history.lines, "\n"))
		}
	}
}

// awaitCaughtUp runs in a cleanup, when the test's context is already canceled.
func (r *Recorder) awaitCaughtUp() {
	ctx := context.WithoutCancel(r.t.Context())
	var behind error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, Timeout, true, func(ctx context.Context) (bool, error) {
		behind = r.compareWithServer(ctx)
		return behind == nil, nil
	})
	if err != nil {
		r.t.Fatalf("recorder of node %s: %v", r.NodeName, behind)
	}
}

// compareWithServer returns an error while the recorder lags behind the API server.
func (r *Recorder) compareWithServer(ctx context.Context) error {
	list, err := r.List(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	existing := slices.DeleteFunc(slices.Collect(maps.Values(r.pods)), func(history *podHistory) bool { return history.deleted })
	for i := range list.Items {
		history := r.pods[list.Items[i].UID]
		if history == nil || history.pod.ResourceVersion != list.Items[i].ResourceVersion {
			return fmt.Errorf("newest version of pod %s not seen", list.Items[i].Name)
		}
	}
	if len(existing) != len(list.Items) {
		return errors.New("deletions not seen")
	}
	return nil
}

package server_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

// node has pods and a real history of their statuses. It implements Agent, Inspector and Operator: views and verdicts are made from
// facts by the real functions.
type node struct {
	dir string

	mu       sync.Mutex // guards what follows
	pods     map[podid.FullName]*v1.Pod
	versions map[podid.FullName]uint64
	left     map[podid.FullName]explain.Left
	version  uint64
	restarts []string
	asked    int // how often somebody wanted loads
	alerts   []view.Alert
	silences []alert.Silence
	resumed  []string

	log  *history.Log
	stop func()
}

func newNode(tb testing.TB) *node {
	tb.Helper()
	n := &node{
		dir: filepath.Join(tb.TempDir(), "history"), pods: map[podid.FullName]*v1.Pod{}, versions: map[podid.FullName]uint64{},
		left: map[podid.FullName]explain.Left{},
	}
	n.start(tb)
	tb.Cleanup(func() { n.stop() })
	return n
}

// start opens the history, as a new run of the agent does.
func (n *node) start(tb testing.TB) {
	tb.Helper()
	log, err := history.Open(history.Config{Dir: n.dir})
	if err != nil {
		tb.Fatal(err)
	}
	n.log = log
	n.run(tb)
}

// run runs the opened history.
func (n *node) run(tb testing.TB) {
	tb.Helper()
	log := n.log
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version = 0
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	for name := range n.versions {
		n.versions[name] = 0
	}
}

// newServer returns a server of the node's present run.
func (n *node) newServer(tb testing.TB) *server.Server {
	tb.Helper()
	s, err := server.New(server.Config{
		Agent: n, History: n.log, Inspector: n, Loads: n, Operator: n, Alerting: n, Actions: n, Token: "secret",
		Containers: http.HandlerFunc(containers),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// set sets the status of a pod.
func (n *node) set(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := podid.FullNameOf(pod)
	n.version++
	change := history.Version{
		UID: podid.UID(pod.UID), Pod: pod, After: &pod.Status, Version: n.version, Previous: n.versions[name],
		Via: transition.ViaWorker, Time: time.Now(),
	}
	if old := n.pods[name]; old != nil {
		change.Before = &old.Status
	}
	n.pods[name], n.versions[name] = pod, n.version
	delete(n.left, name)
	n.log.Accepted(change)
}

// remove removes a pod.
func (n *node) remove(name podid.FullName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod := n.pods[name]
	if pod == nil {
		return
	}
	n.version++
	delete(n.pods, name)
	n.left[name] = explain.Left{At: time.Now(), Summary: transition.PodSummary(pod, &pod.Status)}
	n.log.Accepted(history.Version{
		UID: podid.UID(pod.UID), Pod: pod, Before: &pod.Status, After: &pod.Status, Version: n.version, Previous: n.versions[name],
		Via: transition.ViaRemove, Time: time.Now(), Removed: true,
	})
	delete(n.versions, name)
}

// facts requires the lock.
func (n *node) factsLocked(name podid.FullName) explain.Facts {
	f := explain.Facts{Now: time.Now(), Name: name, Pod: n.pods[name]}
	f.Sync = explain.Sync{State: explain.SyncNoServer, Version: n.versions[name]}
	if left, found := n.left[name]; found && f.Pod == nil {
		f.Left = &left
	}
	return f
}

func (n *node) LocalPods() []*v1.Pod { return nil }
func (n *node) Healthy() error       { return nil }
func (n *node) WatchLocalPods(context.Context) iter.Seq[watch.Event] {
	return func(func(watch.Event) bool) {}
}

func (n *node) Pods(context.Context) []view.PodView {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []view.PodView
	for name := range n.pods {
		all = append(all, view.NewPod(n.factsLocked(name)))
	}
	return all
}

func (n *node) Pod(_ context.Context, name podid.FullName) (view.PodView, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[name] == nil {
		return view.PodView{}, false
	}
	return view.NewPod(n.factsLocked(name)), true
}

// AddLoads adds the load of a pod that was measured: all but those whose name begins with "new".
func (n *node) AddLoads(pods []view.PodView) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	for i := range pods {
		if name := nameOf(&pods[i]); !strings.HasPrefix(name.Name, "new") {
			pods[i].Load = view.NewPodLoad(load.Pod{UsageLoad: goldenUsage()}, n.pods[name])
		}
	}
}

func (n *node) NodeLoadHistory(time.Time) view.LoadHistory {
	return view.NewNodeLoadHistory(load.Points{Step: time.Minute}, view.Metadata{Name: "n1"})
}

func (n *node) PodLoadHistory(name podid.FullName, since time.Time) (view.LoadHistory, bool) {
	points := goldenPoints()
	points.Start = since
	return view.NewPodLoadHistory(points, view.Metadata{Namespace: name.Namespace, Name: name.Name}), n.pods[name] != nil
}

func nameOf(pod *view.PodView) podid.FullName {
	return podid.FullName{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name}
}

func (n *node) Node(ctx context.Context) view.NodeView {
	object := &v1.Node{}
	object.Name = "n1"
	return view.NewNode(view.NodeFacts{
		Node: object, Pods: n.Pods(ctx), Agent: view.Agent{StartedAt: view.NewTime(time.Now())}, Load: view.NewNodeLoad(goldenLoad(), goldenNow),
	})
}

func (n *node) Explain(_ context.Context, name podid.FullName, q explain.Question) (explain.Verdict, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.factsLocked(name)
	return explain.Pod(f, q), f.Pod != nil || f.Left != nil
}

func (n *node) Sources() []view.Source {
	return []view.Source{{Name: "file", State: "ok", Origin: "/etc/herald/manifests", Pods: 1}}
}

func (n *node) Restart(_ context.Context, name podid.FullName, container, reason string) (view.Restart, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if reason == "busy" {
		return view.Restart{}, errors.New("the container is being stopped")
	}
	n.restarts = append(n.restarts, name.Key()+" "+container+" "+reason)
	return view.Restart{APIVersion: view.APIVersion, Kind: "Restart", Namespace: name.Namespace, Pod: name.Name, Container: container}, nil
}

func (n *node) CheckProbe(_ context.Context, name podid.FullName, container string, kind explain.ProbeKind) ([]view.ProbeCheck, error) {
	return []view.ProbeCheck{{
		APIVersion: view.APIVersion, Kind: "ProbeCheck", Namespace: name.Namespace, Pod: name.Name, Container: container,
		ProbeKind: cmp.Or(kind, explain.Readiness), Answer: *view.NewAnswer(explain.Answer{At: time.Now(), OK: true}),
	}}, nil
}

// newRunningPod returns a pod of the namespace default whose container is or is not ready.
func newRunningPod(name string, isReady bool) *v1.Pod {
	pod := heraldtest.NewPod(name, heraldtest.OnNode("n1"))
	pod.Labels = map[string]string{"app": name}
	condition := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse}
	if isReady {
		condition.Status = v1.ConditionTrue
	}
	pod.Status = v1.PodStatus{
		Phase: v1.PodRunning, Conditions: []v1.PodCondition{condition},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "main", Ready: isReady, Started: new(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}},
	}
	return pod
}

// summaries returns namespace/name and the readiness of each pod, sorted.
func summaries(pods []view.PodView) []string {
	all := []string{}
	for i := range pods {
		all = append(all, pods[i].Metadata.Namespace+"/"+pods[i].Metadata.Name+" "+pods[i].Local.Summary)
	}
	slices.Sort(all)
	return all
}

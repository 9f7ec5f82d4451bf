package agent_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

const (
	nodeName  = "node-1"
	namespace = "shop"
	webYAML   = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - {name: main, image: web:1}\n"
)

const (
	// settleTime is how long the harness polls closely after a change.
	settleTime = 50 * readLatency
	// convergeTime is enough for a housekeeping pass, a resync and a retry of everything.
	convergeTime = 3 * time.Minute
)

// harness is a machine in a cluster, and the agent that runs on it now. The machine and the cluster survive agent restarts.
type harness struct {
	*testing.T
	manifests   map[string]string
	server      *heraldtest.APIServer
	runtime     *fakeruntime.Runtime
	source      *fakeSource
	admission   *fakeAdmission
	state       stateDirs
	standalone  bool // without an API server
	transcript  *transcript
	activity    wakeup.Signal // something happened or is about to happen
	node        *node         // nil if no agent is running
	lastVisible []*v1.Pod     // pods that the agent showed last; only used in standalone mode
	heal        func()
	generation  int                 // distinguishes UIDs
	configure   func(*agent.Config) // changes the config of the next agent
}

// stateDirs are the directories with the agent's state. A killed agent leaves its directory behind.
type stateDirs struct {
	root   string
	copies int
}

func (d stateDirs) current() string { return filepath.Join(d.root, string(rune('a'+d.copies))) }

// node is a running agent.
type node struct {
	*agent.Agent
	state     *checkpoint.Dir
	transport *transport
	cancel    context.CancelFunc
	done      chan struct{}
	err       error // of Run; valid after done
}

// run calls test in a synctest bubble with the manifest web.yaml and without an agent.
func run(t *testing.T, test func(*harness)) {
	t.Helper()
	stateDir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, map[string]string{"web.yaml": webYAML}, stateDir)
		test(h)
		h.finish()
	})
}

func newHarness(t *testing.T, manifests map[string]string, stateDir string) *harness {
	t.Helper()
	h := &harness{
		T: t, manifests: manifests, server: heraldtest.NewAPIServer(), runtime: fakeruntime.New(), source: newFakeSource(),
		admission: newFakeAdmission(), state: stateDirs{root: stateDir}, transcript: newTranscript(), activity: wakeup.New(),
		configure: func(*agent.Config) {},
	}
	h.server.AddNode(nodeName)
	return h
}

// startAgent starts an agent with the same runtime, API server and state.
func (h *harness) startAgent() error {
	state, err := checkpoint.Open(h.state.current(), checkpoint.Options{})
	if err != nil {
		return err
	}
	n := &node{
		state: state, transport: &transport{target: h.server.Transport(), onRequest: h.activity.Set}, done: make(chan struct{}),
	}
	config := agent.Config{
		NodeName: nodeName, Sources: []source.Source{h.source}, Runtime: slowRuntime{h.runtime}, State: state, Admit: h.admission.admit,
		AdmitResize: h.admission.admitResize,
		Metrics:     prometheus.NewPedanticRegistry(),
		NodeInfo:    func() derive.NodeInfo { return derive.NodeInfo{} },
	}
	events := broadcaster.Config{NodeName: nodeName, Scheme: kubeapi.NewScheme()}
	if !h.standalone {
		client, err := h.connect(&config, n.transport)
		if err != nil {
			return err
		}
		events.API = client
	}
	recorder, err := broadcaster.New(events)
	if err != nil {
		return err
	}
	config.Events = &eventRecorder{Broadcaster: recorder, harness: h}
	h.configure(&config)
	if n.Agent, err = agent.New(config); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	var running sync.WaitGroup
	running.Go(func() { _ = recorder.Run(ctx) })
	running.Go(func() { n.err = n.Run(ctx) })
	go func() { running.Wait(); close(n.done) }()
	h.node = n
	return nil
}

// connect configures the API server as a source and as the receiver of statuses.
func (h *harness) connect(config *agent.Config, transport *transport) (*kubeapi.Client, error) {
	restConfig := h.server.Config()
	restConfig.Transport = transport
	client, err := kubeapi.New(restConfig)
	if err != nil {
		return nil, err
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: client.PodsOnNode(nodeName), NodeName: nodeName})
	config.API, config.Sources = client, append(config.Sources, api)
	return client, err
}

// stopAgent stops the agent as SIGTERM does.
func (h *harness) stopAgent() error {
	if h.node == nil {
		return errors.New("no agent is running")
	}
	n := h.node
	h.node = nil
	n.cancel()
	<-n.done
	return errors.Join(n.err, n.state.Close())
}

// killAgent stops the agent as SIGKILL does: everything that was not written or sent by now is lost.
func (h *harness) killAgent() error {
	synctest.Wait()
	before := h.state.current()
	h.state.copies++
	if err := os.CopyFS(h.state.current(), os.DirFS(before)); err != nil {
		return err
	}
	h.node.transport.redirect(failingTransport{})
	return h.stopAgent()
}

// runCommands executes commands of a scenario and ignores their output.
func (h *harness) runCommands(commands ...string) {
	h.Helper()
	for _, command := range commands {
		h.execute(command)
	}
}

// pass lets time pass and records what happens. It polls closely while something happens.
func (h *harness) pass(d time.Duration) {
	end, lastChange := time.Now().Add(d), time.Now()
	for {
		synctest.Wait()
		if h.transcript.record(h.runtime.Transcript(), h.visiblePods()) {
			lastChange = time.Now()
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		if time.Since(lastChange) < settleTime {
			left = min(readLatency, left)
		}
		select {
		case <-time.After(left):
		case <-h.activity:
			lastChange = time.Now()
		}
	}
}

// watchRuntime signals activity for each runtime event until ctx ends.
func (h *harness) watchRuntime(ctx context.Context) {
	_ = h.runtime.WatchPods(ctx, func(podid.UID) { h.activity.Set() })
}

// visiblePods returns the pods as the API server shows them, or as the agent does if there is no API server.
func (h *harness) visiblePods() []*v1.Pod {
	if !h.standalone {
		return h.server.Pods()
	}
	if h.node == nil {
		return slices.Clone(h.lastVisible)
	}
	pods := h.node.LocalPods()
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	h.lastVisible = pods
	return pods
}

// runningUID returns the UID of the running pod of that name, or an empty string.
func (h *harness) runningUID(name string) podid.UID {
	pods, err := h.runtime.ListPods(context.Background())
	if err != nil {
		h.Fatal(err)
	}
	var uid podid.UID
	for _, pod := range pods {
		if pod.Name == fullName(name) && pod.Running() {
			uid = pod.UID
		}
	}
	return uid
}

// fullName returns the full name of a pod of the scenario.
func fullName(name string) podid.FullName { return podid.FullName{Namespace: namespace, Name: name} }

// finish checks the invariants that hold after every scenario, once everything has converged, and stops the agent. The bubble
// checks that no goroutine is left.
func (h *harness) finish() {
	h.Helper()
	for _, violation := range h.runtime.Violations() {
		h.Errorf("runtime contract violated: %s", violation)
	}
	if h.node == nil {
		return
	}
	h.server.SetDown(false)
	time.Sleep(convergeTime)
	if !h.standalone {
		for _, pod := range h.server.Pods() {
			h.checkStatus(pod)
		}
	}
	h.checkForgotten()
	if err := h.stopAgent(); err != nil {
		h.Errorf("Run: got %v, want nil", err)
	}
}

// checkStatus checks that the API server has the node's status.
func (h *harness) checkStatus(pod *v1.Pod) {
	h.Helper()
	cached, found := h.node.Statuses.GetPodStatus(pod.UID)
	if !found {
		h.Errorf("got no status of %s", pod.Name)
		return
	}
	if !derive.Equal(&cached, &pod.Status) {
		h.Errorf("status of %s (%s) in the API server differs (-node +API):\n%s",
			podid.FullNameOf(pod), pod.UID, cmp.Diff(cached, pod.Status))
	}
}

// checkForgotten checks that nothing is kept of pods that are gone (PW-46).
func (h *harness) checkForgotten() {
	h.Helper()
	local := map[types.UID]bool{}
	for _, pod := range h.node.LocalPods() {
		local[pod.UID] = true
	}
	for _, uid := range h.admission.requested() {
		if _, found := h.node.Statuses.GetPodStatus(uid); found && !local[uid] {
			h.Errorf("PW-46: got a status of pod %s, want none", uid)
		}
		if results, _ := h.node.Prober.Results(podid.UID(uid)); len(results) > 0 && !local[uid] {
			h.Errorf("PW-46: got probe results of pod %s, want none", uid)
		}
	}
}

// eventRecorder adds events to the transcript before it records them.
type eventRecorder struct {
	*broadcaster.Broadcaster
	harness *harness
}

func (r *eventRecorder) Event(object runtime.Object, eventType, reason, message string) {
	name := "node"
	switch object := object.(type) {
	case *v1.Pod:
		name = object.Name
	case *v1.ObjectReference:
		if object.Kind == "Pod" {
			name = object.Name
		}
	}
	r.harness.transcript.addEvent(name + " " + eventType + " " + reason + ": " + message)
	r.harness.activity.Set()
	r.Broadcaster.Event(object, eventType, reason, message)
}

// transport sends requests to the API server with some latency. It can be redirected.
type transport struct {
	onRequest func()

	mu     sync.Mutex // guards target
	target http.RoundTripper
}

func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.onRequest()
	time.Sleep(readLatency)
	t.mu.Lock()
	target := t.target
	t.mu.Unlock()
	return target.RoundTrip(request)
}

func (t *transport) redirect(target http.RoundTripper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.target = target
}

// failingTransport fails every request.
type failingTransport struct{}

func (failingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("the agent was killed")
}

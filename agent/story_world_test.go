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

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

const nodeName = "node-1"

// story is a machine with a cluster around it, both of which outlive every agent, and the agent that is at work now.
type story struct {
	*testing.T
	manifests map[string]string
	server    *heraldtest.APIServer
	engine    *engine.Engine
	files     *files
	state     string // the folder of the state, and how many were left behind
	states    int
	alone     bool // no API server
	watch     watcher
	stir      chan struct{} // capacity 1: look at once
	node      *node         // nil: no agent is at work
	heal      func()
	bound     int
	configure func(*agent.Config) // changes what an agent is made of

	mu       sync.Mutex // guards what is below
	rejected map[string]string
	asked    map[types.UID]bool // the pods that an agent wanted to run
}

// node is one agent with what is its own.
type node struct {
	*agent.Agent
	dir     *checkpoint.Dir
	wire    *wire
	cancel  context.CancelFunc
	ended   chan struct{}
	failure error // of Run; read when ended
}

func newStory(t *testing.T, manifests map[string]string, state string) *story {
	t.Helper()
	s := &story{
		T: t, manifests: manifests, server: heraldtest.NewAPIServer(), engine: engine.New(), state: state,
		files: newFiles(), rejected: map[string]string{}, asked: map[types.UID]bool{},
		configure: func(*agent.Config) {},
		stir:      make(chan struct{}, 1),
		watch:     watcher{began: time.Now(), seen: map[podid.FullName]sighting{}},
	}
	s.server.AddNode(nodeName)
	return s
}

func (s *story) stateFolder() string { return filepath.Join(s.state, string(rune('a'+s.states))) }

// startAgent starts one over the same engine, server and state.
func (s *story) startAgent() error {
	dir, err := checkpoint.Open(s.stateFolder(), checkpoint.Options{})
	if err != nil {
		return err
	}
	n := &node{dir: dir, wire: &wire{to: s.server.Transport(), busy: s.stirred}, ended: make(chan struct{})}
	config := agent.Config{
		NodeName: nodeName, Sources: []source.Source{s.files}, Runtime: unhurried{s.engine}, State: dir, Admit: s.admit,
		Metrics:  prometheus.NewPedanticRegistry(),
		NodeInfo: func() derive.NodeInfo { return derive.NodeInfo{} },
	}
	if !s.alone {
		if err := s.connect(&config, n.wire); err != nil {
			return err
		}
	}
	events := broadcaster.Config{NodeName: nodeName, Scheme: kubeapi.NewScheme()}
	if config.API != nil {
		events.API = config.API.(broadcaster.API)
	}
	recorder, err := broadcaster.New(events)
	if err != nil {
		return err
	}
	config.Events = &listener{Broadcaster: recorder, story: s}
	s.configure(&config)
	if n.Agent, err = agent.New(config); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	var running sync.WaitGroup
	running.Go(func() { _ = recorder.Run(ctx) })
	running.Go(func() { n.failure = n.Run(ctx) })
	go func() { running.Wait(); close(n.ended) }()
	s.node = n
	return nil
}

func (s *story) connect(config *agent.Config, wire *wire) error {
	to := s.server.Config()
	to.Transport = wire
	client, err := kubeapi.New(to)
	if err != nil {
		return err
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: client.PodsOnNode(nodeName), NodeName: nodeName})
	config.API, config.Sources = client, append(config.Sources, api)
	return err
}

// stopAgent ends the agent as SIGTERM does.
func (s *story) stopAgent() error {
	if s.node == nil {
		return errors.New("no agent is at work")
	}
	n := s.node
	s.node = nil
	n.cancel()
	<-n.ended
	return errors.Join(n.failure, n.dir.Close())
}

// killAgent ends the agent as SIGKILL does: what it has not written or sent by now is lost.
func (s *story) killAgent() error {
	synctest.Wait()
	before := s.stateFolder()
	s.states++
	if err := os.CopyFS(s.stateFolder(), os.DirFS(before)); err != nil {
		return err
	}
	s.node.wire.reroute(cutOff{})
	return s.stopAgent()
}

func (s *story) admit(p *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[p.UID] = true
	if reason, rejected := s.rejected[p.Name]; rejected {
		return rejection(reason)
	}
	return nil
}

type rejection string

func (r rejection) Error() string           { return "there is no room on this node" }
func (r rejection) RejectionReason() string { return string(r) }

// busy is how long everything is looked at closely after something happened.
const busy = 50 * moment

// pass lets time pass.
func (s *story) pass(d time.Duration) {
	end, last := time.Now().Add(d), time.Now()
	for {
		synctest.Wait()
		s.mu.Lock()
		before := len(s.watch.lines)
		s.watch.look(s.engine.Transcript(), s.visible())
		if len(s.watch.lines) > before {
			last = time.Now()
		}
		s.mu.Unlock()
		left := time.Until(end)
		if left <= 0 {
			return
		}
		if time.Since(last) < busy {
			left = min(moment, left)
		}
		select {
		case <-time.After(left):
		case <-s.stir:
			last = time.Now()
		}
	}
}

// stirred says that something happened, or is about to.
func (s *story) stirred() {
	select {
	case s.stir <- struct{}{}:
	default:
	}
}

// overhear is stirred by the runtime until ctx ends.
func (s *story) overhear(ctx context.Context) {
	_ = s.engine.WatchPods(ctx, func(podid.UID) { s.stirred() })
}

// visible are the pods as the API server shows them; as the agent does, where there is none.
func (s *story) visible() []*v1.Pod {
	if !s.alone {
		return s.server.Pods()
	}
	if s.node == nil {
		return slices.Clone(s.files.last)
	}
	pods := s.node.LocalPods()
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	s.files.last = pods
	return pods
}

// listener writes down every event before it is recorded.
type listener struct {
	*broadcaster.Broadcaster
	story *story
}

func (l *listener) Event(object runtime.Object, kind, reason, message string) {
	name := "node"
	switch about := object.(type) {
	case *v1.Pod:
		name = about.Name
	case *v1.ObjectReference:
		if about.Kind == "Pod" { // a container of it
			name = about.Name
		}
	}
	l.story.mu.Lock()
	l.story.watch.heard = append(l.story.watch.heard, name+" "+kind+" "+reason+": "+message)
	l.story.mu.Unlock()
	l.story.stirred()
	l.Broadcaster.Event(object, kind, reason, message)
}

// wire leads to the API server until it is cut. A request takes a moment.
type wire struct {
	busy func()

	mu sync.Mutex // guards to
	to http.RoundTripper
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.busy()
	time.Sleep(moment)
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	return to.RoundTrip(r)
}

func (w *wire) reroute(to http.RoundTripper) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
}

// cutOff is the end of a wire that was cut.
type cutOff struct{}

func (cutOff) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("the agent is dead")
}

// files are a folder of manifests without a disk.
type files struct {
	changed chan struct{} // capacity 1: look again

	mu   sync.Mutex // guards pods
	pods map[string]*v1.Pod

	last []*v1.Pod // what was last seen of them; the story's own
}

func newFiles() *files { return &files{changed: make(chan struct{}, 1), pods: map[string]*v1.Pod{}} }

func (f *files) Name() podid.Source { return podid.File }

func (f *files) Run(ctx context.Context, sink source.Sink) error {
	for {
		f.mu.Lock()
		pods := make([]*v1.Pod, 0, len(f.pods))
		for _, p := range f.pods {
			pods = append(pods, p)
		}
		f.mu.Unlock()
		slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
		sink.Replace(pods)
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		}
	}
}

// put adds a manifest or replaces that of the same name; nil removes it.
func (f *files) put(name string, p *v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p == nil {
		delete(f.pods, name)
	} else {
		f.pods[name] = p
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

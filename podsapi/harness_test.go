package podsapi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/podsapi"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodeName = "node-1"

// podSource is a source of pods whose sink the test calls.
type podSource struct {
	name podid.Source
	sink chan source.Sink
}

func newPodSource(name podid.Source) *podSource {
	return &podSource{name: name, sink: make(chan source.Sink, 1)}
}

func (s *podSource) Name() podid.Source { return s.name }

func (s *podSource) Run(ctx context.Context, sink source.Sink) error {
	s.sink <- sink
	<-ctx.Done()
	return nil
}

// node is a running agent with an in-memory runtime and its Pods API on a socket.
type node struct {
	tb      testing.TB
	agent   *agent.Agent
	runtime *fakeruntime.Runtime
	// api and files are the sinks of the sources.
	api, files source.Sink
	socket     string
	closers    []func() // of clients
	stop       func()   // may be called more than once
}

func newNode(tb testing.TB, configure func(*podsapi.Config)) *node {
	tb.Helper()
	api, files := newPodSource(podid.API), newPodSource(podid.File)
	n := &node{tb: tb, runtime: fakeruntime.New(), socket: filepath.Join(tb.TempDir(), "pods.sock")}
	var err error
	n.agent, err = agent.New(agent.Config{
		NodeName: nodeName, Sources: []source.Source{api, files}, Runtime: n.runtime, Events: event.Discard,
		HousekeepingInterval: 20 * time.Millisecond,
	})
	if err != nil {
		tb.Fatal(err)
	}
	config := podsapi.Config{
		Agent: n.agent, Ready: n.agent.Sources.AllReady, QPS: 1e6, Burst: 1e6,
		Listen: func(ctx context.Context) (net.Listener, error) { return server.Listen(ctx, "unix://"+n.socket) },
	}
	configure(&config)
	pods, err := podsapi.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.agent.Run(ctx); err != nil {
			tb.Errorf("agent: %v", err)
		}
	})
	running.Go(func() {
		if err := pods.Run(ctx); err != nil {
			tb.Errorf("Pods API: %v", err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		for _, closeClient := range n.closers {
			closeClient()
		}
		cancel()
		running.Wait()
	})
	tb.Cleanup(n.stop)
	n.api, n.files = <-api.sink, <-files.sink
	return n
}

// start makes the sources ready.
func (n *node) start(pods ...*v1.Pod) {
	n.files.Replace([]*v1.Pod{})
	n.api.Replace(append([]*v1.Pod{}, pods...))
	heraldtest.Eventually(n.tb, func() error {
		if !n.agent.Sources.AllReady() {
			return errors.New("the sources are not ready")
		}
		return nil
	})
}

func (n *node) client() v1alpha1.PodsClient {
	n.tb.Helper()
	const window = 64 << 10 // constant: it does not grow with the speed of the connection
	connection, err := grpc.NewClient("unix://"+n.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	if err != nil {
		n.tb.Fatal(err)
	}
	n.closers = append(n.closers, func() { _ = connection.Close() })
	return v1alpha1.NewPodsClient(connection)
}

// replica is the state of a client: what it knows from a watch.
type replica struct {
	mu     sync.Mutex // guards all below
	pods   map[types.UID]*v1.Pod
	synced bool
	events []string
	faults []string
	count  int
}

// watch returns a replica that a watch keeps up to date. beforeReceive is called before each event is read.
func (n *node) watch(ctx context.Context, beforeReceive func()) *replica {
	n.tb.Helper()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := n.client().WatchPods(ctx, &v1alpha1.WatchPodsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		n.tb.Fatal(err)
	}
	r := &replica{pods: map[types.UID]*v1.Pod{}}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for {
			beforeReceive()
			event, err := stream.Recv()
			if err != nil {
				if ctx.Err() == nil && status.Code(err) != codes.Canceled { // by the client
					r.fault("watch ended: %v", err)
				}
				return
			}
			r.apply(event)
		}
	})
	n.closers = append(n.closers, func() {
		cancel()
		receiving.Wait()
	})
	return r
}

func (r *replica) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// apply updates the replica and checks that the event follows from those before it.
func (r *replica) apply(event *v1alpha1.WatchPodsEvent) {
	pod := &v1.Pod{}
	if err := pod.Unmarshal(event.GetPod()); err != nil {
		r.fault("unmarshal: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.events = append(r.events, fmt.Sprintf("%s %s", event.GetType(), pod.Name))
	before, found := r.pods[pod.UID]
	switch {
	case event.GetType() == v1alpha1.EventType_INITIAL_SYNC_COMPLETE:
		if r.synced || len(event.GetPod()) > 0 {
			r.faults = append(r.faults, "a second INITIAL_SYNC_COMPLETE, or one with a pod")
		}
		r.synced = true
		return
	case event.GetType() == v1alpha1.EventType_DELETED:
		if !found {
			r.faults = append(r.faults, "DELETED of an unknown pod "+pod.Name)
		}
		delete(r.pods, pod.UID)
		return
	case (event.GetType() == v1alpha1.EventType_ADDED) == found:
		r.faults = append(r.faults, fmt.Sprintf("%s of %s, which the client has: %v", event.GetType(), pod.Name, found))
	case found && pod.Generation < before.Generation:
		r.faults = append(r.faults, fmt.Sprintf("%s went back from generation %d to %d", pod.Name, before.Generation, pod.Generation))
	case found && before.String() == pod.String():
		r.faults = append(r.faults, "MODIFIED without a change of "+pod.Name)
	}
	r.pods[pod.UID] = pod
}

// check returns what is wrong, or how the replica differs from the pods.
func (r *replica) check(want []*v1.Pod) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) > 0 {
		return fmt.Errorf("faults %q after %q", r.faults, r.events)
	}
	missing := maps.Clone(r.pods)
	for _, pod := range want {
		got := missing[pod.UID]
		if got == nil || got.String() != roundTrip(pod).String() {
			return fmt.Errorf("got %v, want %v; events %q", got, pod, r.events)
		}
		delete(missing, pod.UID)
	}
	if len(missing) > 0 || !r.synced {
		return fmt.Errorf("pods that the node does not have: %v; events %q", missing, r.events)
	}
	return nil
}

// roundTrip returns the pod as a client decodes it.
func roundTrip(pod *v1.Pod) *v1.Pod {
	decoded := &v1.Pod{}
	data, err := pod.Marshal()
	if err == nil {
		err = decoded.Unmarshal(data)
	}
	if err != nil {
		panic(err)
	}
	return decoded
}

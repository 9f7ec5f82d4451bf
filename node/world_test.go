package node_test

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/report"
)

// world is a node's agent on an API server in memory, and a machine that a test can change.
type world struct {
	*node.Node
	t      *testing.T
	server *heraldtest.APIServer

	mu           sync.Mutex // guards all below
	facts        report.MachineInfo
	err          error // of looking at the machine
	ready        error
	network      error
	runtime      string
	events       []string
	reconnected  int
	intercepting func(*http.Request) error
	answering    func(*http.Request) *http.Response // in the server's place, unless it is nil
}

func facts() report.MachineInfo {
	return report.MachineInfo{
		Hostname: "host-a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, CPUs: 2,
		System: v1.NodeSystemInfo{BootID: "first", KubeletVersion: "v1.36.3+herald", OperatingSystem: "linux", Architecture: "amd64"},
		Memory: report.Amount{Total: 4 << 30, Available: 2 << 30}, Storage: report.Amount{Total: 1000, Available: 900},
	}
}

// newWorld makes a node that is not running yet.
func newWorld(t *testing.T, change ...func(*node.Config)) *world {
	t.Helper()
	w := &world{t: t, server: heraldtest.NewAPIServer(), facts: facts(), runtime: "1.7"}
	cfg := w.server.Config()
	cfg.Transport = w
	client, err := kubeapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	config := node.Config{
		NodeName: "a", API: client, MachineInfo: w.look, Ready: func() error { return get(w, &w.ready) },
		NetworkReady: func() error { return get(w, &w.network) }, Events: w,
		RuntimeVersion: func(context.Context) (string, string, error) { return "containerd", get(w, &w.runtime), nil },
		Reconnect:      func() { w.set(func() { w.reconnected++ }) },
	}
	for _, c := range change {
		c(&config)
	}
	if w.Node, err = node.New(config); err != nil {
		t.Fatal(err)
	}
	return w
}

// start runs the node until the test ends, or the function that it returns is called.
func (w *world) start() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	w.t.Cleanup(stop)
	synctest.Wait()
	return stop
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func get[T any](w *world, field *T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *field
}

func (w *world) look() (report.MachineInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.facts, w.err
}

// Event hears what operators are told.
func (w *world) Event(object runtime.Object, _, reason, _ string) {
	if about, ok := object.(*v1.ObjectReference); !ok || about.Kind != "Node" || about.Name != "a" {
		w.t.Errorf("event %s about %v", reason, object)
	}
	w.set(func() { w.events = append(w.events, reason) })
}

// heard takes the events so far.
func (w *world) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// RoundTrip leads to the server, unless a test intercepts it.
func (w *world) RoundTrip(request *http.Request) (*http.Response, error) {
	if intercept := get(w, &w.intercepting); intercept != nil {
		if err := intercept(request); err != nil {
			return nil, err
		}
	}
	if answer := get(w, &w.answering); answer != nil {
		if response := answer(request); response != nil {
			return response, nil
		}
	}
	return w.server.Transport().RoundTrip(request)
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// writes counts the requests of these verbs on nodes or leases.
func (w *world) writes(resource string, verbs ...string) int {
	return len(slices.DeleteFunc(w.server.Requests(verbs...), func(r heraldtest.Request) bool { return r.Resource != resource }))
}

func (w *world) condition(kind v1.NodeConditionType) v1.NodeCondition {
	w.t.Helper()
	found := w.server.Node("a")
	if found == nil {
		w.t.Fatal("there is no Node")
	}
	for _, c := range found.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	w.t.Fatalf("no condition %s among %v", kind, found.Status.Conditions)
	return v1.NodeCondition{}
}

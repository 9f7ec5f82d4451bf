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

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a node with an in-memory API server and a machine that a test can change.
type harness struct {
	*node.Node
	t      *testing.T
	server *heraldtest.APIServer

	mu         sync.Mutex // guards all below
	machine    report.MachineInfo
	err        error // of reading the machine
	ready      error
	network    error
	runtime    string
	events     []string
	reconnects int
	intercept  func(*http.Request) error
	respond    func(*http.Request) *http.Response // replaces the server's response, unless nil
}

func machineInfo() report.MachineInfo {
	return report.MachineInfo{
		Hostname: "host-a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, CPUs: 2,
		System: v1.NodeSystemInfo{BootID: "first", KubeletVersion: "v1.36.3+herald", OperatingSystem: "linux", Architecture: "amd64"},
		Memory: report.Amount{Total: 4 << 30, Available: 2 << 30}, Storage: report.Amount{Total: 1000, Available: 900},
	}
}

// newHarness returns a node that is not running yet.
func newHarness(t *testing.T, change ...func(*node.Config)) *harness {
	t.Helper()
	h := &harness{t: t, server: heraldtest.NewAPIServer(), machine: machineInfo(), runtime: "1.7"}
	cfg := h.server.Config()
	cfg.Transport = h
	client, err := kubeapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	config := node.Config{
		NodeName: "a", API: client, MachineInfo: h.readMachine, Ready: func() error { return get(h, &h.ready) },
		NetworkReady: func() error { return get(h, &h.network) }, Events: h,
		RuntimeVersion: func(context.Context) (string, string, error) { return "containerd", get(h, &h.runtime), nil },
		Reconnect:      func() { h.set(func() { h.reconnects++ }) },
	}
	for _, mutate := range change {
		mutate(&config)
	}
	if h.Node, err = node.New(config); err != nil {
		t.Fatal(err)
	}
	return h
}

// start runs the node until the test ends or stop is called.
func (h *harness) start() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	h.t.Cleanup(stop)
	synctest.Wait()
	return stop
}

func (h *harness) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func get[T any](h *harness, field *T) T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *field
}

func (h *harness) readMachine() (report.MachineInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machine, h.err
}

// Event records the reason of an event.
func (h *harness) Event(object runtime.Object, _, reason, _ string) {
	if reference, ok := object.(*v1.ObjectReference); !ok || reference.Kind != "Node" || reference.Name != "a" {
		h.t.Errorf("event %s: got object %v, want node a", reason, object)
	}
	h.set(func() { h.events = append(h.events, reason) })
}

// takeEvents returns and clears the recorded events.
func (h *harness) takeEvents() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}

// RoundTrip sends the request to the server, unless a test intercepts it.
func (h *harness) RoundTrip(request *http.Request) (*http.Response, error) {
	if intercept := get(h, &h.intercept); intercept != nil {
		if err := intercept(request); err != nil {
			return nil, err
		}
	}
	if respond := get(h, &h.respond); respond != nil {
		if response := respond(request); response != nil {
			return response, nil
		}
	}
	return h.server.Transport().RoundTrip(request)
}

// advance advances the fake clock.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// countRequests counts the requests of these verbs for a resource.
func (h *harness) countRequests(resource string, verbs ...string) int {
	return len(slices.DeleteFunc(h.server.Requests(verbs...), func(r heraldtest.Request) bool { return r.Resource != resource }))
}

func (h *harness) condition(conditionType v1.NodeConditionType) v1.NodeCondition {
	h.t.Helper()
	object := h.server.Node("a")
	if object == nil {
		h.t.Fatal("node not found")
	}
	for _, c := range object.Status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	h.t.Fatalf("condition %s not found in %v", conditionType, object.Status.Conditions)
	return v1.NodeCondition{}
}

package node_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/report"
	"github.com/heraldnode/herald/observed"
)

func TestNode_Register(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *node.Config) {
			c.Labels, c.ProviderID = map[string]string{"pool": "edge"}, "cloud://1"
			c.Taints = []v1.Taint{{Key: "new", Effect: v1.TaintEffectNoSchedule}}
		})
		if requests := h.server.Requests(); len(requests) != 0 {
			t.Fatalf("New sent requests: %v", requests)
		}
		h.start()
		select {
		case <-h.Registered():
		default:
			t.Fatal("not registered")
		}
		got := h.server.Node("a")
		if got.Labels["pool"] != "edge" || got.Spec.ProviderID != "cloud://1" || len(got.Spec.Taints) != 1 {
			t.Errorf("got %+v %+v", got.ObjectMeta, got.Spec)
		}
		if c := h.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("got %+v, want True", c)
		}
		if v := got.Status.NodeInfo.ContainerRuntimeVersion; v != "containerd://1.7" {
			t.Errorf("got runtime %q", v)
		}
		want := []string{"Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"}
		if diff := cmp.Diff(want, h.takeEvents()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestI10_UnchangedStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		advance(4*time.Minute + 59*time.Second)
		if n := h.countRequests("nodes", "patch"); n != 0 {
			t.Fatalf("got %d reports, want none", n)
		}
		registered := h.condition(v1.NodeReady)
		advance(3 * time.Minute)
		if n := h.countRequests("nodes", "patch"); n != 1 {
			t.Fatalf("got %d reports after eight minutes, want 1", n)
		}
		later := h.condition(v1.NodeReady)
		if !later.LastHeartbeatTime.After(registered.LastHeartbeatTime.Time) || !later.LastTransitionTime.Equal(&registered.LastTransitionTime) {
			t.Errorf("got %+v, then %+v, want only a later heartbeat", registered, later)
		}
	})
}

func TestNode_RuntimeFeatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported atomic.Pointer[[]v1.NodeRuntimeHandler]
		features := &v1.NodeFeatures{SupplementalGroupsPolicy: new(true)}
		h := newHarness(t, func(config *node.Config) {
			config.RuntimeFeatures = func() ([]v1.NodeRuntimeHandler, *v1.NodeFeatures) {
				if known := reported.Load(); known != nil {
					return *known, features
				}
				return nil, nil
			}
		})
		h.start()
		if got := h.server.Node("a").Status; got.RuntimeHandlers != nil || got.Features != nil {
			t.Errorf("runtime that did not respond yet: got %v, %v", got.RuntimeHandlers, got.Features)
		}
		want := []v1.NodeRuntimeHandler{{Name: "runc", Features: &v1.NodeRuntimeHandlerFeatures{UserNamespaces: new(true)}}}
		reported.Store(&want)
		advance(10 * time.Second)
		got := h.server.Node("a").Status
		if diff := cmp.Diff(want, got.RuntimeHandlers); diff != "" {
			t.Errorf("handlers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(features, got.Features); diff != "" {
			t.Errorf("features (-want +got):\n%s", diff)
		}
	})
}

func TestNode_NotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		advance(3500 * time.Millisecond)
		h.takeEvents()
		h.set(func() { h.ready, h.network = errors.New("the runtime is down"), errors.New("no plugin") })
		advance(time.Second)
		c := h.condition(v1.NodeReady)
		want := "the runtime is down; container runtime network not ready: no plugin"
		if c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != want {
			t.Errorf("got %+v", c)
		}
		h.set(func() { h.network = h.ready })
		advance(10 * time.Second)
		if c := h.condition(v1.NodeReady); c.Message != "the runtime is down" {
			t.Errorf("same reason twice: got message %q", c.Message)
		}
		h.set(func() { h.ready, h.network = nil, nil })
		advance(time.Second)
		if c := h.condition(v1.NodeReady); c.Status != v1.ConditionTrue || c.Reason != "KubeletReady" {
			t.Errorf("got %+v", c)
		}
		if diff := cmp.Diff([]string{"NodeNotReady", "NodeReady"}, h.takeEvents()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestDiskPressure_Images(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var available int64
		var h *harness
		h = newHarness(t, func(c *node.Config) {
			c.ImageFileSystems = func(context.Context) (images, containers report.FileSystem, err error) {
				h.mu.Lock()
				defer h.mu.Unlock()
				return report.FileSystem{Storage: report.Amount{Total: 1000, Available: available}}, report.FileSystem{}, nil
			}
		})
		h.start()
		want := func(at string, status v1.ConditionStatus) {
			t.Helper()
			if c := h.condition(v1.NodeDiskPressure); c.Status != status {
				t.Errorf("%s: got %+v, want %s", at, c, status)
			}
		}
		want("images are short of space", v1.ConditionTrue)
		h.set(func() { available = 500 })
		advance(6 * time.Minute)
		want("images have space again", v1.ConditionFalse)
		h.set(func() { available, h.ready = 0, errors.New("runtime is down") })
		advance(10 * time.Second)
		want("runtime is down", v1.ConditionFalse)
		h.set(func() { h.ready = nil })
		advance(10 * time.Second)
		want("runtime is up", v1.ConditionTrue)
	})
}

// RES-7: the list is at most 30 seconds old. A runtime that does not respond keeps what is known.
func TestRES7_Images(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		images := []observed.StoredImage{{ID: "1", Tags: []string{"web:1"}, Size: 10}}
		var failure error
		asked := 0
		var h *harness
		h = newHarness(t, func(c *node.Config) {
			c.Images = func(context.Context) ([]observed.StoredImage, error) {
				h.mu.Lock()
				defer h.mu.Unlock()
				asked++
				return images, failure
			}
		})
		h.start()
		want := func(at string, names ...string) {
			t.Helper()
			var got []string
			for _, image := range h.server.Node("a").Status.Images {
				got = append(got, image.Names...)
			}
			if !slices.Equal(got, names) {
				t.Errorf("%s: got images %v, want %v", at, got, names)
			}
		}
		want("registration", "web:1")
		h.set(func() { images = append(images, observed.StoredImage{ID: "2", Tags: []string{"big:1"}, Size: 20}) })
		advance(40 * time.Second)
		want("image was pulled", "big:1", "web:1")
		h.set(func() { failure = errors.New("broken") })
		advance(time.Minute)
		want("runtime fails", "big:1", "web:1")
		h.set(func() { failure, h.ready = nil, errors.New("runtime is down") })
		advance(time.Second)
		h.set(func() { asked, images = 0, nil })
		advance(time.Minute)
		want("runtime is down", "big:1", "web:1")
		if asked != 0 {
			t.Errorf("asked a runtime that is down %d times", asked)
		}
		h.set(func() { h.ready = nil })
		advance(40 * time.Second)
		want("all images were removed")
	})
}

// An API server that drops fields that it does not know is not asked again and again to store them.
func TestRES9_OldServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.machine.System.Swap = &v1.NodeSwapStatus{Capacity: new(int64(1 << 30))}
		h.start()
		first := h.server.Node("a")
		if !slices.Equal(first.Status.DeclaredFeatures, []string{"RestartAllContainersOnContainerExits"}) || first.Status.NodeInfo.Swap == nil {
			t.Errorf("got features %v, swap %v", first.Status.DeclaredFeatures, first.Status.NodeInfo.Swap)
		}
		h.server.UpdateNode("a", func(node *v1.Node) { node.Status.DeclaredFeatures, node.Status.NodeInfo.Swap = nil, nil })
		version := h.server.Node("a").ResourceVersion
		advance(time.Minute)
		if got := h.server.Node("a").ResourceVersion; got != version {
			t.Errorf("the status was reported again: got version %s, want %s", got, version)
		}
		h.server.UpdateNode("a", func(node *v1.Node) { node.Status.DeclaredFeatures = []string{"OfAnotherAgent"} })
		advance(time.Minute)
		if got := h.server.Node("a").Status.DeclaredFeatures; len(got) != 1 || got[0] == "OfAnotherAgent" {
			t.Errorf("got features %v of another agent", got)
		}
	})
}

func TestF28_MachineChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.set(func() {
			h.machine.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.8")}
			h.machine.Memory.Available, h.runtime = 1<<20, "2.0"
		})
		advance(10 * time.Second)
		got := h.server.Node("a")
		if got.Status.Addresses[0].Address != "192.0.2.8" || got.Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.0" {
			t.Errorf("got status %+v", got.Status)
		}
		if c := h.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
			t.Errorf("got %+v", c)
		}
		if ips := h.HostIPs(); len(ips) != 1 || ips[0].String() != "192.0.2.8" || h.Addresses()[0].Address != "192.0.2.8" {
			t.Errorf("got addresses %v, %v", ips, h.Addresses())
		}
		h.set(func() { h.err, h.machine = errors.New("too many open files"), report.MachineInfo{} })
		advance(time.Minute)
		if n := h.countRequests("nodes", "patch"); n != 1 || len(h.HostIPs()) != 1 {
			t.Errorf("F28: got %d reports, addresses %v, want no change", n, h.HostIPs())
		}
	})
}

func TestF31_ConditionsSetByController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		for range 20 { // a controller does not count as another agent
			h.server.UpdateNode("a", func(n *v1.Node) {
				for i := range n.Status.Conditions {
					n.Status.Conditions[i].Status = v1.ConditionUnknown
				}
			})
			advance(10 * time.Second)
			if c := h.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
				t.Fatalf("got %+v, want True", c)
			}
		}
	})
}

func TestI7_AdoptedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *node.Config) {
			c.Labels, c.Taints = map[string]string{"pool": "edge"}, []v1.Taint{{Key: "new", Effect: v1.TaintEffectNoSchedule}}
		})
		h.server.AddNode("a")
		h.server.UpdateNode("a", func(n *v1.Node) {
			n.Labels, n.Spec.Taints = map[string]string{"pool": "core"}, []v1.Taint{{Key: "theirs", Effect: v1.TaintEffectNoExecute}}
			n.Status.Conditions = []v1.NodeCondition{{Type: "Theirs", Status: v1.ConditionTrue}}
			n.Status.NodeInfo.BootID = "earlier"
		})
		h.start()
		advance(time.Minute)
		got := h.server.Node("a")
		want := map[string]string{
			"pool": "core", "kubernetes.io/hostname": "host-a", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
			"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
		}
		if diff := cmp.Diff(want, got.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if len(got.Spec.Taints) != 1 || got.Spec.Taints[0].Key != "theirs" {
			t.Errorf("got taints %v", got.Spec.Taints)
		}
		if c := h.condition("Theirs"); c.Status != v1.ConditionTrue || h.condition(v1.NodeReady).Status != v1.ConditionTrue {
			t.Errorf("got conditions %v", got.Status.Conditions)
		}
		if events := h.takeEvents(); len(events) < 2 || events[1] != "Rebooted" {
			t.Errorf("got events %v", events)
		}
	})
}

// TestNode_StaleExtendedResources checks that resources of an earlier agent are reset once. What is set later is someone
// else's.
func TestNode_StaleExtendedResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.server.AddNode("a")
		resources := func() v1.ResourceList {
			return v1.ResourceList{
				"nvidia.com/gpu": resource.MustParse("8"), "attachable-volumes-x": resource.MustParse("3"), "x.kubernetes.io/y": resource.MustParse("4"),
			}
		}
		h.server.UpdateNode("a", func(n *v1.Node) { n.Status.Capacity, n.Status.Allocatable = resources(), resources() })
		check := func(name string, want int64) {
			t.Helper()
			status := h.server.Node("a").Status
			for list, got := range map[string]v1.ResourceList{"capacity": status.Capacity, "allocatable": status.Allocatable} {
				gpus, volumes, other := got["nvidia.com/gpu"], got["attachable-volumes-x"], got["x.kubernetes.io/y"]
				if gpus.Value() != want || volumes.Value() != 3 || other.Value() != 4 {
					t.Errorf("%s: got %s %v, want %d GPUs and the rest unchanged", name, list, got, want)
				}
			}
		}
		h.start()
		advance(time.Minute)
		check("adopted", 0)
		h.server.UpdateNode("a", func(n *v1.Node) {
			n.Status.Capacity["nvidia.com/gpu"], n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1"), resource.MustParse("1")
		})
		advance(time.Hour)
		check("set later", 1)
	})
}

func TestNode_Cordoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.takeEvents()
		h.server.UpdateNode("a", func(n *v1.Node) { n.Spec.Unschedulable = true })
		advance(time.Minute)
		if diff := cmp.Diff([]string{"NodeNotSchedulable"}, h.takeEvents()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestF1_ServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.server.SetDown(true)
		h.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := h.WaitForRegistration(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want DeadlineExceeded", err)
		}
		h.server.SetDown(false)
		advance(11 * time.Second)
		if err := h.WaitForRegistration(t.Context()); err != nil || h.server.Node("a") == nil {
			t.Errorf("not registered: %v", err)
		}
	})
}

func TestF10_EmptyResponse(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				h.respond = func(request *http.Request) *http.Response {
					if request.Method != method {
						return nil
					}
					return &http.Response{
						StatusCode: http.StatusOK, Request: request, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader("{}")),
					}
				}
				h.start()
				advance(time.Minute)
				h.set(func() { h.respond = nil })
				advance(time.Minute)
				if c := h.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
					t.Errorf("got %+v", c)
				}
				lease := h.server.Lease("a")
				if lease == nil || time.Since(lease.Spec.RenewTime.Time) > 11*time.Second || *lease.Spec.HolderIdentity != "a" {
					t.Errorf("got lease %+v", lease)
				}
				if object := h.Object(); object == nil || object.UID != h.server.Node("a").UID {
					t.Errorf("got object %+v", object)
				}
			})
		})
	}
}

func TestNode_Deleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.server.DeleteNode("a")
		advance(time.Minute)
		h.server.DeleteLease("a") // as the garbage collector does
		advance(10 * time.Minute)
		if h.server.Node("a") != nil || h.server.Lease("a") != nil {
			t.Fatal("deleted node was registered again")
		}
		recreated := h.server.AddNode("a")
		advance(time.Minute)
		if c := h.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("got %+v", c)
		}
		if lease := h.server.Lease("a"); lease == nil || lease.OwnerReferences[0].UID != recreated.UID {
			t.Errorf("got lease %+v", lease)
		}
	})
}

func TestNode_NoRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *node.Config) { c.NoRegistration = true })
		h.start()
		advance(time.Minute)
		if h.countRequests("nodes", "create") != 0 || h.countRequests("leases") != 0 {
			t.Fatalf("got requests %v, want none", h.server.Requests())
		}
		h.server.AddNode("a")
		advance(11 * time.Second)
		if c := h.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("got %+v", c)
		}
		h.server.DeleteNode("a")
		advance(time.Minute)
		h.server.DeleteLease("a")
		advance(time.Minute)
		if h.server.Node("a") != nil || h.server.Lease("a") != nil {
			t.Error("deleted node was registered")
		}
	})
}

func TestF30_TwoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		for range 60 {
			h.server.UpdateNode("a", func(n *v1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
			advance(10 * time.Second)
		}
		if n := h.countRequests("nodes", "patch"); n < 10 || n > 40 {
			t.Errorf("got %d reports in ten minutes, want about three per minute", n)
		}
	})
}

func TestNode_WithoutCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *node.Config) { c.API = nil })
		if ips := h.HostIPs(); len(ips) != 1 || ips[0].String() != "192.0.2.7" {
			t.Errorf("before Run: got %v", ips)
		}
		h.start()
		h.set(func() { h.ready = errors.New("the runtime is down") })
		advance(time.Second)
		self := h.Object()
		if ready := self.Status.Conditions[3]; ready.Type != v1.NodeReady || ready.Status != v1.ConditionFalse {
			t.Errorf("got %+v", self.Status.Conditions)
		}
		if events := h.takeEvents(); events[len(events)-1] != "NodeNotReady" {
			t.Errorf("got events %v", events)
		}
	})
}

func TestNode_ForbiddenLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.server.AddNode("a")
		h.intercept = func(r *http.Request) error {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/a") {
				r.URL.Path = "/api/v1/namespaces/x/serviceaccounts/x/token" // the server forbids tokens that are not bound to a pod
				r.Method, r.Header = http.MethodPost, http.Header{}
			}
			return nil
		}
		h.start()
		advance(time.Second)
		if c := h.condition(v1.NodeReady); c.Status != v1.ConditionTrue || len(h.server.Node("a").Labels) != 0 {
			t.Errorf("got %+v", c)
		}
	})
}

func TestNode_Resources(t *testing.T) {
	n := newHarness(t, func(c *node.Config) { c.Reserved = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")} })
	capacity, allocatable := n.Capacity(), n.Allocatable()
	if got := capacity.Memory().Value(); got != 4<<30 {
		t.Errorf("got capacity %d, want 4 GiB", got)
	}
	if got := allocatable.Memory().Value(); got != 3<<30-100<<20 {
		t.Errorf("got allocatable %d, want 3 GiB without the threshold of 100 MiB", got)
	}
}

func TestNode_Metrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		h := newHarness(t, func(c *node.Config) { c.Metrics = registry })
		h.start()
		advance(5 * time.Second)
		want := `
			# HELP kubelet_node_name The node's name. The count is always 1.
			# TYPE kubelet_node_name gauge
			kubelet_node_name{node="a"} 1
			# HELP herald_node_status_reports_total Attempts to report the Node's status, by result: reported, unchanged, failed, conflict.
			# TYPE herald_node_status_reports_total counter
			herald_node_status_reports_total{result="reported"} 1
			# HELP herald_node_lease_renewals_total Attempts to renew the node's lease, by result: renewed, failed.
			# TYPE herald_node_lease_renewals_total counter
			herald_node_lease_renewals_total{result="renewed"} 1
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

func TestConfig_Invalid(t *testing.T) {
	readMachine := func() (report.MachineInfo, error) { return machineInfo(), nil }
	tests := map[string]struct {
		config node.Config
		want   string
	}{
		"no name":            {node.Config{MachineInfo: readMachine}, "NodeName"},
		"no machine":         {node.Config{NodeName: "a"}, "MachineInfo"},
		"negative":           {node.Config{NodeName: "a", MachineInfo: readMachine, MaxPods: -1}, "MaxPods"},
		"lease too short":    {node.Config{NodeName: "a", MachineInfo: readMachine, LeaseDuration: time.Second}, "LeaseDuration"},
		"unreadable machine": {node.Config{NodeName: "a", MachineInfo: func() (report.MachineInfo, error) { return report.MachineInfo{}, errors.New("unreadable") }}, "unreadable"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := node.New(test.config); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

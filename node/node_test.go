package node_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/node"
	"github.com/heraldnode/herald/node/report"
)

func TestANodeRegistersItselfAndIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *node.Config) {
			c.Labels, c.ProviderID = map[string]string{"pool": "edge"}, "cloud://1"
			c.Taints = []v1.Taint{{Key: "new", Effect: v1.TaintEffectNoSchedule}}
		})
		if asked := w.server.Requests(); len(asked) != 0 {
			t.Fatalf("New asked the API server: %v", asked)
		}
		w.start()
		select {
		case <-w.Registered():
		default:
			t.Fatal("not registered")
		}
		got := w.server.Node("a")
		if got.Labels["pool"] != "edge" || got.Spec.ProviderID != "cloud://1" || len(got.Spec.Taints) != 1 {
			t.Errorf("registered as %+v %+v", got.ObjectMeta, got.Spec)
		}
		if c := w.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("ready: %+v", c)
		}
		if v := got.Status.NodeInfo.ContainerRuntimeVersion; v != "containerd://1.7" {
			t.Errorf("runtime %q", v)
		}
		want := []string{"Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"}
		if diff := cmp.Diff(want, w.heard()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestI10AStatusThatDoesNotChangeIsToldEveryFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		pass(4*time.Minute + 59*time.Second)
		if n := w.writes("nodes", "patch"); n != 0 {
			t.Fatalf("%d reports although nothing changed", n)
		}
		registered := w.condition(v1.NodeReady)
		pass(3 * time.Minute)
		if n := w.writes("nodes", "patch"); n != 1 {
			t.Fatalf("%d reports after eight minutes", n)
		}
		later := w.condition(v1.NodeReady)
		if !later.LastHeartbeatTime.After(registered.LastHeartbeatTime.Time) || !later.LastTransitionTime.Equal(&registered.LastTransitionTime) {
			t.Errorf("first %+v, then %+v", registered, later)
		}
	})
}

func TestANodeIsNotReadyWithinASecondAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		pass(3500 * time.Millisecond)
		w.heard()
		w.set(func() { w.ready, w.network = errors.New("the runtime is down"), errors.New("no plugin") })
		pass(time.Second)
		c := w.condition(v1.NodeReady)
		want := "the runtime is down; container runtime network not ready: no plugin"
		if c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != want {
			t.Errorf("%+v", c)
		}
		w.set(func() { w.network = w.ready })
		pass(10 * time.Second)
		if c := w.condition(v1.NodeReady); c.Message != "the runtime is down" {
			t.Errorf("one reason for both is told as %q", c.Message)
		}
		w.set(func() { w.ready, w.network = nil, nil })
		pass(time.Second)
		if c := w.condition(v1.NodeReady); c.Status != v1.ConditionTrue || c.Reason != "KubeletReady" {
			t.Errorf("%+v", c)
		}
		if diff := cmp.Diff([]string{"NodeNotReady", "NodeReady"}, w.heard()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestWhatChangesOnTheMachineIsToldWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.set(func() {
			w.facts.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.8")}
			w.facts.Memory.Available, w.runtime = 1<<20, "2.0"
		})
		pass(10 * time.Second)
		got := w.server.Node("a")
		if got.Status.Addresses[0].Address != "192.0.2.8" || got.Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.0" {
			t.Errorf("told %+v", got.Status)
		}
		if c := w.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
			t.Errorf("%+v", c)
		}
		if ips := w.HostIPs(); len(ips) != 1 || ips[0].String() != "192.0.2.8" || w.Addresses()[0].Address != "192.0.2.8" {
			t.Errorf("own addresses %v, %v", ips, w.Addresses())
		}
		w.set(func() { w.err, w.facts = errors.New("too many open files"), report.MachineInfo{} })
		pass(time.Minute)
		if n := w.writes("nodes", "patch"); n != 1 || len(w.HostIPs()) != 1 {
			t.Errorf("F28: %d reports, addresses %v; want all as it was", n, w.HostIPs())
		}
	})
}

func TestF31WhatAControllerSaidOfALostNodeIsPutRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		for range 20 { // however often: a controller is no rival
			w.server.UpdateNode("a", func(n *v1.Node) {
				for i := range n.Status.Conditions {
					n.Status.Conditions[i].Status = v1.ConditionUnknown
				}
			})
			pass(10 * time.Second)
			if c := w.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
				t.Fatalf("%+v", c)
			}
		}
	})
}

func TestI7AnAdoptedNodeKeepsWhatIsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *node.Config) {
			c.Labels, c.Taints = map[string]string{"pool": "edge"}, []v1.Taint{{Key: "new", Effect: v1.TaintEffectNoSchedule}}
		})
		w.server.AddNode("a")
		w.server.UpdateNode("a", func(n *v1.Node) {
			n.Labels, n.Spec.Taints = map[string]string{"pool": "core"}, []v1.Taint{{Key: "theirs", Effect: v1.TaintEffectNoExecute}}
			n.Status.Conditions = []v1.NodeCondition{{Type: "Theirs", Status: v1.ConditionTrue}}
			n.Status.NodeInfo.BootID = "earlier"
		})
		w.start()
		pass(time.Minute)
		got := w.server.Node("a")
		want := map[string]string{
			"pool": "core", "kubernetes.io/hostname": "host-a", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		}
		if diff := cmp.Diff(want, got.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if len(got.Spec.Taints) != 1 || got.Spec.Taints[0].Key != "theirs" {
			t.Errorf("taints %v", got.Spec.Taints)
		}
		if c := w.condition("Theirs"); c.Status != v1.ConditionTrue || w.condition(v1.NodeReady).Status != v1.ConditionTrue {
			t.Errorf("conditions %v", got.Status.Conditions)
		}
		if events := w.heard(); len(events) < 2 || events[1] != "Rebooted" {
			t.Errorf("events %v", events)
		}
	})
}

func TestSomebodyWhoClosesTheNodeIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.heard()
		w.server.UpdateNode("a", func(n *v1.Node) { n.Spec.Unschedulable = true })
		pass(time.Minute)
		if diff := cmp.Diff([]string{"NodeNotSchedulable"}, w.heard()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestF1AServerThatIsDownIsAskedAgainUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.SetDown(true)
		w.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.WaitForRegistration(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("waited for the node: %v", err)
		}
		w.server.SetDown(false)
		pass(11 * time.Second)
		if err := w.WaitForRegistration(t.Context()); err != nil || w.server.Node("a") == nil {
			t.Errorf("not registered: %v", err)
		}
	})
}

func TestF10AnAnswerWithoutANodeIsNone(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.answering = func(request *http.Request) *http.Response {
					if request.Method != method {
						return nil
					}
					return &http.Response{
						StatusCode: http.StatusOK, Request: request, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader("{}")),
					}
				}
				w.start()
				pass(time.Minute)
				w.set(func() { w.answering = nil })
				pass(time.Minute)
				if c := w.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
					t.Errorf("%+v", c)
				}
				lease := w.server.Lease("a")
				if lease == nil || time.Since(lease.Spec.RenewTime.Time) > 11*time.Second || *lease.Spec.HolderIdentity != "a" {
					t.Errorf("lease %+v", lease)
				}
				if object := w.Object(); object == nil || object.UID != w.server.Node("a").UID {
					t.Errorf("the node takes itself for %+v", object)
				}
			})
		})
	}
}

func TestADeletedNodeStaysDeletedUntilSomebodyMakesItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.server.DeleteNode("a")
		pass(time.Minute)
		w.server.DeleteLease("a") // as the garbage collector does
		pass(10 * time.Minute)
		if w.server.Node("a") != nil || w.server.Lease("a") != nil {
			t.Fatal("it came back by itself")
		}
		made := w.server.AddNode("a")
		pass(time.Minute)
		if c := w.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("%+v", c)
		}
		if lease := w.server.Lease("a"); lease == nil || lease.OwnerReferences[0].UID != made.UID {
			t.Errorf("lease %+v", lease)
		}
	})
}

func TestANodeThatIsNotToRegisterWaitsForTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *node.Config) { c.NoRegistration = true })
		w.start()
		pass(time.Minute)
		if w.writes("nodes", "create") != 0 || w.writes("leases") != 0 {
			t.Fatalf("requests %v", w.server.Requests())
		}
		w.server.AddNode("a")
		pass(11 * time.Second)
		if c := w.condition(v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("%+v", c)
		}
		w.server.DeleteNode("a")
		pass(time.Minute)
		w.server.DeleteLease("a")
		pass(time.Minute)
		if w.server.Node("a") != nil || w.server.Lease("a") != nil {
			t.Error("a node that others had registered and deleted came back")
		}
	})
}

func TestF30TwoAgentsOfOneNodeDoNotFightForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		for range 60 {
			w.server.UpdateNode("a", func(n *v1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
			pass(10 * time.Second)
		}
		if n := w.writes("nodes", "patch"); n < 10 || n > 40 {
			t.Errorf("%d reports in ten minutes; want about three in each", n)
		}
	})
}

func TestANodeWithoutAClusterKnowsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *node.Config) { c.API = nil })
		if ips := w.HostIPs(); len(ips) != 1 || ips[0].String() != "192.0.2.7" {
			t.Errorf("before it runs: %v", ips)
		}
		w.start()
		w.set(func() { w.ready = errors.New("the runtime is down") })
		pass(time.Second)
		self := w.Object()
		if ready := self.Status.Conditions[3]; ready.Type != v1.NodeReady || ready.Status != v1.ConditionFalse {
			t.Errorf("%+v", self.Status.Conditions)
		}
		if events := w.heard(); events[len(events)-1] != "NodeNotReady" {
			t.Errorf("events %v", events)
		}
	})
}

func TestLabelsThatMayNotBeChangedDoNotKeepANodeFromBeingAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.AddNode("a")
		w.intercepting = func(r *http.Request) error {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/a") {
				r.URL.Path = "/api/v1/namespaces/x/serviceaccounts/x/token" // where the server forbids what is not bound to a pod
				r.Method, r.Header = http.MethodPost, http.Header{}
			}
			return nil
		}
		w.start()
		pass(time.Second)
		if c := w.condition(v1.NodeReady); c.Status != v1.ConditionTrue || len(w.server.Node("a").Labels) != 0 {
			t.Errorf("%+v", c)
		}
	})
}

func TestTheNodeCountsAndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		w := newWorld(t, func(c *node.Config) { c.Metrics = registry })
		w.start()
		pass(5 * time.Second)
		want := `
			# HELP kubelet_node_name The node's name. The count is always 1.
			# TYPE kubelet_node_name gauge
			kubelet_node_name{node="a"} 1
			# HELP herald_node_status_reports_total Attempts to keep the Node's status, by what became of them: told, unchanged, failed, rival.
			# TYPE herald_node_status_reports_total counter
			herald_node_status_reports_total{result="told"} 1
			# HELP herald_node_lease_renewals_total Attempts to renew the node's lease, by what became of them: renewed, failed.
			# TYPE herald_node_lease_renewals_total counter
			herald_node_lease_renewals_total{result="renewed"} 1
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

func TestAConfigNamesWhatIsMissing(t *testing.T) {
	look := func() (report.MachineInfo, error) { return facts(), nil }
	tests := map[string]struct {
		config node.Config
		says   string
	}{
		"no name":               {node.Config{MachineInfo: look}, "Name"},
		"no machine":            {node.Config{NodeName: "a"}, "Machine"},
		"negative":              {node.Config{NodeName: "a", MachineInfo: look, MaxPods: -1}, "MaxPods"},
		"too short a lease":     {node.Config{NodeName: "a", MachineInfo: look, LeaseDuration: time.Second}, "LeaseDuration"},
		"a machine in the dark": {node.Config{NodeName: "a", MachineInfo: func() (report.MachineInfo, error) { return report.MachineInfo{}, errors.New("dark") }}, "dark"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := node.New(test.config); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v; want it to name %s", err, test.says)
			}
		})
	}
}

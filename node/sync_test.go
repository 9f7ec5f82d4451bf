package node_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/heraldnode/herald/node"
)

func wantSync(t *testing.T, got node.Sync, state node.SyncState, reason string) {
	t.Helper()
	if got.State != state || !strings.Contains(got.Reason, reason) || (reason == "") != (got.Reason == "") {
		t.Fatalf("got %s, reason %q, want %s, reason %q", got.State, got.Reason, state, reason)
	}
	if (got.State == node.SyncSynced || got.State == node.SyncNoServer) != got.Since.IsZero() {
		t.Fatalf("%s: got since %v", got.State, got.Since)
	}
}

func readyStatus(status *v1.NodeStatus) v1.ConditionStatus {
	for _, condition := range status.Conditions {
		if condition.Type == v1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

func TestSync_Outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		got := h.Sync()
		wantSync(t, got, node.SyncSynced, "")
		if got.Local == nil || got.Synced == nil || got.ResourceVersion != h.server.Node("a").ResourceVersion || got.SyncedAt.IsZero() {
			t.Fatalf("got %+v, want both statuses", got)
		}
		if got.Lease.Duration != 40*time.Second || got.Lease.RenewedAt.IsZero() || got.Lease.Problem != "" {
			t.Fatalf("got lease %+v", got.Lease)
		}
		h.server.SetDown(true)
		advance(time.Minute)
		got = h.Sync()
		wantSync(t, got, node.SyncSynced, "API server does not answer: connection refused") // nothing has changed
		since := time.Now()
		h.set(func() { h.ready = errors.New("the runtime is down") })
		advance(time.Minute)
		got = h.Sync()
		wantSync(t, got, node.SyncWaiting, "API server does not answer: connection refused")
		if got.Failures < 5 || got.Since.Sub(since) > 2*time.Second || time.Since(got.LocalAt) > 12*time.Second {
			t.Fatalf("got %d failures, not synced since %v, local status of %v", got.Failures, got.Since, got.LocalAt)
		}
		if readyStatus(got.Local) != v1.ConditionFalse || readyStatus(got.Synced) != v1.ConditionTrue {
			t.Fatalf("got Ready %s, %s in the API server, want False, True", readyStatus(got.Local), readyStatus(got.Synced))
		}
		if got.Lease.Problem != "API server does not answer: connection refused" || got.Lease.Failures < 2 || time.Since(got.Lease.RenewedAt) < time.Minute {
			t.Fatalf("got lease %+v", got.Lease)
		}
		h.server.SetDown(false)
		advance(time.Until(got.NextTry) + 2*time.Second)
		wantSync(t, h.Sync(), node.SyncSynced, "")
		advance(time.Minute)
		got = h.Sync()
		if got.Failures != 0 || got.Lease.Failures != 0 || got.Lease.Problem != "" || time.Since(got.Lease.RenewedAt) > 11*time.Second {
			t.Fatalf("got %+v, want no failures", got)
		}
	})
}

func TestSync_Sending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		release := make(chan struct{})
		h.set(func() {
			h.intercept = func(r *http.Request) error {
				if r.Method == http.MethodPatch {
					<-release
				}
				return nil
			}
			h.ready = errors.New("the runtime is down")
		})
		advance(time.Second)
		wantSync(t, h.Sync(), node.SyncSending, "")
		close(release)
		advance(0)
		wantSync(t, h.Sync(), node.SyncSynced, "")
	})
}

func TestSync_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.set(func() {
			h.intercept = func(r *http.Request) error {
				if r.Method == http.MethodPatch {
					return apierrors.NewBadRequest("no")
				}
				return nil
			}
			h.ready = errors.New("the runtime is down")
		})
		advance(time.Minute)
		wantSync(t, h.Sync(), node.SyncRefused, "rejected: ")
	})
}

func TestSync_Gone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.server.DeleteNode("a")
		advance(time.Minute)
		got := h.Sync()
		wantSync(t, got, node.SyncGone, "the Node was deleted")
		if got.Synced != nil || got.Local == nil {
			t.Fatalf("got %+v, want the local status only", got)
		}
		h.server.AddNode("a")
		advance(time.Minute)
		wantSync(t, h.Sync(), node.SyncSynced, "")
	})
}

func TestSync_TwoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		for range 4 {
			wantSync(t, h.Sync(), node.SyncSynced, "")
			h.server.UpdateNode("a", func(n *v1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
			advance(10 * time.Second)
		}
		wantSync(t, h.Sync(), node.SyncWaiting, "another agent")
	})
}

func TestSync_NoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *node.Config) { c.API = nil })
		h.start()
		got := h.Sync()
		wantSync(t, got, node.SyncNoServer, "")
		if got.Local == nil || got.LocalAt.IsZero() || got.Synced != nil || got.Lease != (node.LeaseSync{}) {
			t.Fatalf("got %+v, want the local status only", got)
		}
	})
}

func TestOnSync_Outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		h := newHarness(t, func(c *node.Config) { c.OnSync = func() { calls.Add(1) } })
		h.start()
		advance(time.Minute)
		calls.Store(0)
		advance(10 * time.Minute)
		if got := calls.Load(); got != 0 {
			t.Errorf("got %d calls while nothing changed", got)
		}
		h.server.SetDown(true)
		advance(time.Minute)
		if got := calls.Load(); got != 2 || h.Sync().Failures == 0 {
			t.Errorf("got %d calls at the start of an outage, want 2: reports fail, renewals fail", got)
		}
		h.server.SetDown(false)
		advance(time.Minute)
		if got := calls.Load(); got != 4 || h.Sync().Failures != 0 {
			t.Errorf("got %d calls after the outage, want 4", got)
		}
	})
}

// conditionOf returns the status of a condition of the Node in the API server, or "".
func conditionOf(h *harness, conditionType v1.NodeConditionType) v1.NodeCondition {
	for _, condition := range h.server.Node("a").Status.Conditions {
		if condition.Type == conditionType {
			return condition
		}
	}
	return v1.NodeCondition{}
}

func TestConditions_SetAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		conditions := []v1.NodeCondition{
			{Type: "DiskBroken", Status: v1.ConditionFalse, Reason: "DiskOK"},
			{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "NotMine"}, // the agent's own
		}
		h := newHarness(t, func(c *node.Config) {
			c.Conditions = func() []v1.NodeCondition {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(conditions)
			}
		})
		set := func(condition v1.NodeCondition) {
			mu.Lock()
			conditions[0] = condition
			mu.Unlock()
			h.Refresh()
			synctest.Wait()
		}
		h.start()
		first := conditionOf(h, "DiskBroken")
		if first.Status != v1.ConditionFalse || conditionOf(h, v1.NodeReady).Status != v1.ConditionTrue {
			t.Fatalf("got %+v, Ready %+v at registration", first, conditionOf(h, v1.NodeReady))
		}
		h.server.UpdateNode("a", func(n *v1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: "Foreign", Status: v1.ConditionTrue})
		})
		advance(3 * time.Second)
		set(v1.NodeCondition{Type: "DiskBroken", Status: v1.ConditionTrue, Reason: "ReadOnly", Message: "sda"})
		got := conditionOf(h, "DiskBroken")
		if got.Status != v1.ConditionTrue || got.Message != "sda" || !got.LastTransitionTime.After(first.LastTransitionTime.Time) {
			t.Errorf("got %+v at once, want the new one", got)
		}
		set(v1.NodeCondition{Type: "DiskBroken"})
		if got := conditionOf(h, "DiskBroken"); got.Type != "" {
			t.Errorf("got %+v, want none", got)
		}
		wantSync(t, h.Sync(), node.SyncSynced, "")
		for _, condition := range h.Sync().Local.Conditions {
			if condition.Type == "DiskBroken" {
				t.Errorf("got %+v in the local status", condition)
			}
		}
		if conditionOf(h, "Foreign").Status != v1.ConditionTrue {
			t.Error("the condition of another agent was removed")
		}
	})
}

func TestConditions_NoCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *node.Config) {
			c.API = nil
			c.Conditions = func() []v1.NodeCondition {
				return []v1.NodeCondition{{Type: "Set", Status: v1.ConditionTrue}, {Type: "Removed"}}
			}
		})
		h.start()
		var types []v1.NodeConditionType
		for _, condition := range h.Object().Status.Conditions {
			types = append(types, condition.Type)
		}
		if !slices.Contains(types, "Set") || slices.Contains(types, "Removed") {
			t.Errorf("got %v, want Set without Removed", types)
		}
	})
}

package node_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/node"
)

func TestLease_Renewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		advance(10 * time.Minute)
		lease := h.server.Lease("a")
		if age := time.Since(lease.Spec.RenewTime.Time); age > 11*time.Second {
			t.Errorf("got a renewal %s ago, want at most 11s", age)
		}
		if *lease.Spec.HolderIdentity != "a" || *lease.Spec.LeaseDurationSeconds != 40 || lease.OwnerReferences[0].UID != h.server.Node("a").UID {
			t.Errorf("got lease %+v", lease)
		}
		if reads, renewals := h.countRequests("leases", "get"), h.countRequests("leases", "update"); reads != 1 || renewals < 57 || renewals > 60 {
			t.Errorf("got %d reads and %d renewals in ten minutes, want 1 and about 58", reads, renewals)
		}
	})
}

func TestLease_ChangedByOthers(t *testing.T) {
	tests := map[string]func(h *harness){
		"renewed by others": func(h *harness) {
			h.server.UpdateLease("a", func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NowMicro()) })
		},
		"deleted": func(h *harness) { h.server.DeleteLease("a") },
	}
	for name, interfere := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				h.start()
				advance(5 * time.Second)
				interfere(h)
				before := time.Now()
				advance(10 * time.Second)
				if lease := h.server.Lease("a"); lease == nil || !lease.Spec.RenewTime.After(before) {
					t.Errorf("got lease %+v, want it renewed", lease)
				}
			})
		})
	}
}

func TestF3_BrokenConnection(t *testing.T) {
	tests := map[string]struct {
		after time.Duration
		path  string // of the requests that hang
	}{
		"lease":               {5 * time.Second, "/leases/"},
		"status":              {5 * time.Second, "/nodes/"},
		"before registration": {0, "/nodes/"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				hang := func() {
					h.set(func() { h.intercept = h.hangUntilReconnected(test.path) })
				}
				if test.after == 0 {
					hang()
				}
				h.start()
				advance(test.after)
				hang()
				advance(30 * time.Second)
				if n := get(h, &h.reconnects); n != 1 {
					t.Errorf("got %d new connections, want 1", n)
				}
				if lease := h.server.Lease("a"); lease == nil || time.Since(lease.Spec.RenewTime.Time) > 15*time.Second {
					t.Errorf("got lease %+v, want it renewed", lease)
				}
			})
		})
	}
}

// hangUntilReconnected lets requests hang until a new connection is used.
func (h *harness) hangUntilReconnected(path string) func(*http.Request) error {
	return func(r *http.Request) error {
		if get(h, &h.reconnects) > 0 || !strings.Contains(r.URL.Path, path) {
			return nil
		}
		<-r.Context().Done()
		return r.Context().Err()
	}
}

func TestLease_StatusRequestsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.set(func() {
			h.intercept = func(r *http.Request) error {
				if !strings.Contains(r.URL.Path, "/nodes/") {
					return nil
				}
				<-r.Context().Done()
				return r.Context().Err()
			}
		})
		advance(10 * time.Minute)
		if age := time.Since(h.server.Lease("a").Spec.RenewTime.Time); age > 11*time.Second {
			t.Errorf("got a renewal %s ago, want at most 11s", age)
		}
	})
}

func TestF5_LeaseAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.server.SetDown(true)
		advance(time.Hour)
		h.server.SetDown(false)
		back := time.Now()
		advance(13 * time.Second)
		if renewed := h.server.Lease("a").Spec.RenewTime; !renewed.After(back) {
			t.Errorf("got a renewal at %s, want it after %s", renewed, back)
		}
	})
}

// TestLease_Expiry checks that an outage that is shorter than the lease is none, and that each longer one is told once.
func TestLease_Expiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		h := newHarness(t, func(c *node.Config) { c.OnLease = func(err error) { told = append(told, err == nil) } })
		h.start()
		advance(time.Minute)
		for _, outage := range []time.Duration{20 * time.Second, time.Hour} {
			h.server.SetDown(true)
			advance(outage)
			h.server.SetDown(false)
			advance(time.Minute)
		}
		if want := []bool{false, true}; !slices.Equal(told, want) {
			t.Errorf("got %v, want that the lease expired and was renewed once", told)
		}
	})
}

func TestF16_Shutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.start()
		advance(15 * time.Second)
		before, lease := h.server.Node("a"), h.server.Lease("a")
		stop()
		advance(time.Minute)
		if now := h.server.Node("a"); now.ResourceVersion != before.ResourceVersion || h.server.Lease("a").ResourceVersion != lease.ResourceVersion {
			t.Errorf("node or lease was written at shutdown: %+v", now)
		}
	})
}

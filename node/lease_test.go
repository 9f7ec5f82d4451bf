package node_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheLeaseIsRenewedFourTimesInItsDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		pass(10 * time.Minute)
		lease := w.server.Lease("a")
		if age := time.Since(lease.Spec.RenewTime.Time); age > 11*time.Second {
			t.Errorf("renewed %s ago", age)
		}
		if *lease.Spec.HolderIdentity != "a" || *lease.Spec.LeaseDurationSeconds != 40 || lease.OwnerReferences[0].UID != w.server.Node("a").UID {
			t.Errorf("%+v", lease)
		}
		if reads, renewals := w.writes("leases", "get"), w.writes("leases", "update"); reads != 1 || renewals < 57 || renewals > 60 {
			t.Errorf("%d reads and %d renewals in ten minutes", reads, renewals)
		}
	})
}

func TestALeaseThatSomebodyElseWroteIsReadAndRenewed(t *testing.T) {
	tests := map[string]func(w *world){
		"renewed by another": func(w *world) {
			w.server.UpdateLease("a", func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NowMicro()) })
		},
		"deleted": func(w *world) { w.server.DeleteLease("a") },
	}
	for name, interfere := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.start()
				pass(5 * time.Second)
				interfere(w)
				before := time.Now()
				pass(10 * time.Second)
				if lease := w.server.Lease("a"); lease == nil || !lease.Spec.RenewTime.After(before) {
					t.Errorf("lease %+v", lease)
				}
			})
		})
	}
}

func TestF3ANewConnectionIsTakenWhenTheOldOneLeadsNowhere(t *testing.T) {
	tests := map[string]struct {
		after time.Duration
		path  string // of the requests that are not answered
	}{
		"for the lease":            {5 * time.Second, "/leases/"},
		"for the status":           {5 * time.Second, "/nodes/"},
		"before it was registered": {0, "/nodes/"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				hang := func() {
					w.set(func() { w.intercepting = w.hangUntilReconnected(test.path) })
				}
				if test.after == 0 {
					hang()
				}
				w.start()
				pass(test.after)
				hang()
				pass(30 * time.Second)
				if n := get(w, &w.reconnected); n != 1 {
					t.Errorf("%d new connections", n)
				}
				if lease := w.server.Lease("a"); lease == nil || time.Since(lease.Spec.RenewTime.Time) > 15*time.Second {
					t.Errorf("lease %+v", lease)
				}
			})
		})
	}
}

// hangUntilReconnected is a connection that has led nowhere since some moment.
func (w *world) hangUntilReconnected(path string) func(*http.Request) error {
	return func(r *http.Request) error {
		if get(w, &w.reconnected) > 0 || !strings.Contains(r.URL.Path, path) {
			return nil
		}
		<-r.Context().Done()
		return r.Context().Err()
	}
}

func TestStatusWritesThatHangDoNotKeepTheLeaseFromBeingRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.set(func() {
			w.intercepting = func(r *http.Request) error {
				if !strings.Contains(r.URL.Path, "/nodes/") {
					return nil
				}
				<-r.Context().Done()
				return r.Context().Err()
			}
		})
		pass(10 * time.Minute)
		if age := time.Since(w.server.Lease("a").Spec.RenewTime.Time); age > 11*time.Second {
			t.Errorf("the lease was renewed %s ago", age)
		}
	})
}

func TestF5ALeaseIsTriedAgainSoonAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.server.SetDown(true)
		pass(time.Hour)
		w.server.SetDown(false)
		back := time.Now()
		pass(13 * time.Second)
		if renewed := w.server.Lease("a").Spec.RenewTime; !renewed.After(back) {
			t.Errorf("renewed at %s, the server was back at %s", renewed, back)
		}
	})
}

func TestF16NothingIsSaidInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.start()
		pass(15 * time.Second)
		before, lease := w.server.Node("a"), w.server.Lease("a")
		stop()
		pass(time.Minute)
		if now := w.server.Node("a"); now.ResourceVersion != before.ResourceVersion || w.server.Lease("a").ResourceVersion != lease.ResourceVersion {
			t.Errorf("the node was written to: %+v", now)
		}
	})
}

package mirror_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
)

// newForeignPods returns pods that have a static pod's name but are not mirror pods of this node.
func newForeignPods() map[string]*v1.Pod {
	onOtherNode, unowned := newUserPod("web"), newMirrorPod("web", "", "foreign")
	onOtherNode.Spec.NodeName = "n2"
	unowned.OwnerReferences = nil
	otherOwner := newMirrorPod("web", "", "foreign")
	otherOwner.OwnerReferences[0].Name = "n2"
	return map[string]*v1.Pod{
		"pod on this node":             newUserPod("web"),
		"pod on another node":          onOtherNode, // which this node may not read
		"mirror without owner":         unowned,
		"mirror owned by another node": otherOwner,
	}
}

func TestBUG15_ForeignPod(t *testing.T) {
	for name, foreign := range newForeignPods() {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				uid := h.userCreates(foreign)
				h.addStaticPod("web", "s1")
				advance(time.Hour)
				if stored := h.pod(fullName("web")); stored == nil || stored.UID != uid || stored.DeletionTimestamp != nil {
					h.Fatalf("got %v, want the foreign pod unchanged", stored)
				}
				if want := "Warning " + mirror.ReasonNameTaken + " web"; strings.Join(h.events, ";") != want {
					h.Errorf("got events %q, want one %q", h.events, want)
				}
				conflicts := h.reconciler.Conflicts()
				if len(conflicts) != 1 || conflicts[0].Name != fullName("web") || conflicts[0].Reason != mirror.ReasonNameTaken {
					h.Errorf("got conflicts %v, want one of web, %s", conflicts, mirror.ReasonNameTaken)
				}
				if requests := h.takeRequests(); requests["create"]+requests["get"] > 100 || requests["delete"] != 0 {
					h.Errorf("got requests %v in an hour, want at most 100 and no delete", requests)
				}
				h.wantConflictMetric(1)

				h.userDeletes(fullName("web"), 0)
				advance(5 * time.Minute)
				h.wantMirror("web")
				h.wantConflictMetric(0)
				if conflicts := h.reconciler.Conflicts(); len(conflicts) != 0 {
					h.Errorf("got conflicts %v, want none", conflicts)
				}
				h.takeRequests()
				advance(time.Hour)
				h.wantNoRequests()
			})
		})
	}
}

func (h *harness) wantConflictMetric(want int) {
	h.Helper()
	text := fmt.Sprintf("# HELP herald_mirror_conflicts Number of static pods without mirror pod because their name is taken "+
		"or the API server rejects the mirror pod.\n# TYPE herald_mirror_conflicts gauge\nherald_mirror_conflicts %d\n", want)
	if err := testutil.GatherAndCompare(h.metrics, strings.NewReader(text), "herald_mirror_conflicts"); err != nil {
		h.Error(err)
	}
}

func TestConflict_EndsWithStaticPod(t *testing.T) {
	withoutEvents := func(config *mirror.Config) { config.Events = nil }
	runWith(t, withoutEvents, func(h *harness) {
		h.userCreates(newUserPod("web"))
		h.addStaticPod("web", "s1")
		advance(time.Minute)
		h.removeStaticPod("web")
		advance(0)
		h.takeRequests()
		advance(time.Hour)
		h.wantNoRequests()
		h.wantConflictMetric(0)
	})
}

func TestConflict_MirrorRejected(t *testing.T) {
	forbidden := apierrors.NewForbidden(podResource, "web", errors.New("pod references a secret"))
	tests := map[string]error{
		"forbidden":    forbidden,
		"invalid":      apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil),
		"no namespace": apierrors.NewNotFound(v1.Resource("namespaces"), "shop"),
	}
	for name, rejection := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.update(func(c *fakeCluster) { c.fail = failOn("create", rejection) })
				h.addStaticPod("web", "s1")
				advance(time.Hour)
				if want := "Warning " + mirror.ReasonRejected + " web"; strings.Join(h.events, ";") != want {
					h.Errorf("got events %q, want one %q", h.events, want)
				}
				if requests := h.takeRequests(); requests["create"] < 5 || requests["create"] > 50 {
					h.Errorf("got requests %v in an hour, want 5 to 50 creates", requests)
				}
				h.update(func(c *fakeCluster) { c.fail = failOn("create", errors.New("another failure")) })
				h.replaceStaticPod("web", "s2") // a changed manifest is retried at once
				advance(0)
				if requests := h.takeRequests(); requests["create"] != 1 {
					h.Errorf("got requests %v after the change, want one create", requests)
				}
				h.update(func(c *fakeCluster) { c.fail = nil })
				advance(3 * time.Minute)
				h.wantMirror("web")
				if conflicts := h.reconciler.Conflicts(); len(conflicts) != 0 {
					h.Errorf("got conflicts %v, want none", conflicts)
				}
			})
		})
	}
}

// failOn returns a fault that affects one operation.
func failOn(operation string, err error) func(string) error {
	return func(requested string) error {
		if requested == operation {
			return err
		}
		return nil
	}
}

func TestReconciler_NodeRegisteredAgain(t *testing.T) {
	run(t, func(h *harness) {
		h.addStaticPod("web", "s1")
		advance(time.Second)
		h.update(func(c *fakeCluster) { c.node.UID = "node-uid-2" })
		h.addStaticPod("db", "s2") // the cached node UID is outdated but not expired
		advance(7 * time.Second)
		if got := h.wantMirror("db").OwnerReferences[0].UID; got != "node-uid-2" {
			h.Errorf("got owner UID %s, want node-uid-2", got)
		}
	})
}

func TestF1_APIServerOutage(t *testing.T) {
	run(t, func(h *harness) {
		h.update(func(c *fakeCluster) { c.fail = func(string) error { return errors.New("connection refused") } })
		for i := range 50 {
			h.addStaticPod(fmt.Sprint("web-", i), types.UID(fmt.Sprint("s", i)))
		}
		advance(time.Hour)
		total := 0
		for _, count := range h.takeRequests() {
			total += count
		}
		if total > 3600/4 {
			h.Errorf("got %d requests in an hour without API server, want at most 900", total)
		}
		h.update(func(c *fakeCluster) { c.fail = nil })
		advance(time.Minute)
		for i := range 50 {
			h.wantMirror(fmt.Sprint("web-", i))
		}
		h.wantRequests(map[string]int{"get_node": 1, "create": 50})
	})
}

func TestF4_RetryAfter(t *testing.T) {
	run(t, func(h *harness) {
		h.update(func(c *fakeCluster) {
			c.fail = failOn("create", &apierrors.StatusError{ErrStatus: metav1.Status{
				Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 60},
			}})
		})
		h.addStaticPod("web", "s1")
		advance(time.Second)
		h.takeRequests()
		h.addStaticPod("db", "s2")
		h.replaceStaticPod("web", "s3")
		advance(58 * time.Second)
		if requests := h.takeRequests(); requests["create"]+requests["delete"]+requests["get"] != 0 {
			h.Errorf("got requests %v before Retry-After elapsed, want none", requests)
		}
		h.update(func(c *fakeCluster) { c.fail = nil })
		advance(time.Minute)
		h.wantMirror("web")
		h.wantMirror("db")
	})
}

func TestF9_LostResponse(t *testing.T) {
	for _, operation := range []string{"create", "delete", "get"} {
		t.Run(operation, func(t *testing.T) {
			run(t, func(h *harness) {
				h.addStaticPod("web", "s1")
				advance(time.Second)
				requests := 0
				h.update(func(c *fakeCluster) {
					c.loseResponse = func(requested string) bool {
						requests++
						return requested == operation && requests < 5
					}
				})
				h.replaceStaticPod("web", "s2")
				advance(time.Minute)
				h.wantMirror("web")
				h.takeRequests()
				advance(time.Hour)
				h.wantNoRequests()
			})
		})
	}
}

func TestReconciler_WatchMissesDeletion(t *testing.T) {
	slowResync := func(config *mirror.Config) { config.Resync = time.Hour }
	runWith(t, slowResync, func(h *harness) {
		h.watchBroken = true // as if re-established between creation and deletion
		h.addStaticPod("web", "s1")
		advance(time.Second)
		h.userDeletes(fullName("web"), 0)
		h.watchBroken = false
		h.takeRequests()
		advance(9 * time.Second)
		h.wantRequests(map[string]int{"get": 1, "get_node": 1, "create": 1})
		h.wantMirror("web")
	})
}

func TestReconciler_ForgetsRemovedNames(t *testing.T) {
	attempts := 0
	countAttempts := func(config *mirror.Config) {
		config.Workers = 1
		config.Terminating = func(podid.FullName) bool { attempts++; return false }
	}
	runWith(t, countAttempts, func(h *harness) {
		h.addStaticPod("web", "s1")
		h.userCreates(newUserPod("db"))
		h.addStaticPod("db", "s2")
		advance(time.Minute)
		h.removeStaticPod("web")
		h.removeStaticPod("db")
		advance(time.Minute)
		attempts = 0
		advance(time.Hour)
		if attempts != 0 {
			h.Errorf("got %d attempts in an hour for removed names, want 0", attempts)
		}
	})
}

func TestReconciler_SilentWatch(t *testing.T) {
	run(t, func(h *harness) {
		h.watchBroken = true
		h.addStaticPod("web", "s1")
		advance(time.Hour)
		if requests := h.takeRequests(); requests["create"] != 1 || requests["get"] < 12 || requests["get"] > 20 {
			h.Errorf("got requests %v in an hour, want one create and 12 to 20 gets", requests)
		}
	})
}

func TestReconciler_InconsistentServer(t *testing.T) {
	run(t, func(h *harness) {
		h.update(func(c *fakeCluster) { c.fail = failOn("create", apierrors.NewAlreadyExists(podResource, "web")) })
		h.addStaticPod("web", "s1")
		advance(time.Hour)
		if requests := h.takeRequests(); requests["create"] != requests["get"] || requests["create"] > 2000 {
			h.Errorf("got requests %v in an hour, want at most 2000 creates and as many gets", requests)
		}
		h.update(func(c *fakeCluster) { c.fail = nil })
		advance(time.Minute)
		h.wantMirror("web")
	})
}

func TestReconciler_Finalizer(t *testing.T) {
	run(t, func(h *harness) {
		h.addStaticPod("web", "s1")
		advance(time.Second)
		h.userEdits(fullName("web"), func(mirror *v1.Pod) { mirror.Finalizers = []string{"example.com/hold"} })
		h.replaceStaticPod("web", "s2")
		advance(time.Minute)
		h.takeRequests()
		advance(time.Hour)
		h.wantNoRequests()
		h.update(func(c *fakeCluster) { // the finalizer is removed
			stored := c.pods[fullName("web")]
			delete(c.pods, fullName("web"))
			c.onChange(stored, nil)
		})
		advance(time.Second)
		h.wantMirror("web")
	})
}

func TestMetrics_Operations(t *testing.T) {
	run(t, func(h *harness) {
		h.userCreates(newUserPod("db"))
		advance(0)
		h.addStaticPod("web", "s1")
		h.addStaticPod("db", "s2")
		advance(time.Second)
		want := `
# HELP herald_mirror_operations_total Number of API requests for mirror pods, by operation and result.
# TYPE herald_mirror_operations_total counter
herald_mirror_operations_total{operation="create",result="already_exists"} 1
herald_mirror_operations_total{operation="create",result="ok"} 1
herald_mirror_operations_total{operation="get",result="ok"} 1
herald_mirror_operations_total{operation="get_node",result="ok"} 1
`
		if err := testutil.GatherAndCompare(h.metrics, strings.NewReader(want), "herald_mirror_operations_total"); err != nil {
			h.Error(err)
		}
	})
}

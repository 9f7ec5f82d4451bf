package pod_test

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

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

// strangers are pods that somebody else put under a static pod's name.
func strangers() map[string]*v1.Pod {
	onOtherNode, unowned := newPod("web", ""), mirrorPod("web", "", "theirs")
	onOtherNode.Spec.NodeName = "n2"
	unowned.OwnerReferences = nil
	othersMirror := mirrorPod("web", "", "theirs")
	othersMirror.OwnerReferences[0].Name = "n2"
	return map[string]*v1.Pod{
		"ordinary pod on this node":     newPod("web", ""),
		"ordinary pod on another node":  onOtherNode, // which this node may not read
		"mirror that no node owns":      unowned,
		"mirror that another node owns": othersMirror,
	}
}

func TestBUG15AForeignPodIsReportedOnceAndNeverTouched(t *testing.T) {
	for name, stranger := range strangers() {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				uid := w.kubectlCreate(stranger)
				w.addStatic("web", "s1")
				pass(time.Hour)
				if held := w.pod(fullName("web")); held == nil || held.UID != uid || held.DeletionTimestamp != nil {
					w.Fatalf("the foreign pod was touched: %v", held)
				}
				if want := "Warning " + pod.ReasonNameTaken + " web"; strings.Join(w.events, ";") != want {
					w.Errorf("events %q, want one %q", w.events, want)
				}
				conflicts := w.mirrors.Conflicts()
				if len(conflicts) != 1 || conflicts[0].Name != fullName("web") || conflicts[0].Reason != pod.ReasonNameTaken {
					w.Errorf("conflicts: %v", conflicts)
				}
				if sent := w.sent(); sent["create"]+sent["get"] > 100 || sent["delete"] != 0 {
					w.Errorf("requests in an hour: %v", sent)
				}
				w.wantConflictMetric(1)

				w.kubectlDelete(fullName("web"), 0)
				pass(5 * time.Minute)
				w.wantMirror("web")
				w.wantConflictMetric(0)
				if left := w.mirrors.Conflicts(); len(left) != 0 {
					w.Errorf("conflicts stay: %v", left)
				}
				w.sent()
				pass(time.Hour)
				w.wantNothingSent()
			})
		})
	}
}

func (w *world) wantConflictMetric(want int) {
	w.Helper()
	text := fmt.Sprintf("# HELP herald_mirror_conflicts Number of static pods that the cluster cannot see because their "+
		"name is taken or their mirror is refused.\n# TYPE herald_mirror_conflicts gauge\nherald_mirror_conflicts %d\n", want)
	if err := testutil.GatherAndCompare(w.metrics, strings.NewReader(text), "herald_mirror_conflicts"); err != nil {
		w.Error(err)
	}
}

func TestAConflictEndsWithItsStaticPod(t *testing.T) {
	unheard := func(config *pod.MirrorConfig) { config.Events = nil }
	inWorldWith(t, unheard, func(w *world) {
		w.kubectlCreate(newPod("web", ""))
		w.addStatic("web", "s1")
		pass(time.Minute)
		w.removeStatic("web")
		pass(0)
		w.sent()
		pass(time.Hour)
		w.wantNothingSent()
		w.wantConflictMetric(0)
	})
}

func TestARefusedMirrorIsReportedOnceAndTriedSeldom(t *testing.T) {
	forbidden := apierrors.NewForbidden(pods, "web", errors.New("pod references a secret"))
	tests := map[string]error{
		"forbidden":         forbidden,
		"invalid":           apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil),
		"namespace missing": apierrors.NewNotFound(v1.Resource("namespaces"), "shop"),
	}
	for name, refusal := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.set(func(c *cluster) { c.refuse = onlyOn("create", refusal) })
				w.addStatic("web", "s1")
				pass(time.Hour)
				if want := "Warning " + pod.ReasonRefused + " web"; strings.Join(w.events, ";") != want {
					w.Errorf("events %q, want one %q", w.events, want)
				}
				if sent := w.sent(); sent["create"] < 5 || sent["create"] > 50 {
					w.Errorf("requests in an hour: %v", sent)
				}
				w.set(func(c *cluster) { c.refuse = onlyOn("create", errors.New("another reason to fail")) })
				w.editStatic("web", "s2") // a corrected manifest is tried at once
				pass(0)
				if sent := w.sent(); sent["create"] != 1 {
					w.Errorf("after the edit: %v", sent)
				}
				w.set(func(c *cluster) { c.refuse = nil })
				pass(3 * time.Minute)
				w.wantMirror("web")
				if left := w.mirrors.Conflicts(); len(left) != 0 {
					w.Errorf("conflicts stay: %v", left)
				}
			})
		})
	}
}

func onlyOn(operation string, err error) func(string) error {
	return func(asked string) error {
		if asked == operation {
			return err
		}
		return nil
	}
}

func TestANodeThatRegisteredAnewOwnsTheNextMirror(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addStatic("web", "s1")
		pass(time.Second)
		w.set(func(c *cluster) { c.node.UID = "node-uid-2" })
		w.addStatic("db", "s2") // the node's UID that is remembered is outdated now, but still counts as fresh
		pass(7 * time.Second)
		if owner := w.wantMirror("db").OwnerReferences[0].UID; owner != "node-uid-2" {
			w.Errorf("owner %s", owner)
		}
	})
}

func TestF1AnHourWithoutAPIServerCostsFewRequestsAndOneCreateEach(t *testing.T) {
	inWorld(t, func(w *world) {
		w.set(func(c *cluster) { c.refuse = func(string) error { return errors.New("connection refused") } })
		for i := range 50 {
			w.addStatic(fmt.Sprint("web-", i), podUID(fmt.Sprint("s", i)))
		}
		pass(time.Hour)
		total := 0
		for _, count := range w.sent() {
			total += count
		}
		if total > 3600/4 {
			w.Errorf("%d requests in an hour of outage", total)
		}
		w.set(func(c *cluster) { c.refuse = nil })
		pass(time.Minute)
		for i := range 50 {
			w.wantMirror(fmt.Sprint("web-", i))
		}
		w.wantSent(map[string]int{"get_node": 1, "create": 50})
	})
}

func TestF4RetryAfterIsObeyedForAllNames(t *testing.T) {
	inWorld(t, func(w *world) {
		w.set(func(c *cluster) {
			c.refuse = onlyOn("create", &apierrors.StatusError{ErrStatus: metav1.Status{
				Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 60},
			}})
		})
		w.addStatic("web", "s1")
		pass(time.Second)
		w.sent()
		w.addStatic("db", "s2")
		w.editStatic("web", "s3")
		pass(58 * time.Second)
		if sent := w.sent(); sent["create"]+sent["delete"]+sent["get"] != 0 {
			w.Errorf("requests before the time: %v", sent)
		}
		w.set(func(c *cluster) { c.refuse = nil })
		pass(time.Minute)
		w.wantMirror("web")
		w.wantMirror("db")
	})
}

func TestF9ALostAnswerLeadsToNoSecondMirror(t *testing.T) {
	for _, operation := range []string{"create", "delete", "get"} {
		t.Run(operation, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.addStatic("web", "s1")
				pass(time.Second)
				lost := 0
				w.set(func(c *cluster) {
					c.lose = func(asked string) bool {
						lost++
						return asked == operation && lost < 5
					}
				})
				w.editStatic("web", "s2")
				pass(time.Minute)
				w.wantMirror("web")
				w.sent()
				pass(time.Hour)
				w.wantNothingSent()
			})
		})
	}
}

func TestAMirrorThatTheWatchNeverShowedIsAskedForAndMadeAgain(t *testing.T) {
	seldom := func(config *pod.MirrorConfig) { config.Resync = time.Hour }
	inWorldWith(t, seldom, func(w *world) {
		w.deaf = true // the watch was re-established in between and shows neither its coming nor its going
		w.addStatic("web", "s1")
		pass(time.Second)
		w.kubectlDelete(fullName("web"), 0)
		w.deaf = false
		w.sent()
		pass(9 * time.Second)
		w.wantSent(map[string]int{"get": 1, "get_node": 1, "create": 1})
		w.wantMirror("web")
	})
}

func TestANameThatIsGoneIsForgotten(t *testing.T) {
	looks := 0
	countLooks := func(config *pod.MirrorConfig) {
		config.Workers = 1
		config.Terminating = func(podid.FullName) bool { looks++; return false }
	}
	inWorldWith(t, countLooks, func(w *world) {
		w.addStatic("web", "s1")
		w.kubectlCreate(newPod("db", ""))
		w.addStatic("db", "s2")
		pass(time.Minute)
		w.removeStatic("web")
		w.removeStatic("db")
		pass(time.Minute)
		looks = 0
		pass(time.Hour)
		if looks != 0 {
			w.Errorf("%d looks in an hour at names that are gone", looks)
		}
	})
}

func TestAWatchThatStaysSilentIsMadeUpForLessAndLessOftenButForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.deaf = true
		w.addStatic("web", "s1")
		pass(time.Hour)
		if sent := w.sent(); sent["create"] != 1 || sent["get"] < 12 || sent["get"] > 20 {
			w.Errorf("requests in an hour: %v", sent)
		}
	})
}

func TestAServerThatContradictsItselfIsNotHammered(t *testing.T) {
	inWorld(t, func(w *world) {
		w.set(func(c *cluster) { c.refuse = onlyOn("create", apierrors.NewAlreadyExists(pods, "web")) })
		w.addStatic("web", "s1")
		pass(time.Hour)
		if sent := w.sent(); sent["create"] != sent["get"] || sent["create"] > 2000 {
			w.Errorf("requests in an hour: %v", sent)
		}
		w.set(func(c *cluster) { c.refuse = nil })
		pass(time.Minute)
		w.wantMirror("web")
	})
}

func TestAMirrorHeldByAFinalizerIsWaitedForWithoutRequests(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addStatic("web", "s1")
		pass(time.Second)
		w.kubectlEdit(fullName("web"), func(mirror *v1.Pod) { mirror.Finalizers = []string{"example.com/hold"} })
		w.editStatic("web", "s2")
		pass(time.Minute)
		w.sent()
		pass(time.Hour)
		w.wantNothingSent()
		w.set(func(c *cluster) { // the finalizer's owner lets go
			held := c.pods[fullName("web")]
			delete(c.pods, fullName("web"))
			c.hear(held, nil)
		})
		pass(time.Second)
		w.wantMirror("web")
	})
}

func TestOperationsAreCountedByResult(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kubectlCreate(newPod("db", ""))
		pass(0)
		w.addStatic("web", "s1")
		w.addStatic("db", "s2")
		pass(time.Second)
		want := `
# HELP herald_mirror_operations_total Number of requests to the API server for the sake of mirror pods, by operation and result.
# TYPE herald_mirror_operations_total counter
herald_mirror_operations_total{operation="create",result="already_exists"} 1
herald_mirror_operations_total{operation="create",result="ok"} 1
herald_mirror_operations_total{operation="get",result="ok"} 1
herald_mirror_operations_total{operation="get_node",result="ok"} 1
`
		if err := testutil.GatherAndCompare(w.metrics, strings.NewReader(want), "herald_mirror_operations_total"); err != nil {
			w.Error(err)
		}
	})
}

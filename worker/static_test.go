package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

func TestPW14APodOfTheAPIServerStartsBesideItsDyingNamesake(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: time.Minute})
		old := newPod("db-0", "old", podid.API, nil)
		w.create(old)
		w.delete(old, 100)
		next := newPod("db-0", "new", podid.API, nil)
		w.create(next)
		w.wantPhase(next, v1.PodRunning)
		w.wantStage(old, "terminating")
	})
}

func TestPW16AStaticPodStartsTheMomentItsPredecessorHasFinished(t *testing.T) { // PW-15, PW-18
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 7 * time.Second})
		old, next := staticPod("etcd", "old"), staticPod("etcd", "new")
		w.create(old)
		w.remove(old)
		w.create(next)
		if !w.IsTerminating(podid.FullNameOf(old)) { // PW-43
			w.Fatal("the name's holder is not said to be terminating")
		}
		w.after(6 * time.Second)
		for _, state := range w.Pods() { // PW-19
			if state.Began != (state.UID == "old") {
				w.Fatalf("%s began: %v", state.UID, state.Began)
			}
		}
		w.after(time.Second)
		w.wantPhase(next, v1.PodRunning)
		if w.IsTerminating(podid.FullNameOf(old)) {
			w.Fatal("the name's holder is still said to be terminating")
		}
	})
}

func TestPW17AStaticPodThatIsRemovedBeforeItsTurnNeverBegins(t *testing.T) { // PW-15
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 7 * time.Second})
		first, second, third := staticPod("etcd", "u1"), staticPod("etcd", "u2"), staticPod("etcd", "u3")
		w.create(first)
		w.see("u2")
		w.remove(first)
		w.create(second)
		w.create(third)
		began := time.Now()
		w.remove(second)
		if err := w.KillPod(w.Context(), second, plan.KillOptions{}); err != nil || time.Since(began) > 0 {
			w.Fatalf("%v after %v", err, time.Since(began))
		}
		w.wantStage(second, "finished")
		w.after(10 * time.Second)
		w.wantPhase(third, v1.PodRunning)
		if _, told := w.statuses.GetPodStatus(second.UID); told {
			w.Fatal("a pod that never began has a status")
		}
	})
}

func TestPW15GenerationsOfAStaticPodFollowEachOtherInTheirOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 3 * time.Second})
		var last *v1.Pod
		for _, uid := range []string{"u1", "u2", "u3", "u4"} {
			if last != nil {
				w.remove(last)
			}
			last = staticPod("etcd", uid)
			w.create(last)
		}
		w.after(time.Minute)
		w.wantPhase(last, v1.PodRunning)
		var ran []string
		for _, line := range w.engine.Transcript() {
			if strings.HasPrefix(line, "start") {
				ran = append(ran, line)
			}
		}
		if len(ran) != 2 {
			w.Fatalf("generations that were gone before their turn were started: %v", ran)
		}
	})
}

func TestPW18ANameIsFreeWhenItsHolderHoldsNothingAnyMore(t *testing.T) {
	inWorld(t, func(w *world) {
		old, next := staticPod("etcd", "old"), staticPod("etcd", "new")
		w.create(old)
		w.volumes.set(true, nil)
		w.remove(old)
		w.create(next)
		w.after(time.Minute)
		w.wantStage(old, "terminated")
		w.wantTranscript("sandbox etcd_shop #0", "start etcd_shop/app #0", "stop etcd_shop/app", "stop sandbox etcd_shop #0",
			"remove etcd_shop")
		if _, told := w.statuses.GetPodStatus(next.UID); told {
			w.Fatal("the successor began while its predecessor's volumes were mounted")
		}
		w.volumes.set(false, nil)
		w.after(5 * time.Minute)
		w.wantPhase(next, v1.PodRunning)
	})
}

func TestPW15AStaticPodWaitsForAPredecessorFromBeforeTheRestart(t *testing.T) { // BUG-11
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: engine.Forever})
		old, next := staticPod("etcd", "old"), staticPod("etcd", "new")
		w.create(old)
		w.restartAgent()
		w.unready[podid.API] = true
		w.create(next)
		w.after(20 * time.Second)
		if w.runs(next) || !w.runs(old) {
			w.Fatal("two generations at a time, or none")
		}
		w.housekeep()
		w.after(5 * time.Second)
		if !w.runs(next) || w.runs(old) {
			w.Fatal("the successor waits for the API server, which it may be itself")
		}
	})
}

func TestAStaticPodDoesNotBeginBeforeTheRuntimeWasListed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sight.setBlind(true)
		etcd := staticPod("etcd", "u1")
		w.create(etcd)
		w.after(time.Minute)
		if w.runs(etcd) {
			w.Fatal("nobody knows whether a predecessor runs")
		}
		w.sight.setBlind(false)
		w.after(2 * time.Second)
		w.wantPhase(etcd, v1.PodRunning)
	})
}

// full is why a node does not take a pod.
type full struct{}

func (full) Error() string           { return "Node didn't have enough resource: memory" }
func (full) RejectionReason() string { return "OutOfmemory" }

func TestPH49ARejectedPodFailsAndIsFinishedAtOnce(t *testing.T) { // BUG-33, SM-77, CFG-43
	reject := func(c *worker.Config) { c.Admit = func(*v1.Pod) error { return full{} } }
	inWorldWith(t, reject, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.wantStage(web, "finished")
		s, _ := w.statuses.GetPodStatus(web.UID)
		if s.Phase != v1.PodFailed || s.Reason != "OutOfmemory" || len(s.ContainerStatuses) != 0 {
			w.Fatalf("its status is %+v", s)
		}
		w.wantTranscript()
		if !w.heard("OutOfmemory") || w.count("kubelet_admission_rejections_total") != 1 {
			w.Fatal("nobody was told")
		}
		if gone := w.delete(web, 30); !w.PodResourcesAreReclaimed(gone, nil) {
			w.Fatal("its API object cannot go")
		}
	})
}

func TestBUG29ARejectedStaticPodIsTriedAgain(t *testing.T) {
	var asked atomic.Int32
	var admit atomic.Bool
	config := func(c *worker.Config) {
		c.Admit = func(*v1.Pod) error {
			asked.Add(1)
			if admit.Load() {
				return nil
			}
			return full{}
		}
	}
	inWorldWith(t, config, func(w *world) {
		etcd := staticPod("etcd", "u1")
		w.create(etcd)
		w.after(10 * time.Minute)
		s, _ := w.statuses.GetPodStatus(etcd.UID)
		if s.Phase != v1.PodPending || s.Reason != "OutOfmemory" {
			w.Fatalf("its status is %s, %s", s.Phase, s.Reason)
		}
		if n := asked.Load(); n < 4 || n > 8 {
			w.Fatalf("asked %d times in 10 min", n)
		}
		admit.Store(true)
		w.engine.Script("app", engine.Script{Pull: time.Hour})
		w.after(8 * time.Minute)
		if s, _ := w.statuses.GetPodStatus(etcd.UID); s.Phase != v1.PodPending || s.Reason != "" || s.Message != "" {
			w.Fatalf("it is admitted, and its status is %s, %s, %s", s.Phase, s.Reason, s.Message)
		}
		w.after(time.Hour)
		w.wantPhase(etcd, v1.PodRunning)
	})
}

// inWorldOf is in a world whose node has so many places.
func inWorldOf(t *testing.T, places int, do func(*world)) {
	var workers *worker.Workers
	config := func(c *worker.Config) {
		c.Admit = func(p *v1.Pod) error {
			taken := 0
			for _, state := range workers.Pods() {
				if state.UID != podid.UID(p.UID) && state.Admitted && state.Stage < plan.Terminated {
					taken++
				}
			}
			if taken >= places {
				return full{}
			}
			return nil
		}
	}
	inWorldWith(t, config, func(w *world) {
		workers = w.Workers
		do(w)
	})
}

func TestBUG29StaticPodsThatComeAtOnceShareThePlacesThereAre(t *testing.T) {
	inWorldOf(t, 3, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: engine.Forever})
		var pods []*v1.Pod
		for i := range 20 {
			name := fmt.Sprintf("p%d", i)
			pods = append(pods, staticPod(name, name))
			w.book.AddPod(pods[i])
		}
		for _, p := range pods {
			w.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: p})
		}
		w.after(10 * time.Minute)
		running := slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return !w.runs(p) })
		if len(running) != 3 {
			w.Fatalf("%d of 20 run where there are 3 places", len(running))
		}
		w.delete(running[0], 0)
		w.after(5 * time.Second)
		running = slices.DeleteFunc(pods, func(p *v1.Pod) bool { return !w.runs(p) })
		if len(running) != 3 {
			w.Fatalf("%d run after one of 3 has ended", len(running))
		}
	})
}

func TestBUG29ARejectedStaticPodComesAtOnceWhenAPlaceIsFree(t *testing.T) {
	inWorldOf(t, 1, func(w *world) {
		web, etcd := apiPod("web"), staticPod("etcd", "u1")
		w.create(web)
		w.create(etcd)
		w.after(10 * time.Minute) // by now it is asked about every few minutes only
		w.wantPhase(etcd, v1.PodPending)
		w.delete(web, 0)
		w.after(time.Second)
		w.wantPhase(etcd, v1.PodRunning)
	})
}

func TestBUG29ARejectionByAnEarlierAgentIsForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		etcd := staticPod("etcd", "u1")
		mirror := staticPod("etcd", "mirror")
		mirror.Status = derive.RejectedStatus(etcd, "OutOfmemory", "there is no room")
		mirror.Status.Phase = v1.PodPending
		w.book.AddPod(etcd)
		w.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: etcd, Mirror: mirror})
		w.after(10 * time.Minute) // in which it is synced again and again with that mirror
		s, _ := w.statuses.GetPodStatus(etcd.UID)
		if s.Phase != v1.PodRunning || s.Reason != "" || s.Message != "" {
			w.Fatalf("it is admitted, and its status is %s, %q, %q", s.Phase, s.Reason, s.Message)
		}
	})
}

func TestCFG43PodsAreAdmittedInTheOrderInWhichTheyCome(t *testing.T) {
	var order []string
	config := func(c *worker.Config) {
		c.Admit = func(p *v1.Pod) error { order = append(order, p.Name); return nil }
	}
	inWorldWith(t, config, func(w *world) {
		names := []string{"e", "a", "d", "b", "c"}
		for _, name := range names {
			w.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: apiPod(name)})
		}
		w.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: apiPod("ended", inPhase(v1.PodFailed))})
		w.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: deletedAt(apiPod("deleted"))})
		synctest.Wait()
		if strings.Join(order, "") != strings.Join(names, "") {
			w.Fatalf("asked in the order %v", order)
		}
	})
}

func TestPW53AStaticPodThatRunsHasItsPlaceThoughNobodyHasLookedAtItYet(t *testing.T) {
	var full atomic.Bool
	config := func(c *worker.Config) {
		c.Admit = func(*v1.Pod) error {
			if full.Load() {
				return errBroken
			}
			return nil
		}
	}
	inWorldWith(t, config, func(w *world) {
		etcd := staticPod("etcd", "u1")
		w.create(etcd)
		w.restartAgent()
		full.Store(true)
		w.create(etcd)
		w.wantPhase(etcd, v1.PodRunning)
		if w.count("kubelet_admission_rejections_total") != 0 {
			w.Fatal("a pod that runs was rejected")
		}
	})
}

func TestPH20OnlyAnEarlierAgentsWordEndsAStaticPodThroughItsMirror(t *testing.T) {
	mirror := func(phase v1.PodPhase) *v1.Pod { return staticPod("etcd", "mirror", inPhase(phase)) }
	tests := map[string]struct {
		pod     *v1.Pod
		happens func(*world, *v1.Pod)
		want    bool // it runs in the end
	}{
		"it runs": {staticPod("etcd", "u1"), func(w *world, etcd *v1.Pod) {
			w.create(etcd)
			w.UpdatePod(worker.Update{Op: plan.OpSync, Pod: etcd, Mirror: mirror(v1.PodFailed)})
		}, true},
		"it is in a crash loop": {staticPod("etcd", "u1"), func(w *world, etcd *v1.Pod) {
			w.engine.Script("app", engine.Script{Runs: time.Second, ExitCode: 1})
			w.create(etcd)
			w.after(5 * time.Second)
			w.UpdatePod(worker.Update{Op: plan.OpSync, Pod: etcd, Mirror: mirror(v1.PodFailed)})
			w.after(5 * time.Second)
			w.engine.Script("app", engine.Script{})
		}, true},
		"it ran before the agent did": {staticPod("etcd", "u1"), func(w *world, etcd *v1.Pod) {
			w.create(etcd)
			w.restartAgent()
			w.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: etcd, Mirror: mirror(v1.PodFailed)})
		}, true},
		"it ended before the agent began": {staticPod("etcd", "u1", policy(v1.RestartPolicyNever)), func(w *world, etcd *v1.Pod) {
			w.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: etcd, Mirror: mirror(v1.PodSucceeded)})
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				test.happens(w, test.pod)
				w.after(5 * time.Minute)
				if got := w.runs(test.pod); got != test.want {
					w.Fatalf("it runs: %v, and is said to be %s", got, w.phase(test.pod))
				}
			})
		})
	}
}

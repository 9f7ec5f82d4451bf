package worker_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// image is the one that the pod's app runs.
func image(name string) shape { return func(p *v1.Pod) { p.Spec.Containers[0].Image = name } }

func (w *world) imageOf(p *v1.Pod) string {
	w.Helper()
	seen, err := w.engine.InspectPod(w.Context(), podid.UID(p.UID))
	if err != nil {
		w.Fatal(err)
	}
	at := slices.IndexFunc(seen.Instances("app"), func(c observed.Container) bool { return c.State == observed.Running })
	if at < 0 {
		return "none"
	}
	return seen.Instances("app")[at].Image.Name
}

func (w *world) update(p *v1.Pod, op plan.Op) {
	w.book.UpdatePod(p)
	w.UpdatePod(worker.Update{Op: op, Pod: p})
	synctest.Wait()
}

func TestPW5OfAPodThatComesBackTheNewestVersionRuns(t *testing.T) { // PW-11
	for what, op := range map[string]plan.Op{"edited": plan.OpUpdate, "told again by its mirror": plan.OpSync} {
		t.Run(what+" while it is stopped", func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.engine.Script("app", engine.Script{Ending: 5 * time.Second})
				first := staticPod("etcd", "u1")
				w.create(first)
				w.remove(first)
				w.create(staticPod("etcd", "u1", image("app:2")))
				third := staticPod("etcd", "u1", image("app:3"))
				w.update(third, op)
				w.after(time.Minute)
				if got := w.imageOf(third); got != "app:3" {
					w.Fatalf("%s runs, want app:3; transcript:\n%s", got, strings.Join(w.engine.Transcript(), "\n"))
				}
			})
		})
	}
}

// isBeingRemoved has the pod complete, and its remains resist being taken away for a while.
func (w *world) isBeingRemoved(p *v1.Pod) {
	w.Helper()
	w.engine.Exit(podid.UID(p.UID), "app", 0)
	synctest.Wait()
	w.wantStage(p, "finished")
	heal := w.engine.Break(engine.Method("RemovePod"), engine.Fault{Err: errBroken})
	time.AfterFunc(20*time.Second, heal)
}

func TestPW5APodThatWasRemovedAgainDoesNotComeBack(t *testing.T) {
	tests := map[string]struct {
		before func(*world, *v1.Pod)
		again  func(*world, *v1.Pod)
	}{
		"while it is stopped":                             {func(*world, *v1.Pod) {}, (*world).remove},
		"while it is stopped, and nobody heard of it":     {func(*world, *v1.Pod) {}, (*world).removeInSilence},
		"while its remains are taken away":                {(*world).isBeingRemoved, (*world).remove},
		"while those are taken away, and nobody heard it": {(*world).isBeingRemoved, (*world).removeInSilence},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.engine.Script("app", engine.Script{Ending: 5 * time.Second})
				etcd := staticPod("etcd", "u1", policy(v1.RestartPolicyOnFailure))
				w.create(etcd)
				test.before(w, etcd)
				w.remove(etcd)
				w.create(etcd)
				test.again(w, etcd)
				w.after(time.Minute)
				if starts := w.engine.Calls("StartContainer"); starts != 1 {
					w.Fatalf("%d starts, want 1; transcript:\n%s", starts, strings.Join(w.engine.Transcript(), "\n"))
				}
				w.housekeep()
				if len(w.Pods()) != 0 {
					w.Fatalf("the workers still know %v", w.Pods())
				}
			})
		})
	}
}

func (w *world) removeInSilence(p *v1.Pod) {
	w.book.RemovePod(p)
	w.housekeep()
}

func TestPW18ANameIsFreeWhenItsHolderComesBackUnderAnother(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 5 * time.Second})
		etcd, renamed := staticPod("etcd", "u1"), staticPod("etcd-2", "u1")
		w.create(etcd)
		w.remove(etcd)
		w.create(renamed)
		w.update(renamed, plan.OpSync) // its mirror is there
		next := staticPod("etcd", "u2")
		w.create(next)
		w.after(time.Minute)
		if !w.runs(next) || !w.runs(renamed) {
			w.Fatalf("next runs: %v, renamed runs: %v", w.runs(next), w.runs(renamed))
		}
	})
}

func TestPW15AStaticPodThatComesBackWaitsForAPredecessorToo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: engine.Forever})
		old, next := staticPod("etcd", "old"), staticPod("etcd", "new")
		w.create(old)
		w.restartAgent()
		w.sight.setBlind(true)
		w.create(next)
		w.remove(next)
		w.create(next)
		w.after(time.Minute)
		if w.runs(next) {
			w.Fatal("two generations at a time")
		}
	})
}

func TestPW15OfTwoStaticPodsOfANameTheOneThatRunsGoesFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two := staticPod("etcd", "u1"), staticPod("etcd", "u2")
		w.create(one)
		w.restartAgent()
		w.create(two)
		w.create(one)
		w.after(time.Minute)
		w.housekeep()
		w.wantPhase(one, v1.PodRunning)
		if w.runs(two) {
			w.Fatal("two generations at a time")
		}
		w.remove(one)
		w.after(time.Minute)
		w.wantPhase(two, v1.PodRunning)
	})
}

// slowStatuses take their time to hear of a pod's end.
type slowStatuses struct{ worker.Statuses }

func (s slowStatuses) TerminatePod(p *v1.Pod) {
	time.Sleep(5 * time.Second)
	s.Statuses.TerminatePod(p)
}

func TestPW5TheEndOfALifeIsToldBeforeTheNextBegins(t *testing.T) {
	slow := func(c *worker.Config) { c.Statuses = slowStatuses{c.Statuses} }
	inWorldWith(t, slow, func(w *world) {
		etcd := staticPod("etcd", "u1")
		w.create(etcd)
		w.remove(etcd)
		w.wantStage(etcd, "finished")
		w.housekeep()
		w.create(etcd)
		w.after(10 * time.Second)
		s, _ := w.statuses.GetPodStatus(etcd.UID)
		if !w.runs(etcd) || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Running == nil {
			w.Fatalf("it runs: %v, and is said to be %+v", w.runs(etcd), s.ContainerStatuses)
		}
	})
}

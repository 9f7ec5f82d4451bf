package worker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

func TestBUG27ADeletionWaitsForNothingThatAStepDoes(t *testing.T) { // PW-12
	hang := engine.Fault{Delay: engine.Forever}
	tests := map[string]func(w *world){
		"a pull":      func(w *world) { w.engine.Script("app", engine.Script{Pull: engine.Forever}) },
		"a hook":      func(w *world) { w.engine.Script("app", engine.Script{PostStart: engine.Forever}) },
		"a sandbox":   func(w *world) { w.engine.Break(engine.Method("StartSandbox"), hang) },
		"a container": func(w *world) { w.engine.Break(engine.Method("StartContainer"), hang) },
		"a volume": func(w *world) {
			w.volumes.set(true, nil)
			time.AfterFunc(time.Minute, func() { w.volumes.set(false, nil) })
		},
		"a back-off":   func(w *world) { w.engine.Break(engine.Method("StartSandbox"), engine.Fault{Err: errBroken}) },
		"a crash loop": func(w *world) { w.engine.Script("app", engine.Script{Runs: time.Second, ExitCode: 1}) },
	}
	for name, breakIt := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				breakIt(w)
				web := apiPod("web")
				w.create(web)
				w.after(61 * time.Second)
				w.wantStage(web, "sync")
				w.delete(web, 30)
				w.wantStage(web, "finished")
			})
		})
	}
}

func TestPW7AnEndThatIsToldInPassingWaitsForNoRest(t *testing.T) { // BUG-27
	inWorld(t, func(w *world) {
		w.volumes.set(false, errBroken)
		web := apiPod("web")
		w.create(web) // and rests after its failure
		w.volumes.set(false, nil)
		w.update(apiPod("web", inPhase(v1.PodFailed)), plan.OpSync)
		w.wantStage(web, "finished")
	})
}

func TestPW21AShorterGraceInterruptsALongerOne(t *testing.T) { // PW-20
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: engine.Forever})
		web := apiPod("web")
		w.create(web)
		gone := w.delete(web, 600)
		w.after(5 * time.Second)
		w.wantStage(web, "terminating")
		short := time.Duration(0)
		w.UpdatePod(worker.Update{Op: plan.OpKill, Pod: gone, Kill: plan.KillOptions{GracePeriod: &short, Evict: true}})
		w.after(3 * time.Second)
		w.wantStage(web, "finished")
	})
}

func TestPW20AGraceOnlyShrinks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: engine.Forever})
		web := apiPod("web")
		w.create(web)
		gone := w.delete(web, 5)
		long := time.Hour
		w.UpdatePod(worker.Update{Op: plan.OpKill, Pod: gone, Kill: plan.KillOptions{GracePeriod: &long}})
		w.after(6 * time.Second)
		w.wantStage(web, "finished")
	})
}

func TestPW22ARemovedManifestStillGivesItsGrace(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 20 * time.Second})
		etcd := staticPod("etcd", "u1")
		w.create(etcd)
		w.remove(etcd)
		w.after(19 * time.Second)
		w.wantStage(etcd, "terminating")
		w.after(2 * time.Second)
		w.wantStage(etcd, "finished")
	})
}

func TestPW23AKillWaitsForTheEndButNotForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 3 * time.Second})
		web := apiPod("web")
		w.create(web)
		began := time.Now()
		if err := w.KillPod(w.Context(), web, plan.KillOptions{Evict: true}); err != nil || time.Since(began) != 3*time.Second {
			w.Fatalf("%v after %v", err, time.Since(began))
		}

		heal := w.engine.Break(engine.Method("StopContainer"), engine.Fault{Delay: engine.Forever})
		db := apiPod("db")
		w.create(db)
		began = time.Now()
		err := w.KillPod(w.Context(), db, plan.KillOptions{Evict: true})
		if err == nil || !strings.Contains(err.Error(), "db_shop (uid-db)") || time.Since(began) != 45*time.Second {
			w.Fatalf("%v after %v", err, time.Since(began))
		}
		if !w.heard("ExceededGracePeriod") {
			w.Fatal("nobody was told")
		}
		if !w.PodCouldHaveRunningContainers(podid.UID(db.UID)) {
			w.Fatal("it is said to have stopped")
		}
		heal()
		w.after(5 * time.Minute)
		w.wantStage(db, "finished")

		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if err := w.KillPod(ctx, apiPod("other"), plan.KillOptions{}); err != nil && ctx.Err() == nil {
			w.Fatal(err)
		}
	})
}

func TestPW9NobodyWaitsForAPodThatHasStopped(t *testing.T) { // PW-8
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 4 * time.Second})
		web := apiPod("web")
		w.create(web)
		began := time.Now()
		var waiters sync.WaitGroup
		for range 5 {
			waiters.Go(func() {
				if err := w.KillPod(w.Context(), web, plan.KillOptions{Evict: true}); err != nil {
					w.Error(err)
				}
			})
		}
		waiters.Wait()
		if took := time.Since(began); took != 4*time.Second {
			w.Fatalf("they waited %v", took)
		}
		synctest.Wait()
		if err := w.KillPod(w.Context(), web, plan.KillOptions{}); err != nil || time.Since(began) != 4*time.Second {
			w.Fatalf("%v; waited for a pod that has stopped", err)
		}
	})
}

func TestPW28TheLastKillHasTheLastWordOnTheStatus(t *testing.T) {
	say := func(reason string) plan.KillOptions {
		return plan.KillOptions{Evict: true, StatusFunc: func(s *v1.PodStatus) { s.Phase, s.Reason = v1.PodFailed, reason }}
	}
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 5 * time.Second})
		heal := w.engine.Break(engine.Method("InspectPod"), engine.Fault{Delay: engine.Forever})
		web := apiPod("web")
		w.create(web)
		w.UpdatePod(worker.Update{Op: plan.OpKill, Pod: web, Kill: say("Preempting")})
		w.UpdatePod(worker.Update{Op: plan.OpKill, Pod: web, Kill: say("Evicted")})
		heal()
		w.after(5 * time.Minute)
		w.wantStage(web, "finished")
		if s, _ := w.statuses.GetPodStatus(web.UID); s.Phase != v1.PodFailed || s.Reason != "Evicted" {
			w.Fatalf("it ended as %s, %s", s.Phase, s.Reason)
		}
	})
}

func TestPW25SidecarsOutliveTheContainersThatTheyServe(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 2 * time.Second})
		web := apiPod("web", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{
				{Name: "proxy", Image: "proxy:1", RestartPolicy: &always}, {Name: "log", Image: "log:1", RestartPolicy: &always},
			}
		})
		w.create(web)
		w.wantPhase(web, v1.PodRunning)
		before := len(w.engine.Transcript())
		w.delete(web, 30)
		w.after(10 * time.Second)
		got := strings.Join(w.engine.Transcript()[before:], ", ")
		want := "stop web_shop/app, stop web_shop/log, stop web_shop/proxy, stop sandbox web_shop #0, remove web_shop"
		if got != want {
			w.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

func TestPW36TheEndIsToldWithExitCodesBeforeTheContainersAreGone(t *testing.T) { // PW-40
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.delete(web, 30)
		w.wantStage(web, "finished")
		s, _ := w.statuses.GetPodStatus(web.UID)
		end := s.ContainerStatuses[0].State.Terminated
		if end == nil || end.ExitCode != 143 || s.PodIP == "" {
			w.Fatalf("it ended as %+v with address %q", end, s.PodIP)
		}
		if s.Phase != v1.PodFailed || w.condition(web, v1.PodReady) != v1.ConditionFalse {
			w.Fatalf("its last status is %s, ready %s", s.Phase, w.condition(web, v1.PodReady))
		}
	})
}

func TestPW36WhatRunsHasNotStoppedWhateverTheRuntimeSays(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		heal := w.engine.Break(func(c engine.Call) bool { return strings.HasPrefix(c.Method, "Stop") }, engine.Fault{Pretends: true})
		w.delete(web, 1)
		w.after(time.Minute)
		w.wantStage(web, "terminating")
		heal()
		w.after(time.Minute)
		w.wantStage(web, "finished")
	})
}

func TestAStopThatFailedGivesTheWholeGraceAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 20 * time.Second})
		web := apiPod("web", policy(v1.RestartPolicyNever))
		w.create(web)
		heal := w.engine.Break(engine.Method("StopContainer"), engine.Fault{Err: errBroken})
		w.UpdatePod(worker.Update{Op: plan.OpUpdate, Pod: deletedAfter(web, 30)})
		w.after(time.Minute)
		heal()
		w.after(time.Minute)
		w.wantStage(web, "finished")
		s, _ := w.statuses.GetPodStatus(web.UID)
		if end := s.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 143 {
			w.Fatalf("it was killed while it ended: %+v", end)
		}
	})
}

func TestPW37APodThatCannotBeStoppedIsNotSaidToHaveStopped(t *testing.T) { // PW-42
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		heal := w.engine.Break(engine.Method("StopContainer"), engine.Fault{Err: errBroken})
		gone := w.delete(web, 1)
		uid := podid.UID(web.UID)
		for range 60 {
			w.Wake(uid)
			w.after(time.Second)
		}
		w.wantStage(web, "terminating")
		if got := w.engine.Calls("StopContainer"); got < 4 || got > 7 {
			w.Fatalf("%d attempts in a minute", got)
		}
		if !w.PodCouldHaveRunningContainers(uid) || w.PodResourcesAreReclaimed(gone, nil) || !w.heard("FailedKillPod") {
			w.Fatal("it is said to have stopped, or nobody was told that it has not")
		}
		heal()
		w.after(20 * time.Second)
		w.wantStage(web, "finished")
		if w.PodCouldHaveRunningContainers(uid) || !w.PodResourcesAreReclaimed(gone, nil) {
			w.Fatal("it is not said to have stopped")
		}
	})
}

func TestPW38WhatIsGoneHasStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.engine.Exit(podid.UID(web.UID), "app", 0)
		w.engine.Script("app", engine.Script{Pull: engine.Forever})
		if err := w.engine.RemovePod(w.Context(), podid.UID(web.UID)); err != nil {
			w.Fatal(err)
		}
		w.delete(web, 30)
		w.wantStage(web, "finished")
	})
}

func TestBUG31AVolumeThatDoesNotLetGoHoldsUpItsPodAloneAndIsSeen(t *testing.T) { // PW-40
	inWorld(t, func(w *world) {
		web, db := apiPod("web"), apiPod("db")
		w.create(web)
		w.volumes.set(true, nil)
		gone := w.delete(web, 1)
		w.after(3 * time.Minute)
		w.wantStage(web, "terminated")
		if !w.heard("FailedKillPod") || w.Pods()[0].Err == nil || !w.Pods()[0].Acknowledged || w.PodResourcesAreReclaimed(gone, nil) {
			w.Fatalf("it waits in silence: %+v", w.Pods())
		}
		w.volumes.set(false, nil)
		w.create(db)
		w.wantPhase(db, v1.PodRunning)
		w.after(3 * time.Minute)
		w.wantStage(web, "finished")
		s, _ := w.statuses.GetPodStatus(web.UID)
		if end := s.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 143 {
			w.Fatalf("how it ended was forgotten meanwhile: %+v", end)
		}
	})
}

// ending is the logbook of a node that asks, the moment that a pod ends, whether its API object may go.
type ending struct {
	worker.Statuses
	safe func(*v1.Pod) bool

	mu      sync.Mutex // guards answers
	answers []bool
}

func (e *ending) TerminatePod(p *v1.Pod) {
	e.mu.Lock()
	e.answers = append(e.answers, e.safe(p))
	e.mu.Unlock()
	e.Statuses.TerminatePod(p)
}

func TestSM72TheAPIObjectMayGoTheMomentThatThePodHasEnded(t *testing.T) {
	e := &ending{}
	inWorldWith(t, func(c *worker.Config) { e.Statuses = c.Statuses; c.Statuses = e }, func(w *world) {
		e.safe = func(p *v1.Pod) bool { return w.PodResourcesAreReclaimed(p, nil) }
		web := apiPod("web")
		w.create(web)
		w.delete(web, 1)
		w.wantStage(web, "finished")
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.answers) != 1 || !e.answers[0] {
			w.Fatalf("asked at its end: %v", e.answers)
		}
	})
}

func TestSM76ACompletedPodKeepsItsContainersUntilItIsDeleted(t *testing.T) { // PW-42
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Runs: time.Second})
		job := apiPod("job", policy(v1.RestartPolicyNever))
		w.create(job)
		w.after(2 * time.Second)
		w.wantStage(job, "finished")
		if w.PodResourcesAreReclaimed(job, nil) || len(w.sight.Get(podid.UID(job.UID)).Containers) != 1 {
			w.Fatal("its container, and with it its log, is gone")
		}
		gone := w.delete(job, 30)
		if !w.PodResourcesAreReclaimed(gone, nil) {
			w.Fatal("the API object cannot go")
		}
		w.wantStage(job, "finished")
	})
}

// startLate is a call of the runtime that does its work long after everybody gave it up.
func (w *world) startLate(p *v1.Pod) {
	w.Helper()
	w.engine.Script("app", engine.Script{})
	sandbox, err := w.engine.StartSandbox(w.Context(), p, 7)
	if err == nil {
		late := plan.Start{Container: &p.Spec.Containers[0], Kind: derive.RegularContainer, RestartCount: 7}
		err = w.engine.StartContainer(w.Context(), p, sandbox, late)
	}
	if err != nil || !w.runs(p) {
		w.Fatal(err)
	}
}

func TestAContainerThatAppearsAfterTheEndIsStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Runs: time.Second})
		job := apiPod("job", policy(v1.RestartPolicyNever))
		w.create(job)
		w.after(2 * time.Second)
		w.wantStage(job, "finished")
		stale, _ := w.sight.Pods()
		w.startLate(job)
		w.after(time.Second)
		w.housekeep()
		w.after(time.Second)
		if w.runs(job) {
			w.Fatal("it still runs")
		}
		w.wantStage(job, "finished")

		stale[0].Containers[0].State = observed.Running
		before := w.engine.Calls("RemovePod") + w.count("kubelet_pod_worker_duration_seconds")
		w.Housekeep(w.book.GetPods(), stale, func(podid.Source) bool { return true })
		w.after(time.Second)
		if w.engine.Calls("RemovePod")+w.count("kubelet_pod_worker_duration_seconds") != before {
			w.Fatal("a list from before its end woke a finished pod")
		}
	})
}

func TestAContainerThatAppearsDuringCleanUpIsStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.volumes.set(true, nil)
		w.delete(web, 1)
		w.wantStage(web, "terminated")
		w.startLate(web)
		w.volumes.set(false, nil)
		w.after(5 * time.Minute)
		if w.runs(web) {
			w.Fatal("it still runs")
		}
		w.wantStage(web, "finished")
	})
}

func deletedAt(p *v1.Pod) *v1.Pod { return deletedAfter(p, 1) }

func deletedAfter(p *v1.Pod, seconds int64) *v1.Pod {
	p = p.DeepCopy()
	now := metav1.Now()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &seconds
	return p
}

package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

func (w *world) wantTranscript(want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.engine.Transcript()); diff != "" {
		w.Fatal(diff)
	}
}

func TestPW1APodIsStartedAndItsStatusFollowsAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.wantTranscript("sandbox web_shop #0", "start web_shop/app #0")
		w.wantPhase(web, v1.PodRunning)
		if !w.volumes.has(web.UID) {
			w.Fatal("it runs without its volumes")
		}
	})
}

func TestPW27APodThatIsDoneEndsWithoutAnUpdate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Runs: 5 * time.Second})
		job := apiPod("job", policy(v1.RestartPolicyNever))
		w.create(job)
		w.after(6 * time.Second)
		w.wantStage(job, "finished")
		w.wantPhase(job, v1.PodSucceeded)
		w.wantTranscript("sandbox job_shop #0", "start job_shop/app #0", "stop sandbox job_shop #0")
		if w.volumes.has(job.UID) {
			w.Fatal("its volumes are still there")
		}
	})
}

func TestPW26ACallWhoseAnswerWasLostIsNotRepeated(t *testing.T) { // F22
	for _, method := range []string{"StartSandbox", "StartContainer", "StopContainer", "StopSandbox", "RemovePod"} {
		t.Run(method, func(t *testing.T) {
			inWorld(t, func(w *world) {
				heal := w.engine.Break(engine.Method(method), engine.Fault{Executes: true, Err: errBroken})
				web := apiPod("web")
				w.create(web)
				w.after(20 * time.Second)
				heal()
				w.after(20 * time.Second)
				w.wantPhase(web, v1.PodRunning)
				w.wantTranscript("sandbox web_shop #0", "start web_shop/app #0")
				w.engine.Break(engine.Method(method), engine.Fault{Executes: true, Err: errBroken})
				w.delete(web, 1)
				w.after(20 * time.Second)
				if w.runs(web) {
					w.Fatal("it still runs")
				}
			})
		})
	}
}

func TestPW35TheStatusIsToldBeforeAnythingSlow(t *testing.T) { // GEN-30
	inWorld(t, func(w *world) {
		w.volumes.set(true, nil)
		web := apiPod("web")
		w.create(web)
		w.wantPhase(web, v1.PodPending)
		if w.condition(web, v1.PodReadyToStartContainers) != v1.ConditionFalse {
			w.Fatal("it has no sandbox yet")
		}
		w.volumes.set(false, nil)
		w.engine.Script("app", engine.Script{Pull: time.Hour})
		w.after(5 * time.Minute)
		if w.condition(web, v1.PodReadyToStartContainers) != v1.ConditionTrue {
			w.Fatal("a pull hides that the sandbox is there")
		}
		w.after(time.Hour)
		w.wantPhase(web, v1.PodRunning)
	})
}

func (w *world) condition(p *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	s, _ := w.statuses.GetPodStatus(p.UID)
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// refusal is an error of the runtime that says more.
type refusal struct {
	reason string
	after  time.Duration
}

func (r refusal) Error() string             { return "refused: " + r.reason }
func (r refusal) WaitingReason() string     { return r.reason }
func (r refusal) RetryAfter() time.Duration { return r.after }

func TestPW31AFailedStepIsTriedAgainWhenItsErrorSaysOrAfterARest(t *testing.T) {
	tests := map[string]struct {
		fault       error
		least, most int // attempts in 10 min
	}{
		"after 10 to 15 s":              {errBroken, 40, 60},
		"when the error says":           {refusal{"ImagePullBackOff", 30 * time.Second}, 20, 20},
		"but not later than the resync": {refusal{"ImagePullBackOff", time.Hour}, 10, 10},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.engine.Break(engine.Method("StartContainer"), engine.Fault{Err: test.fault})
				w.create(apiPod("web"))
				w.after(10*time.Minute - time.Second)
				if got := w.engine.Calls("StartContainer"); got < test.least || got > test.most {
					w.Fatalf("%d attempts in 10 min, want %d to %d", got, test.least, test.most)
				}
			})
		})
	}
}

func TestAFailedSandboxIsNotTriedAgainByItsOwnNoise(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Break(engine.Method("StartSandbox"), engine.Fault{Err: errBroken})
		web := apiPod("web")
		w.create(web)
		for range 120 {
			w.Wake(podid.UID(web.UID))
			w.after(time.Second)
		}
		if got := w.engine.Calls("StartSandbox"); got < 8 || got > 13 {
			w.Fatalf("%d attempts in 2 min", got)
		}
		if !w.heard("FailedCreatePodSandBox") {
			w.Fatal("nobody was told")
		}
		before := w.engine.Calls("StartSandbox")
		w.UpdatePod(worker.Update{Op: plan.OpUpdate, Pod: web})
		synctest.Wait()
		if w.engine.Calls("StartSandbox") != before+1 {
			w.Fatal("an update was made to wait")
		}
	})
}

func TestWhyAContainerWaitsIsInItsStatusUntilItRuns(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{PullError: refusal{"ErrImagePull", 10 * time.Second}})
		web := apiPod("web", withContainers("app", "other"))
		w.create(web)
		w.after(time.Second)
		if got := w.waiting(web, "app"); got != "ErrImagePull" {
			w.Fatalf("it waits because of %q", got)
		}
		if got := w.waiting(web, "other"); got != "" {
			w.Fatalf("one container's failure keeps the other from starting: %q", got)
		}
		w.engine.Script("app", engine.Script{})
		w.after(20 * time.Second)
		if got := w.waiting(web, "app"); got != "" {
			w.Fatalf("it still waits because of %q", got)
		}
	})
}

func TestACrashLoopIsToldAndWaitedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Runs: time.Second, ExitCode: 1})
		web := apiPod("web")
		w.create(web)
		w.after(5 * time.Second)
		if got := w.waiting(web, "app"); got != "CrashLoopBackOff" {
			w.Fatalf("it waits because of %q", got)
		}
		w.after(10 * time.Minute)
		starts := w.engine.Calls("StartContainer")
		if starts < 6 || starts > 9 {
			w.Fatalf("%d starts in 10 min", starts)
		}
		if told := w.countTold("BackOff"); told < starts-2 || told > starts {
			w.Fatalf("%d events of %d starts", told, starts)
		}
		w.wantTold("web/spec.containers{app} BackOff: Back-off restarting failed container app in pod web_shop(" + string(web.UID) + ")")
	})
}

func TestACrashLoopIsNeverShownAsAnEndThatIsOld(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		var shown []string
		var listening sync.WaitGroup
		listening.Go(func() {
			for change := range w.statuses.Changes(ctx) {
				for _, c := range change.Status.ContainerStatuses {
					shown = append(shown, stateOf(c))
				}
			}
		})
		w.engine.Script("app", engine.Script{Runs: time.Second, ExitCode: 1})
		w.create(apiPod("web"))
		w.after(5 * time.Minute)
		cancel()
		listening.Wait()
		for i, state := range shown[1:] {
			if shown[i] == plan.ReasonCrashLoopBackOff && state == "ended" {
				w.Fatalf("after its back-off it was shown as ended again: %s", strings.Join(shown, ", "))
			}
		}
		if !slices.Contains(shown, plan.ReasonCrashLoopBackOff) {
			w.Errorf("there was no back-off: %s", strings.Join(shown, ", "))
		}
	})
}

func stateOf(c v1.ContainerStatus) string {
	switch {
	case c.State.Running != nil:
		return "running"
	case c.State.Terminated != nil:
		return "ended"
	case c.State.Waiting != nil:
		return c.State.Waiting.Reason
	}
	return "nothing"
}

func TestPW32ALivePodIsLookedAtEachMinuteOrSoAndNotMore(t *testing.T) { // PW-33, PW-34
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.volumes.forget()
		w.after(10 * time.Minute)
		if got := w.volumes.count(); got < 6 || got > 10 {
			w.Fatalf("%d looks in 10 min", got)
		}
	})
}

func TestAPodWaitsForTheNetworkUnlessItUsesTheNodes(t *testing.T) { // PW-31
	var ready atomic.Bool
	network := func(c *worker.Config) {
		c.NetworkReady = func() error {
			if ready.Load() {
				return nil
			}
			return errBroken
		}
	}
	inWorldWith(t, network, func(w *world) {
		web, host := apiPod("web"), apiPod("host", func(p *v1.Pod) { p.Spec.HostNetwork = true })
		w.create(web)
		w.create(host)
		w.wantPhase(host, v1.PodRunning)
		w.wantPhase(web, v1.PodPending)
		if !w.heard("NetworkNotReady") {
			w.Fatal("nobody was told")
		}
		w.after(time.Minute)
		w.mu.Lock()
		told := len(w.events)
		w.mu.Unlock()
		if told != 1 {
			w.Fatalf("the same trouble was told %d times in a minute", told)
		}
		ready.Store(true)
		w.after(2 * time.Second)
		w.wantPhase(web, v1.PodRunning)
	})
}

func TestADeadSandboxIsReplacedWithAllThatRanInIt(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.engine.Reboot()
		w.after(time.Minute)
		w.wantPhase(web, v1.PodRunning)
		w.wantTranscript("sandbox web_shop #0", "start web_shop/app #0", "reboot", "sandbox web_shop #1", "start web_shop/app #1")
		if !w.heard("SandboxChanged") {
			w.Fatal("nobody was told")
		}
	})
}

func TestAPodPastItsDeadlineFailsAndIsStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		limit := int64(30)
		web := apiPod("web", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = &limit })
		w.create(web)
		w.after(29 * time.Second)
		w.wantPhase(web, v1.PodRunning)
		w.after(2 * time.Second)
		w.wantPhase(web, v1.PodFailed)
		w.wantStage(web, "finished")
		if s, _ := w.statuses.GetPodStatus(web.UID); s.Reason != "DeadlineExceeded" {
			w.Fatalf("it failed because of %q", s.Reason)
		}
		w.wantTold("web DeadlineExceeded: Pod was active on the node longer than the specified deadline")
		if told := w.countTold("DeadlineExceeded"); told != 1 {
			w.Errorf("it was told %d times", told)
		}
	})
}

func TestAnInitContainerThatFailsKeepsTheRestFromStarting(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("setup", engine.Script{Runs: time.Second, PullError: errBroken})
		web := apiPod("web", func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "setup:1"}} })
		w.create(web)
		w.after(time.Minute)
		w.wantTranscript("sandbox web_shop #0")
		w.engine.Script("setup", engine.Script{Runs: time.Second})
		w.after(time.Minute)
		w.wantTranscript("sandbox web_shop #0", "start web_shop/setup #0", "start web_shop/app #0")
	})
}

func TestF22ARuntimeThatHangsForOnePodHoldsUpNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		stuck := func(c engine.Call) bool { return c.Pod == "uid-stuck" }
		w.engine.Break(stuck, engine.Fault{Delay: engine.Forever})
		web := apiPod("stuck")
		w.create(web)
		for i := range 20 {
			p := apiPod(fmt.Sprintf("web%d", i))
			w.create(p)
			w.wantPhase(p, v1.PodRunning)
		}
		w.after(3 * time.Minute)
		if !w.heard("FailedSync") {
			w.Fatal("nobody was told")
		}
	})
}

func TestPW53ARestartOfTheAgentTouchesNothing(t *testing.T) { // F15
	inWorld(t, func(w *world) {
		web, etcd := apiPod("web", withContainers("app", "other")), staticPod("etcd", "u1")
		w.create(web)
		w.create(etcd)
		before := w.engine.Transcript()
		for range 3 {
			w.restartAgent()
			w.create(web)
			w.create(etcd)
			w.after(5 * time.Minute)
			w.housekeep()
		}
		w.wantTranscript(before...)
		w.wantPhase(web, v1.PodRunning)
		w.wantPhase(etcd, v1.PodRunning)
	})
}

func TestProbesAreAskedAndEndWithThePod(t *testing.T) {
	p := &probes{}
	inWorldWith(t, func(c *worker.Config) { c.Probes = p }, func(w *world) {
		web := apiPod("web")
		w.create(web)
		p.giveUpOn(w.sight.Get(podid.UID(web.UID)).Containers[0].ID)
		w.Wake(podid.UID(web.UID))
		w.after(11 * time.Second)
		w.wantTranscript("sandbox web_shop #0", "start web_shop/app #0", "stop web_shop/app", "start web_shop/app #1")
		w.delete(web, 30)
		if got := p.log(); got != "add stop-liveness remove" {
			w.Fatalf("probing went %s", got)
		}
	})
}
